package router

import (
	"context"
	"fmt"

	"github.com/dynago/dynago/kv"
)

// SharedCache is a cache beside the workers, from which any of them may load.
type SharedCache interface {
	// Check returns which blocks of a prompt are there, by number: ranges that are
	// not empty, in order, and apart. It is asked about several prompts at once, must
	// not keep the tokens, and returns soon after ctx is done.
	Check(ctx context.Context, tokens []uint32, blockSize int) ([]kv.Span, error)
}

// ask lets the shared cache be asked while others look into the index. Whoever
// sent the request does not share with others if it has a namespace.
func (r *Router) ask(ctx context.Context, q *Query, blockSize int, t *Tuning) chan []kv.Span {
	if r.shared == nil || t.SharedCacheMultiplier == 0 || q.Namespace != (kv.Namespace{}) || q.Hashes != nil {
		return nil
	}
	answer := make(chan []kv.Span, 1)
	go func() {
		ranges, err := r.shared.Check(ctx, q.Tokens, blockSize)
		if err == nil {
			err = inOrder(ranges, len(q.Tokens)/blockSize)
		}
		if err != nil {
			ranges = nil
		}
		if err != nil && ctx.Err() == nil {
			r.sharedErrors.Add(1)
			r.log.Debug("the shared cache does not answer", "request", q.ID, "error", err)
		}
		answer <- ranges
	}()
	return answer
}

// inOrder says what is wrong with an answer about so many blocks.
func inOrder(ranges []kv.Span, blocks int) error {
	end := 0
	for _, r := range ranges {
		if r.Start < end || r.End <= r.Start || r.End > blocks {
			return fmt.Errorf("blocks %d to %d of %d, after %d", r.Start, r.End, blocks, end)
		}
		end = r.End
	}
	return nil
}

// beyond returns how many blocks at position depth or later are in the ranges.
func beyond(ranges []kv.Span, depth int) int {
	n := 0
	for _, r := range ranges {
		n += max(0, r.End-max(r.Start, depth))
	}
	return n
}
