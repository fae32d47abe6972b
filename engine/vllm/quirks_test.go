package vllm_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

// Each test is of one line of the table of quirks, or of a part of it, which is what
// the number says.

// Cached tokens are unknown until a server has told of some, which is not zero; then
// one that leaves a zero out has meant it.
func TestQuirk07CachedTokensAreUnknownUntilTold(t *testing.T) {
	for _, tells := range []bool{false, true} {
		s := serve(t, fake.Config{PromptTokensDetails: tells, Mock: mock.Config{Args: args()}}, func(c *vllm.Config) { c.CachedTokens = false })
		s.ready(t)
		r := long()
		var cached []string
		for range 3 {
			_, last, err := s.run(t, r)
			if err != nil {
				t.Fatal(err)
			}
			if c := last.Usage.Cached; c == nil {
				cached = append(cached, "unknown")
			} else {
				cached = append(cached, fmt.Sprint(*c))
			}
			s.ready(t) // a look, by which the card may change
		}
		want := []string{"unknown", "unknown", "unknown"}
		if tells {
			want = []string{"unknown", "48", "48"}
		}
		if !slices.Equal(cached, want) {
			t.Errorf("told %v: %v, want %v", tells, cached, want)
		}
	}
}

// A build that leaves a zero out has meant it, once it has told of another number.
func TestQuirk07ZeroIsLeftOut(t *testing.T) {
	s := serve(t, fake.Config{PromptTokensDetails: true, NoZeroCached: true, Mock: mock.Config{Args: args()}}, func(c *vllm.Config) { c.CachedTokens = false })
	s.ready(t)
	other := long()
	other.TokenIDs = slices.Repeat([]uint32{9}, 40)
	for i, tt := range []struct {
		r    *engine.Request
		want int // -1: unknown
	}{{long(), -1}, {long(), -1}, {long(), 48}, {other, 0}} {
		_, last, err := s.run(t, tt.r)
		if err != nil {
			t.Fatal(err)
		}
		got := -1
		if c := last.Usage.Cached; c != nil {
			got = *c
		}
		if got != tt.want {
			t.Errorf("request %d: %d cached, want %d", i, got, tt.want)
		}
		s.ready(t)
	}
}

// A prompt that is cached as a whole still costs its last block.
func TestQuirk30LastBlockIsComputedAgain(t *testing.T) {
	s := serve(t, fake.Config{PromptTokensDetails: true, Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	r := long()
	r.TokenIDs = r.TokenIDs[:48] // three blocks, and nothing else
	for _, want := range []int{0, 32} {
		_, last, err := s.run(t, r)
		if err != nil || last.Usage.Cached == nil || *last.Usage.Cached != want {
			t.Errorf("usage %+v, %v; want %d cached", last.Usage, err, want)
		}
	}
}

// Every request says how many tokens it wants: the server's own number is 16.
func TestQuirk13LimitIsAlwaysSent(t *testing.T) {
	for _, generate := range []bool{true, false} {
		s := serve(t, fake.Config{NoGenerate: !generate, Mock: mock.Config{Args: args()}}, nil)
		s.ready(t)
		r := long()
		r.Stop = engine.Stop{MaxTokens: 40}
		ids, last, err := s.run(t, r)
		if err != nil || len(ids) != 40 || last.Finish != engine.FinishLength {
			t.Errorf("%d ids, %+v, %v", len(ids), last, err)
		}
	}
}

// A server of which nothing is known gets no priority; one that was declared to take
// them, and refuses, gets no more, and the request is none the worse.
func TestQuirk28PriorityOnlyWhereItIsTaken(t *testing.T) {
	var log logged
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(c *vllm.Config) { c.Priority, c.Log = true, log.logger() })
	if !s.ready(t).Features.Has(engine.FeaturePriority) {
		t.Fatal("the operator is not believed")
	}
	p := int32(3)
	r := ask()
	r.Priority = &p
	for range 3 {
		if _, _, err := s.run(t, r); err != nil {
			t.Errorf("a request with a priority: %v", err)
		}
		s.ready(t)
	}
	sent := 0
	for _, body := range s.server.Bodies() {
		sent += bytes.Count(body, []byte(`"priority"`))
	}
	if sent != 1 || s.ready(t).Features.Has(engine.FeaturePriority) || log.count("refuses") != 1 {
		t.Errorf("sent %d times, log %s", sent, log.String())
	}
	// Another life may take them again.
	first := s.await(t, engine.Ready).Epoch
	s.server.Restart()
	for st := range s.Card(t.Context()) {
		if st.State == engine.Ready && st.Epoch != first {
			if !st.Card.Features.Has(engine.FeaturePriority) {
				t.Error("the next life is blamed for the one before")
			}
			break
		}
	}
	unknown := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(c *vllm.Config) { c.Log = log.logger() })
	unknown.ready(t)
	if log.count("vLLM gets no priorities") != 1 {
		t.Errorf("log %s", log.String())
	}
}

// A budget for thoughts that the server refuses is kept without the server, not
// dropped.
func TestRefusedThinkingBudget(t *testing.T) {
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(c *vllm.Config) { c.ThinkingBudget = true })
	s.ready(t)
	budget := 5
	r := ask()
	r.ThinkingBudget = &budget
	if _, _, err := s.run(t, r); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("%v, want unsupported", err)
	}
	if s.ready(t).Features.Has(engine.FeatureThinkingBudget) {
		t.Error("the card promises what was refused")
	}
	if _, _, err := s.run(t, r); err != nil {
		t.Errorf("once the card says that there is no budget: %v", err)
	}
}

// Series of adapters are never deleted: what is served is what the list of models
// says.
func TestQuirk29StaleAdapterSeries(t *testing.T) {
	page := `# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="gone,older",waiting_lora_adapters=""} 1.7e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 1.8e9
`
	s := attach(t, fake.Config{LoRA: true, Adapters: []string{"sql"}}, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, page)
	}})
	if c := s.ready(t); !slices.Equal(c.Adapters, []string{"sql"}) || !c.Features.Has(engine.FeatureLoRA) {
		t.Errorf("adapters %v", c.Adapters)
	}
}

// What the engine says of ids that cannot come stays a number.
func TestQuirk33UnlikelyIsANumber(t *testing.T) {
	for _, value := range []string{"-9999.0", "null", "-1e308"} {
		text := fmt.Sprintf(`data: {"choices":[{"index":0,"token_ids":[5],"finish_reason":"length","logprobs":{"content":[{"token":"token_id:5","logprob":%s,"top_logprobs":[]}]}}]}`, value) + "\n\n" + done
		s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/inference/v1/generate": says(text)})
		s.ready(t)
		r, zero := ask(), 0
		r.Logprobs = &zero
		for d, err := range s.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			for _, lp := range d.Logprobs {
				if lp.Logprob != -9999 {
					t.Errorf("%s is told as %v", value, lp.Logprob)
				}
			}
		}
	}
}

// Log probabilities of a prompt are refused in streams: the answer comes in one piece,
// on both routes.
func TestQuirk34PromptLogprobsComeInOnePiece(t *testing.T) {
	for _, generate := range []bool{true, false} {
		s := serve(t, fake.Config{NoGenerate: !generate, Mock: mock.Config{Args: args()}}, nil)
		s.ready(t)
		r, one := ask(), 1
		r.PromptLogprobs = &one
		told := 0
		for d, err := range s.Generate(t.Context(), r) {
			if err != nil {
				t.Fatal(err)
			}
			if d.PromptLogprobs != nil {
				told++
			}
		}
		if told != 1 || !bytes.Contains(s.server.Bodies()[0], []byte(`"stream":false`)) {
			t.Errorf("told %d times after %s", told, s.server.Bodies()[0])
		}
	}
}

// The id of an attempt is the request's name at the server, and there is no other:
// two attempts never share one.
func TestQuirk36IDsAreThoseOfAttempts(t *testing.T) {
	s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	for _, id := range []string{"u-1", "u-2"} {
		r := ask()
		r.ID = id
		if _, _, err := s.run(t, r); err != nil {
			t.Fatal(err)
		}
	}
	for i, body := range s.server.Bodies() {
		if want := fmt.Sprintf(`"request_id":"u-%d"`, i+1); !bytes.Contains(body, []byte(want)) || bytes.Count(body, []byte("request_id")) != 1 {
			t.Errorf("%s, want %s", body, want)
		}
	}
}

// A health check that answers late, as one that queues behind requests would, costs a
// server nothing; the one that is asked does not queue.
func TestQuirk23HealthIsTheCheapOne(t *testing.T) {
	var asked atomic.Value
	asked.Store("")
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{
		"/health":          func(http.ResponseWriter, *http.Request) { asked.Store(asked.Load().(string) + "h") },
		"/health_generate": func(http.ResponseWriter, *http.Request) { asked.Store(asked.Load().(string) + "g") },
	})
	s.ready(t)
	if a := asked.Load().(string); !strings.HasPrefix(a, "h") || strings.Contains(a, "g") {
		t.Errorf("asked %q", a)
	}
}

// A number that only grows and has become less is that of another process, where
// nothing else tells.
func TestFallingCountersAreAnotherLife(t *testing.T) {
	var count atomic.Int64
	s := attach(t, fake.Config{}, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{engine=\"0\"} %d\n", count.Load())
	}})
	count.Store(100)
	first := s.await(t, engine.Ready)
	count.Store(200)
	if st := s.await(t, engine.Ready); st.Epoch != first.Epoch {
		t.Error("a number that grows is another life")
	}
	count.Store(3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st := range s.Card(ctx) {
		if st.Epoch != first.Epoch {
			return
		}
	}
	t.Error("a number that fell is the same life")
}

// Ranks are those of the server, wherever they begin.
func TestRanks(t *testing.T) {
	two := args()
	two.DPSize = 2
	s := serve(t, fake.Config{Mock: mock.Config{Args: two}}, nil)
	s.ready(t)
	for rank, kind := range map[uint32]engine.ErrorKind{0: "", 1: "", 2: engine.InvalidArgument} {
		r := ask()
		r.DPRank = &rank
		if _, _, err := s.run(t, r); kind == "" && err != nil || kind != "" && engine.KindOf(err) != kind {
			t.Errorf("rank %d: %v, want %q", rank, err, kind)
		}
	}
	if n := len(s.server.Bodies()); n != 2 {
		t.Errorf("%d requests came", n)
	}
}

// A node that has some of the ranks of a deployment numbers them as all of them do,
// and is asked for them so; behind an address for each rank no rank is named.
func TestRanksOfANode(t *testing.T) {
	for _, tt := range []struct {
		ranks string
		start uint32
		size  uint32
		want  string // the header for the last rank
	}{
		{"45", 4, 2, "5"},
		{"3", 3, 1, ""},
	} {
		var asked atomic.Value
		s := attach(t, fake.Config{}, map[string]http.HandlerFunc{
			"/metrics": func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintln(w, "# TYPE vllm:num_requests_running gauge")
				for _, rank := range tt.ranks {
					fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%c\"} 0\n", rank)
				}
			},
			"/inference/v1/generate": func(w http.ResponseWriter, r *http.Request) {
				asked.Store(r.Header.Get("X-Data-Parallel-Rank"))
				says(chunk("length", 1)+done)(w, r)
			},
		})
		if c := s.ready(t); c.DPStart != tt.start || c.Ranks() != tt.size {
			t.Errorf("ranks %s: [%d, %d)", tt.ranks, c.DPStart, c.DPStart+c.Ranks())
		}
		r, rank := ask(), tt.start+tt.size-1
		r.DPRank = &rank
		if _, _, err := s.run(t, r); err != nil || asked.Load() != tt.want {
			t.Errorf("ranks %s: asked for %q, %v; want %q", tt.ranks, asked.Load(), err, tt.want)
		}
		if l := firstLoad(t, s); len(l.Ranks) != int(tt.size) || l.Ranks[0].Rank != tt.start || l.Ranks[0].Running != 0 {
			t.Errorf("ranks %s: load %+v", tt.ranks, l)
		}
	}
}

func firstLoad(t *testing.T, s *served) engine.Load {
	t.Helper()
	for l, err := range s.Load(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return engine.Load{}
}

// More urgent is a smaller number for vLLM, and nothing is sent to a server that would
// refuse it.
func TestPriority(t *testing.T) {
	p := int32(-5)
	for _, enabled := range []bool{false, true} {
		s := serve(t, fake.Config{Dev: true, Priority: enabled, Mock: mock.Config{Args: args()}}, nil)
		s.ready(t)
		r := ask()
		r.Priority = &p
		if _, _, err := s.run(t, r); err != nil {
			t.Errorf("priority enabled %v: %v", enabled, err)
		}
		if sent := strings.Contains(string(s.server.Bodies()[0]), `"priority":5`); sent != enabled {
			t.Errorf("priority enabled %v, sent %v", enabled, sent)
		}
	}
}
