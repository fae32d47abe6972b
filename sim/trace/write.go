package trace

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/dynago/dynago/nvext"
	"github.com/go-json-experiment/json"
)

// written is a row as Write makes it.
type written struct {
	RequestID      string   `json:"request_id"`
	SessionID      string   `json:"session_id,omitzero"`
	Timestamp      float64  `json:"timestamp"`
	InputLength    int      `json:"input_length"`
	OutputLength   int      `json:"output_length"`
	HashIDs        []int32  `json:"hash_ids"`
	WaitFor        []string `json:"wait_for,omitzero"`
	Delay          float64  `json:"delay,omitzero"`
	Priority       int32    `json:"priority,omitzero"`
	StrictPriority uint32   `json:"strict_priority,omitzero"`
	PolicyClass    string   `json:"policy_class,omitzero"`

	NVExt *nvext.Ext `json:"nvext,omitzero"`
}

// Write writes requests in format f, which is Mooncake or AgenticMooncake. Ids
// of blocks are numbered as they come; those of blocks of blockSize tokens that
// have the same tokens before them are the same. Mooncake has no other order
// than that of sessions: that a request waits for one of another session cannot
// be written, and is an error.
func Write(to io.Writer, f Format, blockSize int, requests iter.Seq2[Request, error]) error {
	if f != Mooncake && f != AgenticMooncake {
		return fmt.Errorf("write trace: format %s is not written, want %s or %s", f, Mooncake, AgenticMooncake)
	}
	out := bufio.NewWriter(to)
	blocks := newNumbering(blockSize)
	last := map[string]string{} // of sessions, the id of the last request
	for r, err := range requests {
		if err != nil {
			return err
		}
		row := written{
			RequestID: r.ID, SessionID: r.Session, Timestamp: inMS(r.At), Delay: inMS(r.Delay),
			InputLength: r.Prompt.Len(), OutputLength: r.Answer.Len(),
			Priority: int32(r.Priority), StrictPriority: r.StrictPriority, PolicyClass: r.Class,
		}
		switch before, ok := last[r.Session]; {
		case f == AgenticMooncake:
			row.WaitFor = r.After
		case len(r.After) == 0 && !(ok && r.Session != ""):
		case len(r.After) == 1 && ok && r.After[0] == before:
		default:
			return fmt.Errorf("write trace: request %q waits for %q, which format %s cannot say", r.ID, r.After, f)
		}
		last[r.Session] = r.ID
		row.HashIDs = blocks.of(r.Prompt)
		var err error
		if row.NVExt, err = extension(&r); err != nil {
			return fmt.Errorf("write trace: request %q asks of caches what no client can: %w", r.ID, err)
		}
		if err := json.MarshalWrite(out, row); err != nil {
			return fmt.Errorf("write trace: request %q: %w", r.ID, err)
		}
		if err := out.WriteByte('\n'); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
