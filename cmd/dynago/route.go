package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

type routeCommand struct {
	Prompts []string        `arg:"" name:"prompt" help:"Prompts as one user would send them, each in a conversation of its own. All but the last are sent first, so that caches are warm; the last one is explained."`
	Explain explainSettings `embed:"" group:"Explanation"`
	settings
}

// Run explains the placement of one prompt on a fleet of its own.
func (c *routeCommand) Run(to outlet, parsed *config.Parsed) error {
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	if c.Explain.Server != "" {
		return c.explainServer(to)
	}
	if len(c.Attach.Engines) > 0 {
		return errors.New("--engine: want --server URL of a running \"dynago serve\" here: without it prompts are placed on mock engines")
	}
	if c.Model.Demo == demoMock {
		c.Workers.SpeedupRatio = new(0.0) // nobody waits for a mock engine's answer here
	}
	c.unheeded(parsed, logs.target("route"))
	sys, err := newSystem(&c.settings, logs)
	if err != nil {
		return err
	}
	defer sys.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := sys.ready(ctx); err != nil {
		return fmt.Errorf("workers did not start: %w", err)
	}
	last := len(c.Prompts) - 1
	for _, text := range c.Prompts[:last] {
		if err := sys.warm(ctx, text); err != nil {
			return err
		}
	}
	if c.Explain.Full || c.Explain.JSON {
		e := explanation{Model: sys.files.name, Mode: c.Router.describe(), byCost: c.Router.byCost(sys.policies)}
		return sys.explainFully(ctx, to, c.Prompts[last], &c.Explain, &e)
	}
	return sys.explain(ctx, to, c.Prompts[last])
}

func (sys *system) conversation(text string) *chat.Request {
	one := 1
	return &chat.Request{
		API: chat.APIChat, Model: sys.files.name,
		Turns:    []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}}},
		Sampling: chat.Sampling{MaxTokens: &one},
	}
}

// warm sends a prompt and waits until the index knows what it left behind.
func (sys *system) warm(ctx context.Context, text string) error {
	r := &pipeline.Request{ID: uuid.NewString(), Chat: sys.conversation(text), Arrived: time.Now(), Notes: new(pipeline.Notes)}
	if _, err := chat.Fold(sys.Run(ctx, r)); err != nil {
		return err
	}
	whole := r.Notes.PromptTokens / sys.args.BlockSize
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for wait := time.Now().Add(time.Second); time.Now().Before(wait); <-tick.C {
		for _, l := range sys.router.Loads() {
			if l.Target == r.Notes.Target && l.CachedBlocks >= whole {
				return nil
			}
		}
	}
	return nil
}

// explain prints what each rank would cost, and which one is taken.
func (sys *system) explain(ctx context.Context, to outlet, text string) error {
	ids, _, err := sys.Tokenize(sys.conversation(text), true)
	if err != nil {
		return err
	}
	query := &router.Query{ID: uuid.NewString(), Model: sys.files.name, Tokens: ids, Choices: 1}
	rows, err := sys.router.Explain(ctx, query)
	if err != nil {
		return err
	}
	booking, err := sys.router.Route(ctx, query)
	if err != nil {
		return err
	}
	defer booking.Release()
	d := booking.Decision()

	fmt.Fprintf(to.out, "%d tokens, %d blocks of %d; %d cached where it goes\n\n", len(ids), d.Blocks, sys.args.BlockSize, d.Overlap)
	w := tabwriter.NewWriter(to.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "worker\trank\tcached\tactive\trequests\tcost\t\t")
	slices.SortFunc(rows, func(a, b router.Row) int {
		if a.Worker.Name() != b.Worker.Name() {
			return compareNames(a.Worker.Name(), b.Worker.Name())
		}
		return int(a.Target.Rank) - int(b.Target.Rank)
	})
	for _, row := range rows {
		mark := ""
		if row.Target == d.Target {
			mark = "← taken"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.2f\t%s\t\n", row.Worker.Name(), row.Target.Rank, row.Device, row.ActiveBlocks, row.Requests, row.Cost, mark)
	}
	return w.Flush()
}

// compareNames orders mock-2 before mock-10.
func compareNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}
