package tiny_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/kv"
)

// pair is an engine that computes prompts, and one that decodes them.
type pair struct {
	prefill, decode *tiny.Engine
	between         func(engine.Puller) engine.Puller // what lies on the way, or nil
	dialled         []string
}

func newPair(t *testing.T, change ...func(prefill, decode *tiny.Options)) *pair {
	t.Helper()
	p := &pair{}
	of := func(role string) tiny.Options {
		a := tiny.DefaultArgs(small())
		a.WorkerType = role
		return tiny.Options{Model: small(), Args: a}
	}
	first, second := of("prefill"), of("decode")
	first.Pull.Address = func() string { return "10.0.0.1:50061" }
	second.Pull.Dial = func(_ context.Context, address string) (engine.Puller, func(), error) {
		p.dialled = append(p.dialled, address)
		if p.between != nil {
			return p.between(p.prefill), func() {}, nil
		}
		return p.prefill, func() {}, nil
	}
	for _, c := range change {
		c(&first, &second)
	}
	p.prefill, p.decode = start(t, first), start(t, second)
	return p
}

// handoff is what the last delta of a prefill leg carries.
type handoff struct {
	V         int    `json:"v"`
	Handoff   string `json:"handoff"`
	Address   string `json:"address"`
	Rank      uint32 `json:"rank"`
	Epoch     uint64 `json:"epoch,string"`
	Layout    string `json:"layout"`
	BlockSize int    `json:"block_size"`
	Tokens    int    `json:"tokens"`
}

// compute runs the prefill leg of a request.
func (p *pair) compute(t *testing.T, r *engine.Request) (text json.RawMessage, h handoff) {
	t.Helper()
	made, err := p.prefill.Prepare(t.Context(), engine.HandoffQuery{Request: r.ID})
	if err != nil {
		t.Fatal(err)
	}
	leg := *r
	leg.Stop.MaxTokens = 1
	leg.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: made.Prefill}
	_, last := generate(t, p.prefill, &leg)
	if err := json.Unmarshal(last.Handoff, &h); err != nil || h.Handoff != made.ID {
		t.Fatalf("%s is handed over, of %+v: %v", last.Handoff, made, err)
	}
	return last.Handoff, h
}

func decodeLeg(r *engine.Request, handoff json.RawMessage) *engine.Request {
	leg := *r
	leg.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: handoff}
	return &leg
}

// pull gets all that an engine gives.
func pull(t *testing.T, p engine.Puller, q engine.PullRequest) (blocks []engine.PulledBlock, err error) {
	t.Helper()
	for b, err := range p.Pull(t.Context(), q) {
		if err != nil {
			return blocks, err
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func query(h handoff) engine.PullRequest {
	return engine.PullRequest{Handoff: h.Handoff, Epoch: h.Epoch, Layout: h.Layout, BlockBytes: small().BlockBytes(h.BlockSize)}
}

func TestWhatIsHandedOver(t *testing.T) {
	p := newPair(t)
	text, h := p.compute(t, ask(prompt(1, 37), 5))
	want := handoff{
		V: 1, Handoff: h.Handoff, Address: "10.0.0.1:50061", Epoch: p.prefill.Epoch(),
		Layout: small().NewCache(1, 16).Layout(), BlockSize: 16, Tokens: 37,
	}
	if h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	if !regexp.MustCompile(`"epoch":"\d+"`).Match(text) {
		t.Errorf("%s, want numbers of 64 bits as texts", text)
	}
	for st, err := range p.prefill.Card(t.Context()) {
		if err != nil || st.Card.Disagg.Style != engine.StylePull || st.Card.Disagg.Layout != want.Layout {
			t.Errorf("the card says %+v, %v", st.Card.Disagg, err)
		}
		break
	}
}

// What is pulled is what a cold cache has after the same prompt.
func TestPull(t *testing.T) {
	p := newPair(t)
	ids := prompt(1, 37)
	_, h := p.compute(t, ask(ids, 5))
	cache := small().NewCache(3, 16)
	if err := small().Forward(cache, []llama.Span{{Tokens: ids, Blocks: []int32{0, 1, 2}}}); err != nil {
		t.Fatal(err)
	}
	hashes := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, ids, 16, kv.Namespace{}.Seed()))
	hashes = append(hashes, 0) // of the last one, which is not full
	for from := range 4 {
		q := query(h)
		q.FromBlock = from
		blocks, err := pull(t, p.prefill, q)
		if err != nil || len(blocks) != 3-from {
			t.Fatalf("from block %d on: %d blocks, %v", from, len(blocks), err)
		}
		for i, b := range blocks {
			k := from + i
			if b.Number != k || b.Total != 37 || b.Tokens != min(16, 37-16*k) || b.Hash != hashes[k] || b.Checksum != xxh3.Hash(b.Data) {
				t.Errorf("block %d is number %d, with %d of %d tokens, %x", k, b.Number, b.Tokens, b.Total, b.Hash)
			}
			if k < 2 && !bytes.Equal(b.Data, cache.Block(k)) {
				t.Errorf("block %d has other bytes", k)
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*engine.PullRequest)
		want   engine.ErrorKind
	}{
		"unknown":        {func(q *engine.PullRequest) { q.Handoff += "0" }, engine.NotFound},
		"another epoch":  {func(q *engine.PullRequest) { q.Epoch++ }, engine.Stale},
		"another layout": {func(q *engine.PullRequest) { q.Layout = "llama.1/other" }, engine.Stale},
		"a negative one": {func(q *engine.PullRequest) { q.FromBlock = -1 }, engine.NotFound},
	} {
		q := query(h)
		tt.change(&q)
		if blocks, err := pull(t, p.prefill, q); engine.KindOf(err) != tt.want || len(blocks) > 0 {
			t.Errorf("%s: %d blocks, %v, want %s", name, len(blocks), err, tt.want)
		}
	}
	if _, err := pull(t, p.decode, query(h)); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("of an engine that computes nothing for others: %v", err)
	}
	p.prefill.Release(t.Context(), h.Handoff) //nolint:errcheck // never fails
	if _, err := pull(t, p.prefill, query(h)); engine.KindOf(err) != engine.NotFound {
		t.Errorf("after the release: %v", err)
	}
	_, h = p.compute(t, ask(ids, 5))
	p.prefill.Restart()
	q := query(h)
	q.Epoch = 0
	if _, err := pull(t, p.prefill, q); engine.KindOf(err) != engine.NotFound {
		t.Errorf("after a restart: %v", err)
	}
}

// A hand-off may be released, and the engine restarted, while it is pulled.
func TestPullIsCutShort(t *testing.T) {
	for name, end := range map[string]func(*pair, string){
		"released":  func(p *pair, id string) { p.prefill.Release(context.Background(), id) }, //nolint:errcheck // never fails
		"restarted": func(p *pair, _ string) { p.prefill.Restart() },
	} {
		p := newPair(t)
		_, h := p.compute(t, ask(prompt(1, 70), 5))
		n := 0
		var last error
		for _, err := range p.prefill.Pull(t.Context(), query(h)) {
			if err != nil {
				last = err
				break
			}
			if n++; n == 2 {
				end(p, h.Handoff)
			}
		}
		if n != 2 || engine.KindOf(last) != engine.NotFound {
			t.Errorf("%s: %d blocks, %v", name, n, last)
		}
	}
}

func TestPullsAtATime(t *testing.T) {
	p := newPair(t)
	_, h := p.compute(t, ask(prompt(1, 70), 5))
	for range 16 {
		next, stop := iter.Pull2(p.prefill.Pull(t.Context(), query(h)))
		defer stop()
		if _, err, ok := next(); err != nil || !ok {
			t.Fatal(err)
		}
	}
	if _, err := pull(t, p.prefill, query(h)); engine.KindOf(err) != engine.WorkerOverloaded {
		t.Errorf("the 17th: %v", err)
	}
}

func TestHandoffExpires(t *testing.T) {
	p := newPair(t, func(prefill, _ *tiny.Options) { prefill.Args.HandoffTimeoutMS = 1 })
	_, h := p.compute(t, ask(prompt(1, 70), 5))
	eventually(t, "the hand-off does not expire", func() bool { return p.prefill.Kept() == 0 })
	if _, err := pull(t, p.prefill, query(h)); engine.KindOf(err) != engine.NotFound {
		t.Errorf("%v", err)
	}
}

// Whoever comes before the prompt has been computed waits for it, or hears that it
// will not be.
func TestPullComesFirst(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		p := newPair(t, func(prefill, _ *tiny.Options) {
			prefill.Model = slow()
			prefill.Args.MaxNumBatchedTokens = 16
		})
		made, err := p.prefill.Prepare(t.Context(), engine.HandoffQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pull(t, p.prefill, engine.PullRequest{Handoff: made.ID, Layout: slow().NewCache(1, 16).Layout()}); engine.KindOf(err) != engine.NotFound {
			t.Errorf("before the leg: %v", err)
		}
		r := ask(prompt(1, 700), 1)
		r.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: made.Prefill}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, err := range p.prefill.Generate(ctx, r) {
				last = err
			}
			ended <- last
		}()
		eventually(t, "the leg does not begin", func() bool { return running(t, p.prefill) > 0 })
		if leaves {
			time.AfterFunc(5*time.Millisecond, cancel)
		}
		blocks, err := pull(t, p.prefill, engine.PullRequest{Handoff: made.ID, Layout: slow().NewCache(1, 16).Layout()})
		if leaves && (engine.KindOf(err) != engine.NotFound || len(blocks) > 0) {
			t.Errorf("of a leg that was left: %d blocks, %v", len(blocks), err)
		}
		if !leaves && (err != nil || len(blocks) != 44) {
			t.Errorf("%d blocks, %v", len(blocks), err)
		}
		if err := <-ended; leaves != (err != nil) {
			t.Errorf("the leg: %v", err)
		}
		cancel()
	}
}

func running(t *testing.T, e *tiny.Engine) int64 {
	t.Helper()
	for l, err := range e.Load(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		return l.Ranks[0].Running
	}
	return 0
}

// tampered changes what comes of a hand-off. Block is called for each, and returns
// whether the stream goes on.
type tampered struct {
	engine.Puller
	asked []int // from where
	block func(attempt int, b *engine.PulledBlock) error
}

func (p *tampered) Pull(ctx context.Context, q engine.PullRequest) iter.Seq2[engine.PulledBlock, error] {
	p.asked = append(p.asked, q.FromBlock)
	attempt := len(p.asked)
	return func(yield func(engine.PulledBlock, error) bool) {
		for b, err := range p.Puller.Pull(ctx, q) {
			if err == nil {
				err = p.block(attempt, &b)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// Whatever happens to a hand-off, the answer is that of one engine; what has come
// before it happened is not computed again.
func TestDecodeTakesWhatIsRight(t *testing.T) {
	cut := engine.Errorf(engine.Disconnected, "the line is cut")
	at := func(k int, do func(*engine.PulledBlock) error) func(int, *engine.PulledBlock) error {
		return func(_ int, b *engine.PulledBlock) error {
			if b.Number == k {
				return do(b)
			}
			return nil
		}
	}
	for name, tt := range map[string]struct {
		block  func(attempt int, b *engine.PulledBlock) error
		change func(prefill, decode *tiny.Options)
		before func(p *pair, id string)
		cached int    // tokens that the decode engine had not to compute
		asked  []int  // from which blocks on
		why    string // it has not got all; "": it has
	}{
		"all is well": {cached: 64, asked: []int{0}},
		"a flipped bit": {
			block: at(2, func(b *engine.PulledBlock) error { b.Data[77] ^= 4; return nil }), cached: 32, asked: []int{0}, why: `not block 2`,
		},
		"a wrong sum":   {block: at(1, func(b *engine.PulledBlock) error { b.Checksum++; return nil }), cached: 16, asked: []int{0}, why: `not block 1`},
		"another place": {block: at(1, func(b *engine.PulledBlock) error { b.Number++; return nil }), cached: 16, asked: []int{0}, why: `not block 1`},
		"another prompt": {
			block: at(3, func(b *engine.PulledBlock) error { b.Hash++; return nil }), cached: 48, asked: []int{0}, why: `not block 3`,
		},
		"too short": {
			block: at(3, func(b *engine.PulledBlock) error { b.Data = b.Data[1:]; return nil }), cached: 48, asked: []int{0}, why: `not block 3`,
		},
		"cut, and gone on": {
			block:  func(n int, b *engine.PulledBlock) error { return map[bool]error{true: cut}[b.Number == 2*n-1 && n < 3] },
			cached: 64, asked: []int{0, 1, 3},
		},
		"cut for good": {
			block:  func(_ int, b *engine.PulledBlock) error { return map[bool]error{true: cut}[b.Number == 2] },
			cached: 32, asked: []int{0, 2, 2, 2}, why: `the line is cut`,
		},
		"refused": {
			block: at(0, func(*engine.PulledBlock) error { return engine.Errorf(engine.WorkerOverloaded, "not now") }), asked: []int{0}, why: `not now`,
		},
		"released": {before: func(p *pair, id string) { p.prefill.Release(context.Background(), id) }, asked: []int{0}, why: `there is no hand-off`}, //nolint:errcheck // never fails
		"restarted": {
			before: func(p *pair, _ string) { p.prefill.Restart() }, asked: []int{0}, why: `epoch`,
		},
		"other weights": {
			change: func(prefill, _ *tiny.Options) { prefill.Model = slow() }, why: `laid out as`,
		},
		"other blocks":   {change: func(_, decode *tiny.Options) { decode.Args.BlockSize = 8 }, why: `8 each`},
		"nobody to dial": {change: func(_, decode *tiny.Options) { decode.Pull.Dial = nil }, why: `cannot reach others`},
		"nothing kept":   {change: func(_, decode *tiny.Options) { decode.Args.EnablePrefixCaching = false }, why: `enable_prefix_caching`},
		"hardly room": { // for the prompt, of 5 blocks, and the answer
			change: func(_, decode *tiny.Options) { decode.Args.NumGPUBlocks = 6 }, cached: 64, asked: []int{0},
		},
		"nobody there": {change: func(_, decode *tiny.Options) {
			decode.Pull.Dial = func(context.Context, string) (engine.Puller, func(), error) { return nil, nil, errors.New("nobody") }
		}, why: `nobody`},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(prefill, decode *tiny.Options)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			var failed []string
			changes = append(changes, func(_, decode *tiny.Options) {
				decode.Pull.Failed = func(address string, err error) { failed = append(failed, address+": "+err.Error()) }
			})
			p := newPair(t, changes...)
			wire := &tampered{block: tt.block}
			if wire.block == nil {
				wire.block = func(int, *engine.PulledBlock) error { return nil }
			}
			p.between = func(from engine.Puller) engine.Puller { wire.Puller = from; return wire }
			r := ask(prompt(1, 77), 12)
			all := 20
			r.Logprobs = &all
			want, _ := likelihoods(t, open(t, small()), r)

			text, h := p.compute(t, r)
			if tt.before != nil {
				tt.before(p, h.Handoff)
			}
			got, last := likelihoods(t, p.decode, decodeLeg(r, text))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
			if *last.Usage.Cached != tt.cached || fmt.Sprint(wire.asked) != fmt.Sprint(tt.asked) {
				t.Errorf("%d tokens had not to be computed, want %d; asked from %v on, want %v", *last.Usage.Cached, tt.cached, wire.asked, tt.asked)
			}
			stats := mock.PullStats{Done: 1}
			if tt.why != "" {
				stats = mock.PullStats{Failed: 1}
			}
			if got := p.decode.CacheStats()[0].Pulls; got != stats {
				t.Errorf("it counts %+v, want %+v", got, stats)
			}
			if told := strings.Join(failed, "; "); (told == "") != (tt.why == "") || !strings.Contains(told, tt.why) || len(failed) > 1 {
				t.Errorf("it tells %q, want %q", told, tt.why)
			}
		})
	}
}

// A cache that is full of what may not go takes a part. No pull has failed for that, even
// if the request finds no room either.
func TestPullFindsNoRoom(t *testing.T) {
	p := newPair(t, func(_, decode *tiny.Options) {
		decode.Args.NumGPUBlocks, decode.Args.AllowHardPins, decode.Args.PinBudgetG1 = 6, true, 1
		decode.Pull.Failed = func(address string, err error) { t.Errorf("%s: %v", address, err) }
	})
	others := prompt(2, 48)
	generate(t, p.decode, ask(others, 1))
	pinned, err := p.decode.Pin(t.Context(), engine.PinRequest{TokenIDs: others, TTL: time.Hour, Hard: true})
	if err != nil || pinned.Pinned != 3 {
		t.Fatalf("%+v, %v", pinned, err)
	}
	r := ask(prompt(1, 77), 12)
	text, _ := p.compute(t, r)
	if refused := refusal(t, p.decode, decodeLeg(r, text)); refused.Kind != engine.WorkerOverloaded {
		t.Error(refused)
	}
	stats := p.decode.CacheStats()[0]
	if stats.Pulls != (mock.PullStats{NoRoom: 1}) || stats.Pulled != 3 {
		t.Errorf("it counts %+v and %d blocks", stats.Pulls, stats.Pulled)
	}
}

// likelihoods returns an answer with how likely its tokens were.
func likelihoods(t *testing.T, e engine.Engine, r *engine.Request) (all []engine.Logprob, last engine.Delta) {
	t.Helper()
	for d, err := range e.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		all, last = append(all, d.Logprobs...), d
	}
	return all, last
}

func TestHandoffsThatAreNone(t *testing.T) {
	p := newPair(t)
	for _, text := range []string{``, `{}`, `7`, `{"v":2,"handoff":"x","epoch":"1"}`, `{"v":1,"handoff":"x"}`, `{"v":1,"handoff":"x","epoch":1}`} {
		for e, phase := range map[*tiny.Engine]engine.Phase{p.prefill: engine.PhasePrefill, p.decode: engine.PhaseDecode} {
			if phase == engine.PhasePrefill && strings.Contains(text, `"v":1`) && !strings.Contains(text, `:1}`) {
				continue // all that this leg looks at
			}
			r := ask(prompt(1, 20), 1)
			r.Disagg = engine.Disagg{Phase: phase, Handoff: json.RawMessage(text)}
			for _, err := range e.Generate(t.Context(), r) {
				if engine.KindOf(err) != engine.InvalidArgument {
					t.Errorf("%s leg with %q: %v", phase, text, err)
				}
			}
		}
	}
}

// Over sockets, with blocks that are longer than a piece may be.
func TestPullOverSockets(t *testing.T) {
	wide := llama.Random(llama.Config{
		Vocab: 100, Width: 128, Layers: 2, Heads: 2, KVHeads: 2, HeadSize: 64, Hidden: 16, Context: 4096, RopeBase: 10000, NormEps: 1e-5, Tied: true,
	}, 1)
	const size = 600 // positions of a block, of 1.2 MB
	var address string
	p := newPair(t, func(prefill, decode *tiny.Options) {
		for _, o := range []*tiny.Options{prefill, decode} {
			o.Model, o.Args = wide, func(a mock.Args) mock.Args { a.BlockSize, a.NumGPUBlocks = size, 6; return a }(o.Args)
		}
		prefill.Pull.Address = func() string { return address }
		decode.Pull.Dial = func(_ context.Context, address string) (engine.Puller, func(), error) {
			c, err := remote.New(remote.Config{URL: "grpc://" + address})
			if err != nil {
				return nil, nil, err
			}
			return c, func() { c.Close() }, nil
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	server := remote.NewServer(remote.ServerConfig{Engine: p.prefill})
	go server.Serve(l) //nolint:errcheck // until it is closed
	defer server.Close()

	ids := prompt(1, 2*size+100)
	for i := range ids {
		ids[i] %= 100
	}
	r := ask(ids, 4)
	whole := start(t, tiny.Options{Model: wide})
	want, _ := generate(t, whole, r)
	text, _ := p.compute(t, r)
	got, last := generate(t, p.decode, decodeLeg(r, text))
	if !reflect.DeepEqual(got, want) || *last.Usage.Cached != 2*size {
		t.Errorf("%v with %d tokens from the other engine, want %v with %d", got, *last.Usage.Cached, want, 2*size)
	}
}
