package pipeline_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
)

// What a session has cached is held while its engine keeps it, from turn to turn, for
// no longer than is granted and by no more than a tenant may pin. It is nothing that
// the client has asked for.
func TestHold(t *testing.T) {
	minute, share := time.Minute, 0.02
	whole := func(ttl time.Duration) []kv.Pin { return []kv.Pin{{UpTo: kv.WholeSequence, TTL: ttl}} }
	for name, tc := range map[string]struct {
		turns   []string
		timeout uint32
		caps    *nvext.Caps
		refuses int
		off     bool
		want    [][]kv.Pin // of each turn
		capped  []string   // on the first
	}{
		"held":              {turns: []string{"open", "", "close", ""}, timeout: 600, want: [][]kv.Pin{whole(10 * time.Minute), whole(10 * time.Minute), nil, nil}},
		"the last turn":     {turns: []string{"open", "final"}, timeout: 600, want: [][]kv.Pin{whole(10 * time.Minute), nil}},
		"bound":             {turns: []string{"bind", ""}, timeout: 600, want: [][]kv.Pin{nil, nil}},
		"off":               {turns: []string{"open", ""}, timeout: 600, off: true, want: [][]kv.Pin{nil, nil}},
		"the engine cannot": {turns: []string{"open", ""}, timeout: 600, refuses: 1, want: [][]kv.Pin{nil, nil}},
		"for a year":        {turns: []string{"open"}, timeout: 365 * 86400, want: [][]kv.Pin{whole(24 * time.Hour)}},
		"a tenant's time":   {turns: []string{"open"}, timeout: 600, caps: &nvext.Caps{MaxTTL: &minute}, want: [][]kv.Pin{whole(time.Minute)}, capped: []string{nvext.CapTTL}},
		"a tenant's share":  {turns: []string{"open"}, timeout: 600, caps: &nvext.Caps{PinShare: &share}, want: [][]kv.Pin{{{UpTo: 2 * 16, TTL: 10 * time.Minute}}}, capped: []string{nvext.CapPinShare}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper()
				k.features, k.refuses = append(k.features, engine.FeaturePins, engine.FeatureCacheSalt), tc.refuses
				k.change = func(c *engine.Card) { c.TotalBlocks = 100 }
				h := newHouse(t, pipeline.Config{Retention: pipeline.Retention{HoldSessions: !tc.off}}, k)
				defer h.Close()
				k.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
					yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: 1}, Pinned: &engine.PinResult{Requested: 2, Pinned: 2}}, nil)
				}
				for i, action := range tc.turns {
					timeout := tc.timeout
					if action != "open" && action != "bind" {
						timeout = 0
					}
					r := inSession(action, timeout)
					r.Chat.Turns, r.Caps = asks(nil).Chat.Turns, tc.caps
					r.KV.EvictSession = action == "final" || action == "close"
					if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
						t.Fatal(err)
					}
					sent := k.sent()
					if got := sent[len(sent)-1].KV.Pins; !slices.Equal(got, tc.want[i]) {
						t.Errorf("turn %d: pins %+v, want %+v", i, got, tc.want[i])
					}
					if i == 0 && !slices.Equal(r.Notes.Capped, tc.capped) {
						t.Errorf("beyond the caps %v, want %v", r.Notes.Capped, tc.capped)
					}
					if r.Notes.Granted != nil {
						t.Errorf("turn %d: the client is told of %+v, for which it has not asked", i, r.Notes.Granted)
					}
				}
				synctest.Wait()
				if c := h.Pins(); c != (pipeline.PinCounts{}) {
					t.Errorf("counted as the client's: %+v", c)
				}
			})
		})
	}
}

// A child's session is worth nothing behind its end where operators say so, whoever
// opens it, and one without a parent is what its client says.
func TestSubagents(t *testing.T) {
	for _, tc := range []struct {
		parent string
		asked  bool
		off    bool
		want   bool
	}{
		{parent: "up", want: true},
		{parent: "up", off: true},
		{},
		{asked: true, want: true},
		{parent: "up", asked: true, off: true, want: true},
	} {
		k := newKeeper()
		h := newHouse(t, pipeline.Config{Retention: pipeline.Retention{SubagentEphemeral: !tc.off}}, k)
		k.generate = h.say("Yes.", 1, engine.FinishEOS)
		r := inSession("open", 60)
		r.KV.Namespace.Salt, r.KV.Session.Parent, r.KV.Session.Ephemeral = "", tc.parent, tc.asked
		run(t, h, r)
		if got := k.sent()[0].KV.Session.Ephemeral; got != tc.want {
			t.Errorf("%+v: with the request %v", tc, got)
		}
		if k.mu.Lock(); k.ephemeral != tc.want {
			t.Errorf("%+v: opened as %v", tc, k.ephemeral)
		}
		k.mu.Unlock()
	}
}
