// Package satf writes traces of requests as SATF 2.0.0, which simulators of agents read:
// one JSON document with a graph for each session, of requests (llm_infer), calls of tools
// (tool_call) and their ends (tool_result), and edges for what waited for what.
//
//	llm:l1 ──10 ms──▶ tool_call:0 ──▶ tool_result:0 ──90 ms──▶ llm:l2
//	1 s                               300 ms                   800 ms
//
// The one idea: a node starts when all that it waited for has ended, and so much later as
// it did; what has waited for nothing starts so long after the beginning of the trace.
// With the durations that were recorded, requests come when they came, to a millisecond.
//
// There is no description of the format but what the reference's converter writes. As
// there, each chain of turns is a session, and so is each request of no agent; blocks are
// numbered over the whole trace as they are first seen; tools that no harness has told of
// are part of the time between turns; and what has no place elsewhere stands in extensions,
// under nvidia.dynamo. These details are ours:
//
//   - A request waits for those that had ended when it came, and for none that was still
//     running: those of a session that ran side by side do so again.
//   - A tool starts from the answer that has asked for its id, and its result goes to the
//     request that brings it, where records say which those are. Else the times say it.
//   - Edges stay in their session, as ids of nodes do. Who has opened a session, and who
//     has waited for it, stands in its extensions, under dynago.
package satf

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace/tree"
)

// Options say how a document is written, and who writes it.
type Options struct {
	Version string // of the program; "" is left out
	Pretty  bool   // indent the JSON
	// Strict refuses requests without hashes, and records that are there twice.
	Strict bool
}

// Written is what a document has.
type Written struct {
	Sessions, Requests, Tools int
	BlockSize                 int // tokens of a block
	Skipped                   int // requests without hashes, which nobody can replay
}

// Write writes a tree that has the hashes of prompts. On an error, what was written is no
// document.
func Write(to io.Writer, t *tree.Tree, o Options) (Written, error) {
	d, err := gather(t, o.Strict)
	if err != nil {
		return Written{}, err
	}
	options := []jsontext.Options{jsontext.AllowInvalidUTF8(true)}
	if o.Pretty {
		options = append(options, jsontext.WithIndent("  "))
	}
	out := jsontext.NewEncoder(to, options...)
	head := []any{
		"format", "satf", "format_version", "2.0.0", "time_base", "us", "block_size_tokens", d.BlockSize,
		"producer",
		producer{"dynago", o.Version},
		"extensions",
		extensions{Dynamo: map[string]int64{"artifact_start_unix_us": d.start.UnixMicro()}},
		"sessions",
	}
	err = out.WriteToken(jsontext.BeginObject)
	for i := 0; i < len(head) && err == nil; i++ {
		err = json.MarshalEncode(out, head[i])
	}
	err = errors.Join(err, out.WriteToken(jsontext.BeginArray))
	for i := 0; i < len(d.chains) && err == nil; i++ {
		var s *session
		if s, err = d.session(d.chains[i]); err == nil {
			err = json.MarshalEncode(out, s)
		}
	}
	if err == nil {
		err = errors.Join(out.WriteToken(jsontext.EndArray), out.WriteToken(jsontext.EndObject))
	}
	if err != nil {
		return Written{}, fmt.Errorf("write SATF: %w", err)
	}
	return d.Written, nil
}

// document is what all of it is made of.
type document struct {
	Written
	start  time.Time // of the first request
	chains []*chain
	of     map[*tree.Chain]*chain
	blocks map[uint64]uint64 // the numbers of hashes
}

// chain is what becomes a session.
type chain struct {
	*tree.Chain // nil for a request of no agent
	id          string
	turns       []*tree.Turn // that can be replayed
	tools       []*use       // that harnesses have told the end of, in the order of their starts
	at          map[*tree.Turn]int
	requests    map[string]int // the same by id
	first       time.Time      // when it begins
}

// gather looks through a tree.
func gather(t *tree.Tree, strict bool) (*document, error) {
	d := &document{of: map[*tree.Chain]*chain{}, blocks: map[uint64]uint64{}}
	if strict && t.Duplicates > 0 {
		return nil, fmt.Errorf("%d records are there twice", t.Duplicates)
	}
	var all []*tree.Turn
	for _, root := range t.Sessions {
		var err error
		root.Walk(func(c *tree.Chain) {
			if err == nil {
				err = d.add(&chain{Chain: c, id: c.ID}, c.Turns, strict)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	names := map[string]bool{}
	for _, c := range d.chains {
		names[c.id] = true
	}
	for _, turn := range t.Alone.Turns {
		name := turn.Request.RequestID
		for names[name] {
			name = "request:" + name
		}
		names[name] = true
		if err := d.add(&chain{id: name}, []*tree.Turn{turn}, strict); err != nil {
			return nil, err
		}
	}
	for _, c := range d.chains {
		all = append(all, c.turns...)
	}
	switch {
	case len(all) == 0 && d.Skipped > 0:
		return nil, fmt.Errorf("none of %d requests has the hashes of its prompt, without which nobody can replay it", d.Skipped)
	case len(all) == 0:
		return nil, errors.New("the trace holds no requests")
	}
	slices.SortStableFunc(all, func(a, b *tree.Turn) int {
		return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End), cmp.Compare(a.Request.RequestID, b.Request.RequestID))
	})
	d.start = all[0].Start
	for _, turn := range all {
		for _, hash := range turn.Request.Replay.Hashes {
			if _, ok := d.blocks[hash]; !ok {
				d.blocks[hash] = uint64(len(d.blocks))
			}
		}
	}
	slices.SortStableFunc(d.chains, func(a, b *chain) int {
		return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.id, b.id))
	})
	return d, nil
}

// add adds a chain, unless it has nothing to tell.
func (d *document) add(c *chain, turns []*tree.Turn, strict bool) error {
	c.at, c.requests = map[*tree.Turn]int{}, map[string]int{}
	for _, turn := range turns {
		if turn.Request.Replay == nil {
			if strict {
				return fmt.Errorf("request %q: replay is missing, so that the request cannot be replayed", turn.Request.RequestID)
			}
			d.Skipped++
			continue
		}
		if err := d.check(turn); err != nil {
			return fmt.Errorf("request %q: %w", turn.Request.RequestID, err)
		}
		c.at[turn], c.requests[turn.Request.RequestID] = len(c.turns), len(c.turns)
		c.turns = append(c.turns, turn)
	}
	if c.Chain != nil {
		if err := c.addTools(); err != nil {
			return err
		}
	}
	switch {
	case len(c.turns) == 0 && len(c.tools) == 0:
		return nil
	case len(c.turns) == 0 || len(c.tools) > 0 && c.tools[0].Start.Before(c.turns[0].Start):
		c.first = c.tools[0].Start
	default:
		c.first = c.turns[0].Start
	}
	d.chains = append(d.chains, c)
	if c.Chain != nil {
		d.of[c.Chain] = c
	}
	d.Sessions, d.Requests, d.Tools = d.Sessions+1, d.Requests+len(c.turns), d.Tools+len(c.tools)
	return nil
}

// check checks what a replay needs of a request.
func (d *document) check(t *tree.Turn) error {
	r, p := t.Request, t.Request.Replay
	if d.BlockSize == 0 {
		d.BlockSize = p.BlockSize
	}
	switch {
	case r.RequestID == "":
		return errors.New("request_id is missing")
	case r.Received == nil:
		return errors.New("request_received_ms is missing")
	case r.OutputTokens == nil:
		return errors.New("output_tokens is missing")
	case p.BlockSize < 1:
		return fmt.Errorf("replay.trace_block_size: got %d, want 1 or more", p.BlockSize)
	case p.BlockSize != d.BlockSize:
		return fmt.Errorf("replay.trace_block_size: got %d, and it was %d before", p.BlockSize, d.BlockSize)
	case p.InputLength < 0:
		return fmt.Errorf("replay.input_length: got %d, want 0 or more", p.InputLength)
	}
	want := p.InputLength / p.BlockSize
	if p.InputLength%p.BlockSize > 0 {
		want++
	}
	if len(p.Hashes) != want {
		return fmt.Errorf("replay.input_sequence_hashes: got %d, and %d tokens are %d blocks of %d", len(p.Hashes), p.InputLength, want, p.BlockSize)
	}
	return nil
}
