package pipeline

import (
	"context"
	"time"

	"github.com/dynago/dynago/engine"
)

// Move is a request whose worker has failed, and what came of it. One that loses
// several workers before it goes on has moved once.
type Move struct {
	Model   string
	Ongoing bool          // it had begun to answer
	Took    time.Duration // from the failure to what came of it
	End     MoveEnd
}

// MoveEnd is what came of a move.
type MoveEnd string

// The ends of moves.
const (
	MoveSuccess   MoveEnd = "success" // another worker has gone on
	MoveFailure   MoveEnd = "failure"
	MoveCancelled MoveEnd = "cancelled"
	// MoveRefused is a request that had grown beyond [Config.MigrationMaxTokens]; it
	// did not move, and took no time.
	MoveRefused MoveEnd = "max_seq_len_exceeded"
)

// lose notes when the worker of a request has failed that is to go on elsewhere.
func (c *carry) lose(ongoing bool) {
	if c.lost.IsZero() {
		c.lost, c.lostOngoing = time.Now(), ongoing
	}
}

// moved tells what came of a move, if one is going on.
func (c *carry) moved(end MoveEnd) {
	if !c.lost.IsZero() {
		c.tellMove(Move{Ongoing: c.lostOngoing, Took: time.Since(c.lost), End: end})
		c.lost = time.Time{}
	}
}

// movedInVain is moved for the error that ends the request.
func (c *carry) movedInVain(ctx context.Context, err error) {
	if ctx.Err() != nil || engine.KindOf(err) == engine.Cancelled {
		c.moved(MoveCancelled)
		return
	}
	c.moved(MoveFailure)
}

func (c *carry) tellMove(m Move) {
	if c.p.Moved != nil {
		m.Model = c.request.Notes.Model
		c.p.Moved(m)
	}
}
