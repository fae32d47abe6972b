package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/files"
	"github.com/dynago/dynago/trace/tree"
)

type traceTail struct {
	recordedSettings
	Session string `name:"session" env:"DYN_SESSION" placeholder:"ID" help:"Show only records of this session, chain or run, and of chains that it opens."`
	Last    int    `name:"last" short:"n" env:"DYN_LAST" default:"10" range:"0.." placeholder:"N" help:"Show so many of the records that are there already."`
	Follow  bool   `name:"follow" env:"DYN_FOLLOW" default:"true" negatable:"" help:"Go on with those that come."`
	JSON    bool   `name:"json" env:"DYN_JSON" negatable:"" help:"Show each record as a line of JSON."`
}

// look is how long a follower waits before it looks again.
const look = 200 * time.Millisecond

// Run shows the last records, and those that come until it is interrupted.
func (c *traceTail) Run(to outlet) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	return c.tail(ctx, to)
}

func (c *traceTail) tail(ctx context.Context, to outlet) error {
	complaints := complaints{to: to.err}
	follower := files.Follow(complaints.add, c.Names...)
	kin := c.kin()
	out := bufio.NewWriter(to.out)
	var last []files.Row
	err := follower.Next(func(r files.Row) {
		if !kin(r.Record) || c.Last == 0 {
			return
		}
		if len(last) == c.Last {
			last = append(last[:0], last[1:]...)
		}
		last = append(last, r)
	})
	if missing, ok := errors.AsType[*files.MissingError](err); ok && c.Follow {
		fmt.Fprintf(to.err, "dynago: trace: %s: there is nothing yet, waiting for it\n", missing.Name)
	} else if ok {
		fmt.Fprintf(to.err, "dynago: %v\n", missing)
		return exit(2)
	} else if err != nil {
		return err
	}
	for _, r := range last {
		c.print(out, r.Record)
	}
	last = nil
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if err := out.Flush(); err != nil {
			return err
		}
		if !c.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := follower.Next(func(r files.Row) {
			if kin(r.Record) {
				c.print(out, r.Record)
			}
		})
		if _, missing := errors.AsType[*files.MissingError](err); err != nil && !missing {
			return err
		}
	}
}

// kin returns a function that says whether a record is wanted. Chains that others have
// opened are known as such once a record has said so.
func (c *traceTail) kin() func(*trace.Record) bool {
	if c.Session == "" {
		return func(*trace.Record) bool { return true }
	}
	wanted := map[string]bool{c.Session: true}
	return func(r *trace.Record) bool {
		if r.Agent == nil {
			return false
		}
		id := r.Agent.Chain()
		if !wanted[id] && (wanted[r.Agent.ParentChain()] || r.Agent.Run() == c.Session) {
			wanted[id] = true
		}
		return wanted[id]
	}
}

// print shows one record on a line.
func (c *traceTail) print(out *bufio.Writer, r *trace.Record) {
	if c.JSON {
		line, err := r.Append(nil)
		if err == nil {
			out.Write(append(line, '\n')) //nolint:errcheck // Flush tells
		}
		return
	}
	chain := "-"
	if r.Agent != nil {
		chain = plain(r.Agent.Chain())
	}
	parts := []string{time.UnixMilli(int64(min(r.EventTime, 1<<47))).UTC().Format("15:04:05.000"), r.EventType, chain}
	switch {
	case r.EventType == trace.RequestEnd && r.Request != nil:
		parts = append(parts, plain(r.Request.RequestID), plain(dash(r.Request.Model)), figures(r.Request), plain(tree.Ending(r.Request)), placed(r.Request))
	case r.IsTool() && r.Tool != nil:
		parts = append(parts, plain(r.Tool.ID), plain(r.Tool.Class))
		if r.Tool.Duration != nil {
			parts = append(parts, milli(*r.Tool.Duration))
		}
		parts = append(parts, plain(r.Tool.Status), plain(r.Tool.ErrorType))
	case r.Payload != nil:
		parts = append(parts, plain(r.Payload.RequestID), plain(r.Payload.Model), fmt.Sprintf("%d bytes asked, %d answered", len(r.Payload.Request), len(r.Payload.Response)))
	}
	fmt.Fprintln(out, strings.Join(nonempty(parts), "  "))
}

func nonempty(parts []string) []string {
	kept := parts[:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return kept
}
