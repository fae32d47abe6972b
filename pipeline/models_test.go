package pipeline

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/prompt"
)

// teller is an engine that does nothing but tell its cards.
type teller chan engine.Status

func (t teller) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-t:
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

func (teller) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] { return nil }

func (teller) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) { <-ctx.Done() }
}

func (teller) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}

// Models and sightings are kept for those who are there, however many come and
// go; equal files are loaded once.
func TestNothingOfTheGoneIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet.New(fleet.Config{})
		defer f.Close()
		var loads []string
		p := New(Config{Fleet: f, Load: func(c *engine.Card) (*prompt.Model, error) {
			loads = append(loads, c.Model)
			return &prompt.Model{}, nil
		}})
		join := func(id uint64, model string) {
			e := make(teller)
			if _, err := f.Add(fleet.Entry{Name: fmt.Sprint(id), Engine: e, ID: id}); err != nil {
				t.Fatal(err)
			}
			for revision := range uint64(2) { // the second card says the same
				e <- engine.Status{Epoch: 1, Revision: revision + 1, State: engine.Ready, Card: &engine.Card{Model: model, ContextLength: 100}}
				synctest.Wait()
				if _, _, err := p.model(model); err != nil {
					t.Fatal(err)
				}
			}
			p.seen.of(kv.Target{Worker: id})
		}
		join(1, "stays")
		join(2, "stays")
		for i := range uint64(50) {
			join(10+i, fmt.Sprint("m", i))
			f.Remove(10 + i)
		}
		join(3, "last")
		if n := len(p.models.byCard); n != 2 {
			t.Errorf("%d cards are known, want one of each model", n)
		}
		n := 0
		p.seen.byTarget.Range(func(any, any) bool { n++; return true })
		if n != 3 {
			t.Errorf("%d ranks were seen, want 3", n)
		}
		slices.Sort(loads)
		if len(loads) != 52 || len(slices.Compact(loads)) != 52 {
			t.Errorf("loaded %v, want each model once", loads)
		}
	})
}
