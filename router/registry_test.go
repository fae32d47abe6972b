package router_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

// named is a policy that is known by its name, and by what it was made of.
type named struct {
	name   string
	recipe *router.Recipe
	Level  int    `json:"level"`
	URL    string `json:"url"`
	learnt []string
}

func (p *named) Pick(context.Context, *router.Query, []router.Candidate) (int, error) {
	return 0, errors.New(p.name)
}

func (p *named) Learn(o router.Outcome) { p.learnt = append(p.learnt, o.ID) }

func register(t *testing.T, names ...string) *router.Registry {
	t.Helper()
	g := router.NewRegistry()
	for _, name := range names {
		err := g.Register(name, func(r *router.Recipe) (router.Policy, error) {
			p := &named{name: name, recipe: r}
			return p, r.Read(p)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestChoose(t *testing.T) {
	file := &router.Selection{
		Instances: []router.Instance{
			{Name: "mine", Type: "a", Parameters: map[string]any{"level": 3}},
			{Name: "b", Type: "a"}, // stands before the type of this name
		},
		Roles: map[engine.Role]string{engine.Aggregated: "mine", engine.Decode: "b", engine.Encode: "default"},
	}
	for _, c := range []struct {
		name   string
		choice router.Choice
		want   string // aggregated, prefill, decode, encode
	}{
		{"nothing", router.Choice{}, ""},
		{"default", router.Choice{Policy: "default", File: file}, ""},
		{"all", router.Choice{Policy: "a"}, "a a a a"},
		{"address", router.Choice{Prefill: "http://h:1/p"}, "- remote=http://h:1/p - -"},
		{"prefill wins", router.Choice{Policy: "a", Prefill: "c"}, "a c a a"},
		{"decode wins", router.Choice{Policy: "a", Decode: "c"}, "a a c a"},
		{"decode alone", router.Choice{Decode: "c"}, "- - c -"},
		{"default wins too", router.Choice{Policy: "a", Prefill: "default"}, "a - a a"},
		{"file", router.Choice{File: file}, "a3 - a -"},
		{"file comes last", router.Choice{File: file, Policy: "c"}, "c c c c"},
		{"file and flag", router.Choice{File: file, Prefill: "c"}, "a3 c a -"},
		{"instance by flag", router.Choice{File: file, Policy: "mine"}, "a3 a3 a3 a3"},
		{"instance before type", router.Choice{File: file, Prefill: "b"}, "a3 a a -"},
	} {
		t.Run(c.name, func(t *testing.T) {
			chosen, err := register(t, "a", "b", "c", "remote").Choose(c.choice, router.Recipe{Mode: router.KV})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, role := range []engine.Role{engine.Aggregated, engine.Prefill, engine.Decode, engine.Encode} {
				if chosen == nil {
					break
				}
				p, ok := chosen[role].(*named)
				switch {
				case !ok:
					got = append(got, "-")
				case p.recipe.Role != role:
					t.Errorf("role %q has the policy for %q", role, p.recipe.Role)
				case p.Level > 0:
					got = append(got, fmt.Sprint(p.name, p.Level))
				case p.URL != "":
					got = append(got, p.name+"="+p.URL)
				default:
					got = append(got, p.name)
				}
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}

func TestChooseFaults(t *testing.T) {
	file := &router.Selection{Instances: []router.Instance{
		{Name: "wrong", Type: "a", Parameters: map[string]any{"level": "high"}},
		{Name: "more", Type: "a", Parameters: map[string]any{"height": 1}},
		{Name: "unknown", Type: "nowhere"},
		{Name: "busy", Type: "least-busy", Parameters: map[string]any{"x": 1}},
	}}
	for name, says := range map[string]string{
		"nobody":  `aggregated: unknown policy type "nobody": want default, or one of a, device-aware-weighted, direct, kv, least-busy, least-loaded, power-of-two, random, round-robin`,
		"wrong":   `policy wrong: parameters: `,
		"more":    `"height"`,
		"unknown": `unknown policy type "nowhere"`,
		"busy":    `policy busy: parameters: `,
		"x://y":   `unknown policy type "remote"`,
	} {
		if _, err := register(t, "a").Choose(router.Choice{Policy: name, File: file}, router.Recipe{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %s", name, err, says)
		}
	}
}

func TestRegisterFaults(t *testing.T) {
	none := func(*router.Recipe) (router.Policy, error) { return nil, nil }
	g := register(t, "mine")
	for name, says := range map[string]string{
		"":           "want a name",
		"a b":        "want a name",
		"http://x":   "want a name",
		"default":    "built-in",
		"kv":         "there already",
		"least-busy": "there already",
		"mine":       "there already",
	} {
		if err := g.Register(name, none); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %s", name, err, says)
		}
	}
	if err := g.Register("other", nil); err == nil {
		t.Error("a type without a constructor is taken")
	}
}

// A policy that is made of itself is found out at the start.
func TestChooseCircle(t *testing.T) {
	g := router.NewRegistry()
	if err := g.Register("outer", func(r *router.Recipe) (router.Policy, error) { return r.Other("outer") }); err != nil {
		t.Fatal(err)
	}
	file := &router.Selection{Instances: []router.Instance{{Name: "a", Type: "part"}, {Name: "b", Type: "part"}, {Name: "c", Type: "part"}}}
	next := map[string]string{"a": "b", "b": "c", "c": "b"}
	at := "a"
	if err := g.Register("part", func(r *router.Recipe) (router.Policy, error) {
		at = next[at]
		return r.Other(at)
	}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"outer": "policy outer is made of itself (outer → outer)",
		"a":     "policy b is made of itself (a → b → c → b)",
	} {
		if _, err := g.Choose(router.Choice{Policy: name, File: file}, router.Recipe{}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRoles(t *testing.T) {
	a, b := &named{name: "a"}, &named{name: "b"}
	r := router.Roles{engine.Prefill: a, engine.Decode: b, engine.Aggregated: router.ModePolicy(router.KV, 0, 1)}
	for role, want := range map[engine.Role]string{engine.Prefill: "a", engine.Decode: "b", engine.Encode: `no policy for role "encode"`} {
		if _, err := r.Pick(context.Background(), &router.Query{Role: role}, four()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("role %q: got %v, want %s", role, err, want)
		}
	}
	if i, err := r.Pick(context.Background(), new(router.Query), four()); i != 0 || err != nil {
		t.Errorf("got %d, %v, want the least cost", i, err)
	}
	r.Learn(router.Outcome{ID: "x", Role: engine.Decode})
	r.Learn(router.Outcome{ID: "y"})
	if len(a.learnt) != 0 || len(b.learnt) != 1 || b.learnt[0] != "x" {
		t.Errorf("the policies have learned of %q and %q, want of nothing and x", a.learnt, b.learnt)
	}
	if r.Quick() {
		t.Error("it is as slow as its slowest")
	}
	if q := (router.Roles{"": router.Compose(router.Parts{}), "decode": router.ModePolicy(router.Random, 0, 1)}); !q.Quick() {
		t.Error("it is as quick as its slowest")
	}
}

// The policies of modes, within others, choose as the router itself does.
func TestModePolicy(t *testing.T) {
	c := four()
	c[3].LastPick, c[1].LastPick, c[2].LastPick, c[0].LastPick = 1, 2, 3, 4
	for mode, want := range map[router.Mode]int{router.KV: 0, router.RoundRobin: 3, router.LeastLoaded: 2} {
		if got, err := router.ModePolicy(mode, 0, 1).Pick(context.Background(), new(router.Query), c); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", mode, got, err, want)
		}
	}
	if _, err := router.ModePolicy(router.Direct, 0, 1).Pick(context.Background(), new(router.Query), c); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("direct: got %v", err)
	}
}

// meeting is a policy in which two requests meet, if they can.
type meeting struct {
	quick  bool
	inside atomic.Int64
	once   sync.Once
	met    chan struct{}
}

func (m *meeting) Quick() bool { return m.quick }

func (m *meeting) Pick(ctx context.Context, _ *router.Query, _ []router.Candidate) (int, error) {
	if m.inside.Add(1) == 2 {
		m.once.Do(func() { close(m.met) })
	}
	defer m.inside.Add(-1)
	if m.quick {
		runtime.Gosched()
		return 0, nil
	}
	select {
	case <-m.met:
		return 0, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// A policy is asked for several requests at once; a quick one, for one after
// another.
func TestQuick(t *testing.T) {
	for _, quick := range []bool{false, true} {
		m := &meeting{quick: quick, met: make(chan struct{})}
		h := newHouse(t, router.Config{Policy: m})
		h.join(1, card())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 100 {
					b, err := h.router.Route(ctx, &router.Query{Model: "m", Tokens: count(0, 10)})
					if err != nil {
						t.Error(err)
						return
					}
					b.Release()
				}
			})
		}
		all.Wait()
		cancel()
		select {
		case <-m.met:
			if quick {
				t.Error("a quick policy was asked for two requests at once")
			}
		default:
			if !quick {
				t.Error("a policy was never asked for two requests at once")
			}
		}
		h.fleet.Close()
	}
}

// first takes the first candidate, and remembers what has become of requests.
type first struct{ named }

func (*first) Pick(context.Context, *router.Query, []router.Candidate) (int, error) { return 0, nil }

// What becomes of a request is told to the policy that has placed it.
func TestRolesLearn(t *testing.T) {
	prefill, decode := new(first), new(first)
	h := newHouse(t, router.Config{Policy: router.Roles{engine.Prefill: prefill, engine.Decode: decode}})
	defer h.fleet.Close()
	h.join(1, card(func(c *engine.Card) { c.Role = engine.Prefill }))
	h.join(2, card(func(c *engine.Card) { c.Role = engine.Decode }))
	for id, role := range map[string]engine.Role{"p": engine.Prefill, "d": engine.Decode} {
		h.route(router.Query{ID: id, Model: "m", Role: role, Tokens: count(0, 10)}).Release()
	}
	if p, d := prefill.learnt, decode.learnt; len(p) != 1 || p[0] != "p" || len(d) != 1 || d[0] != "d" {
		t.Errorf("prefill has learned of %q and decode of %q, want of p and d", p, d)
	}
}
