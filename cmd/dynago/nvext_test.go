//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/internal/demo"
)

// The extension object crossed with every API that carries it, streaming and unary,
// through the program: a row is one thing that it promises. Workers are mock engines
// in this process, so that a row sees what has really reached them.

// row is one promise.
type row struct {
	field string // of nvext, or header, with a word for the case
	// nvext is the member, and more are other members of the body, without braces; in
	// both, words in braces such as {worker} stand for what the fleet is.
	nvext, more string
	header      []string // names and values, one after another
	prompt      string   // otherwise a question of the row's own
	apis        []string // that carry it; nil: all of them
	modes       []bool   // streaming or not; nil: both
	flags       []string // of the server; those of one kind share one
	env         []string
	pair        bool // prompts are computed by workers of their own
	// before, if not nil, runs ahead of the request.
	before func(t *testing.T, c *crossing)
	status int    // 0: 200
	says   string // regular expression that the body matches
	check  func(t *testing.T, c *crossing)
}

// carriers are the APIs, by the ends of their paths.
var carriers = []string{"chat", "completions", "responses", "messages"}

var paths = map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

// crossing is one row on one API in one mode.
type crossing struct {
	*stage
	row    *row
	api    string
	stream bool
	reply
	sent    []sight // what workers were asked meanwhile
	dropped float64 // hints, before the request
	after   func()  // what ends that which has been begun before; nil: nothing has
}

// sight is one request as a worker has got it.
type sight struct {
	worker int // the number among those of the stage
	*engine.Request
}

// only returns the one request that workers have got.
func (c *crossing) only(t *testing.T) sight {
	t.Helper()
	if len(c.sent) != 1 {
		t.Fatalf("workers were asked %d times", len(c.sent))
	}
	return c.sent[0]
}

// body is the request of a crossing.
func (c *crossing) body() string {
	prompt := cmp.Or(c.row.prompt, fmt.Sprintf("Of the promise %s, on %s, stream %t.", c.row.field, c.api, c.stream))
	quoted, _ := json.Marshal(c.fill(prompt))
	members := []string{`"model":"dynago/demo"`, fmt.Sprintf(`"stream":%t`, c.stream)}
	limit := map[string]string{"responses": "max_output_tokens"}[c.api]
	if limit = cmp.Or(limit, "max_tokens"); !strings.Contains(c.row.more, `"`+limit+`"`) {
		members = append(members, fmt.Sprintf(`"%s":32`, limit))
	}
	if c.stream && (c.api == "chat" || c.api == "completions") {
		members = append(members, `"stream_options":{"include_usage":true}`)
	}
	switch {
	case strings.Contains(c.row.more, `"messages":`), strings.Contains(c.row.more, `"input":`), strings.Contains(c.row.more, `"prompt":`):
	case c.api == "completions":
		members = append(members, `"prompt":`+string(quoted))
	case c.api == "responses":
		members = append(members, `"input":`+string(quoted))
	default:
		members = append(members, `"messages":[{"role":"user","content":`+string(quoted)+`}]`)
	}
	if c.row.nvext != "" {
		members = append(members, `"nvext":`+c.fill(c.row.nvext))
	}
	if c.row.more != "" {
		members = append(members, c.fill(c.row.more))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// fill puts the fleet into a text, as the ids of its workers. {here} stands for this
// row on this API and in this mode, and {mark} is a number made of that, so that texts
// that begin with it have no blocks in common.
func (c *crossing) fill(text string) string {
	third := "{ranked}"
	if c.row.pair {
		third = "{prefill}"
	}
	here := fmt.Sprintf("%s-%s-%t", strings.ReplaceAll(c.row.field, " ", "-"), c.api, c.stream)
	mark := fnv.New64a()
	mark.Write([]byte(here))
	return strings.NewReplacer(
		"{worker}", fmt.Sprint(c.ids[0]), "{other}", fmt.Sprint(c.ids[1]), third, fmt.Sprint(c.ids[2]), "{prefill2}", fmt.Sprint(c.ids[len(c.ids)-1]),
		"{here}", here, "{mark}", strconv.FormatUint(mark.Sum64(), 36),
	).Replace(text)
}

// run sends the request and gathers what came of it.
func (c *crossing) run(t *testing.T) {
	t.Helper()
	c.seen.take()
	var header []string
	for _, h := range c.row.header {
		header = append(header, c.fill(h))
	}
	c.reply = c.send(paths[c.api], c.body(), header...)
	c.sent = c.seen.take()
}

var (
	promptTokens = regexp.MustCompile(`"(?:prompt_tokens|input_tokens)": ?(\d+)`)
	cachedTokens = regexp.MustCompile(`"(?:cached_tokens|cache_read_input_tokens)": ?(\d+)`)
)

// usage returns how many tokens the prompt had, and how many of them were cached.
func (c *crossing) usage(t *testing.T) (prompt, cached int) {
	t.Helper()
	last := func(re *regexp.Regexp) int {
		all := re.FindAllStringSubmatch(c.reply.body, -1)
		if len(all) == 0 {
			return 0
		}
		n, err := strconv.Atoi(all[len(all)-1][1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	prompt, cached = last(promptTokens), last(cachedTokens)
	if c.api == "messages" { // which counts what is cached by itself
		prompt += cached
	}
	return prompt, cached
}

// stage is a program with its workers.
type stage struct {
	*program
	seen *sights
	ids  []uint64 // of the workers
}

// Workers of a stage: two of one rank, and one of two; or, in pairs, two that answer
// and two that compute prompts of one rank and of two.
const (
	stageWorkers = 3
	pairWorkers  = 4
)

// sights are what workers were asked, in order.
type sights struct {
	mu   sync.Mutex
	list []sight
}

func (s *sights) add(worker int, r *engine.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, sight{worker, r})
}

// take returns them and begins anew.
func (s *sights) take() []sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// witness is an engine that tells what it is asked. Its card has taints.
type witness struct {
	*mock.Engine
	number int
	taints []string
	seen   *sights
}

func (w *witness) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	w.seen.add(w.number, r)
	return w.Engine.Generate(ctx, r)
}

func (w *witness) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		for s, err := range w.Engine.Card(ctx) {
			if s.Card != nil {
				card := *s.Card
				card.Taints, s.Card = w.taints, &card
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// stageScript is what the workers say. Rows may add rules to it.
const stageScript = `
rules:
  - name: it thinks
    when: {user: ponder}
    emit: "<think>\nOne two three four five six seven eight nine ten eleven twelve.\n</think>\n\nThought about it."
  - name: it closes a thought that the prompt has opened
    when: {user: half a thought}
    emit: "A thought.\n</think>\n\nAnd done."
  - name: it does not end
    when: {user: hold the line}
    pace: {ttft: 1h}
    emit: never
  - name: it calls
    when: {user: weather, offers: get_weather}
    emit: |-
      <tool_call>
      {"name": "get_weather", "arguments": {"city": "Rome"}}
      </tool_call>
default:
  emit: "The Seine does, and the Bièvre did."
`

// newStage starts a program with these settings, and the workers of its demo model.
func newStage(t *testing.T, env, flags []string, pair bool) *stage {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	script, err := mock.LoadScript(strings.NewReader(stageScript))
	if err != nil {
		t.Fatal(err)
	}
	workers := stageWorkers
	if pair {
		workers = pairWorkers
	}
	s := &stage{seen: new(sights), ids: make([]uint64, workers)}
	var urls []string
	args := []string{"--model-path", demoFolder(t), "--log-level", "debug"}
	for i := range workers {
		config := mockOf(t, demo.Name, false)
		config.Script, config.VocabSize = script, model.VocabularySize
		if pair {
			config.Args.WorkerType = []string{"decode", "decode", "prefill", "prefill"}[i]
		}
		if i == workers-1 {
			config.Args.DPSize = 2
		}
		e, err := mock.New(config)
		if err != nil {
			t.Fatal(err)
		}
		w := &witness{Engine: e, number: i, taints: []string{"all", fmt.Sprintf("w%d", i)}, seen: s.seen}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := remote.NewServer(remote.ServerConfig{Engine: w})
		go server.Serve(l) //nolint:errcheck // it ends when the test does
		t.Cleanup(func() { server.Close(); e.Close() })
		urls = append(urls, "grpc://"+l.Addr().String())
		args = append(args, "--engine", urls[i])
	}
	s.program = serveIn(t, env, append(args, flags...)...)
	until(t, "all workers are ready", func() bool {
		ready := 0
		for _, w := range s.staff().Workers {
			if w.State == "ready" {
				ready++
			}
			if i := slices.IndexFunc(urls, func(url string) bool { return strings.Contains(w.Name, strings.TrimPrefix(url, "grpc://")) }); i >= 0 {
				s.ids[i] = w.ID
			}
		}
		return ready == workers
	})
	return s
}

// promises are all rows.
func promises() []row {
	return slices.Concat(surfaceRows, routingRows, identityRows, retentionRows, answerRows)
}

// Every promise holds on every API that makes it, in both modes.
func TestNvext(t *testing.T) {
	t.Parallel()
	type kind struct {
		env, flags string
		pair       bool
	}
	var kinds []kind
	of := map[kind][]row{}
	for _, r := range promises() {
		k := kind{strings.Join(r.env, "\n"), strings.Join(r.flags, "\n"), r.pair}
		if of[k] == nil {
			kinds = append(kinds, k)
		}
		of[k] = append(of[k], r)
	}
	for i, k := range kinds {
		t.Run(fmt.Sprintf("server %d", i), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, of[k][0].env, of[k][0].flags, k.pair)
			server := s.program.t
			defer func() { s.program.t = server }()
			for _, r := range of[k] {
				t.Run(r.field, func(t *testing.T) { r.cross(t, s) })
			}
		})
	}
}

// cross runs a row on all its APIs and in all its modes.
func (r *row) cross(t *testing.T, s *stage) {
	apis, modes := r.apis, r.modes
	if apis == nil {
		apis = carriers
	}
	if modes == nil {
		modes = []bool{false, true}
	}
	for _, api := range apis {
		for _, stream := range modes {
			t.Run(fmt.Sprintf("%s stream=%t", api, stream), func(t *testing.T) {
				c := &crossing{stage: s, row: r, api: api, stream: stream}
				s.t = t // what is asked on the way is asked for this crossing
				if r.before != nil {
					r.before(t, c)
				}
				if c.after != nil {
					defer c.after()
				}
				c.run(t)
				if want := cmp.Or(r.status, 200); c.status != want {
					t.Fatalf("status %d, want %d: %s\n%s", c.status, want, c.reply.body, c.body())
				}
				if r.says != "" && !regexp.MustCompile(c.fill(r.says)).MatchString(c.reply.body) {
					t.Errorf("the answer has no %s:\n%s", r.says, c.reply.body)
				}
				if r.check != nil {
					r.check(t, c)
				}
			})
		}
	}
}
