package vllm

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// life is one life of the server's process, as it was seen last. It is replaced,
// never changed.
type life struct {
	status  engine.Status
	dialect dialect
	build   *build // nil until the server was asked what it is
}

// observation is what looks remember. It belongs to who holds Engine.look.
type observation struct {
	build   *build  // nil until the server was asked what it is
	started float64 // of its process
	gone    bool    // it could not be reached since it was seen last
	silence engine.Silence
	page    readings // the last metrics of this life that could be read
	expired float64  // prefills of this life that nobody has read in time
}

// build is what stays as it is while the process lives.
type build struct {
	version string
	paths   map[string]bool // routes, as far as they matter here
	fields  map[string]bool // of completions; nil: not told
	dialect dialect
	server  serverInfo
	sources []rankSource // of KV events, by rank; nil: not told

	learning  bool          // somebody listens for the size of blocks
	blockSize atomic.Uint32 // that was heard; 0: none yet

	refused sync.Map // features that the server has refused although it seemed to have them
}

func (b *build) refuses(f engine.Feature) bool {
	_, refused := b.refused.Load(f)
	return refused
}

// serverInfo is the part that matters of /server_info, which only servers in
// development mode have.
type serverInfo struct {
	Config struct {
		Model struct {
			MaxModelLen uint32 `json:"max_model_len"`
			MaxLogprobs *int   `json:"max_logprobs"`
		} `json:"model_config"`
		Scheduler struct {
			Policy           string `json:"policy"`
			MaxSeqs          uint32 `json:"max_num_seqs"`
			MaxBatchedTokens uint64 `json:"max_num_batched_tokens"`
		} `json:"scheduler_config"`
		Parallel struct {
			Size uint32 `json:"data_parallel_size"`
		} `json:"parallel_config"`
		Guided struct {
			ReasoningParser string `json:"reasoning_parser"`
		} `json:"structured_outputs_config"`
		Reasoning struct {
			Enabled bool `json:"enabled"`
		} `json:"reasoning_config"`
		LoRA     jsontext.Value `json:"lora_config"`
		Transfer *connector     `json:"kv_transfer_config"`
		Events   publisher      `json:"kv_events_config"`
	} `json:"vllm_config"`
}

// served is one entry of /v1/models.
type served struct {
	ID          string  `json:"id"`
	Parent      *string `json:"parent"`
	MaxModelLen *uint32 `json:"max_model_len"`
}

// observe looks at the server and returns what it is now. It never fails: a server
// that cannot be asked is in a state, too.
func (e *Engine) observe(ctx context.Context) (engine.Status, error) {
	e.look.Lock()
	defer e.look.Unlock()
	old := e.now.Load()
	next := e.ask(ctx, old)
	if errors.Is(ctx.Err(), context.Canceled) {
		return old.status, nil // the look was broken off, which says nothing
	}
	if next != *old {
		e.now.Store(&next)
		if err := e.feed.Become(next.status); err != nil && e.config.Events.Log != nil {
			e.config.Events.Log.Warn("KV events cannot be read", "error", err)
		}
	}
	return next.status, nil
}

// ask returns the life that the server leads.
func (e *Engine) ask(ctx context.Context, old *life) life {
	o := &e.seen
	next := *old
	state := func(s engine.State, reason string) life {
		next.status.State, next.status.Reason = s, reason
		return next
	}
	_, err := e.client.Get(ctx, "/health")
	var models []served
	if err == nil {
		models, err = e.models(ctx)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return next
	case err != nil:
		switch kind := engine.KindOf(err); {
		case o.build == nil:
			return state(engine.Loading, "not ready yet: "+err.Error())
		case kind == engine.Unavailable || kind == engine.Internal:
			// A dead engine core answers 503 and never recovers.
			o.gone = true
			return state(engine.Failed, "not healthy: "+err.Error())
		}
		become, why := o.silence.Grow(err)
		if become == engine.Ready {
			return next
		}
		o.gone = o.gone || become == engine.Dead
		return state(become, why)
	}
	o.silence = 0
	model := e.choose(models)
	if model == nil {
		return state(engine.Loading, "it does not serve "+strconv.Quote(e.config.Model))
	}
	var page readings
	if text, err := e.client.Get(ctx, "/metrics"); err == nil {
		page = readMetrics(text)
	}
	started := page.started()
	// Where the process does not say when it began, one that was gone is another.
	another := o.gone || page.fellBelow(o.page)
	if started != 0 && o.started != 0 {
		another = started != o.started
	}
	if o.build == nil || another {
		b, err := e.inspect(ctx)
		if err != nil {
			return state(engine.Loading, "it does not tell what it is: "+err.Error())
		}
		if o.build != nil {
			if !reflect.DeepEqual(e.eventsOf(o.build), e.eventsOf(b)) {
				e.feed.Close() // it publishes somewhere else now
			}
			next.status.Epoch = max(old.status.Epoch+1, uint64(time.Now().UnixNano()))
		}
		o.build, o.started, o.page, o.expired = b, started, nil, 0
		e.tellOfPriority(b)
	} else if started != 0 {
		o.started = started
	}
	o.gone = false
	if page == nil {
		page = o.page // the caches are as they were
	}
	o.page = page
	next.dialect, next.build = o.build.dialect, o.build
	e.warnOfExpired(o, page)
	card := e.card(o.build, model, models, page)
	e.learn(o.build, card)
	if old.status.Card == nil || !reflect.DeepEqual(card, old.status.Card) {
		next.status.Card = card
		next.status.Revision++
	}
	switch {
	case !next.dialect.generate && !next.dialect.tokenMode:
		return state(engine.Failed, "vLLM "+o.build.version+" gives no token ids; 0.10.2 is the first that does")
	}
	rest, err := e.rests(ctx, o.build, page)
	switch {
	case errors.Is(ctx.Err(), context.Canceled), err != nil:
		return next
	case rest != "":
		return state(engine.Draining, "the engine "+rest)
	}
	return state(engine.Ready, "")
}

// rests says how a server rests that takes requests and lets them hang, or "".
func (e *Engine) rests(ctx context.Context, b *build, page readings) (string, error) {
	if asleep, told := page.asleep(); told && asleep {
		return "sleeps", nil
	} else if !told && b.paths["/is_sleeping"] {
		if so, err := e.isSo(ctx, "/is_sleeping", "is_sleeping"); so || err != nil {
			return "sleeps", err
		}
	}
	if b.paths["/is_paused"] {
		if so, err := e.isSo(ctx, "/is_paused", "is_paused"); so || err != nil {
			return "is paused", err
		}
	}
	return "", nil
}

// isSo asks a route that answers with one truth.
func (e *Engine) isSo(ctx context.Context, path, member string) (bool, error) {
	text, err := e.client.Get(ctx, path)
	if err != nil {
		if broken(err) {
			return false, err
		}
		return false, nil
	}
	var told map[string]jsontext.Value
	return json.Unmarshal(text, &told, lenient) == nil && string(told[member]) == "true", nil
}

// tellOfPriority tells people, once in a life, why no request has a priority.
func (e *Engine) tellOfPriority(b *build) {
	if !e.config.Priority && b.server.Config.Scheduler.Policy == "" {
		e.config.Log.Info("vLLM gets no priorities: it does not tell whether it was started with --scheduling-policy priority", "url", e.client.URL())
	}
}

// warnOfExpired tells people of blocks that were kept for a decode server which never
// came: they have filled the cache for minutes.
func (e *Engine) warnOfExpired(o *observation, page readings) {
	expired := page.sum("vllm:nixl_num_kv_expired_reqs_total", "vllm:nixl_num_kv_expired_reqs")
	if expired > o.expired {
		e.config.Log.Warn("vLLM has let go of prefills that nobody has read", "url", e.client.URL(), "since_start", expired)
	}
	o.expired = max(o.expired, expired)
}

func (e *Engine) models(ctx context.Context) ([]served, error) {
	text, err := e.client.Get(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	var list struct {
		Data []served `json:"data"`
	}
	if err := json.Unmarshal(text, &list, lenient); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// choose returns the model that is wanted, or nil. Adapters are no models.
func (e *Engine) choose(models []served) *served {
	for i := range models {
		if m := &models[i]; m.Parent == nil && (e.config.Model == "" || e.config.Model == m.ID) {
			return m
		}
	}
	return nil
}

// inspect asks what the build is and what it understands.
func (e *Engine) inspect(ctx context.Context) (*build, error) {
	b := &build{}
	text, err := e.client.Get(ctx, "/version")
	if err != nil {
		return nil, err
	}
	var version struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &version, lenient); err != nil {
		return nil, err
	}
	b.version = version.Version
	if text, err := e.client.Get(ctx, "/openapi.json"); err == nil {
		b.describe(text)
	} else if broken(err) {
		return nil, err
	}
	if b.paths == nil {
		if err := e.probe(ctx, b); err != nil {
			return nil, err
		}
	}
	b.dialect = dialect{
		generate:   b.paths[generatePath],
		structured: b.field("structured_outputs", 0, 11, 0),
		tokenMode:  b.field("return_token_ids", 0, 10, 2),
		session:    b.fields["session_id"],
	}
	for _, path := range abortPaths {
		if b.paths[path] {
			b.dialect.abort = path
			break
		}
	}
	if text, err := e.client.Get(ctx, "/server_info?config_format=json"); err == nil {
		// What cannot be read is not known.
		if json.Unmarshal(text, &b.server, lenient) != nil {
			b.server = serverInfo{}
		}
	}
	if b.paths[sourcesPath] {
		if text, err := e.client.Get(ctx, sourcesPath); err == nil {
			b.sources = sourcesOf(text)
		} else if broken(err) {
			return nil, err
		}
	}
	return b, nil
}

// probe finds out which routes there are, where nothing describes them. A route that
// is there finds the method wrong, and does nothing; one that is not there finds
// nothing.
func (e *Engine) probe(ctx context.Context, b *build) error {
	b.paths = map[string]bool{}
	paths := []string{generatePath, abortPaths[0], abortPaths[1], sourcesPath, "/is_sleeping", "/is_paused"}
	for i := range controls {
		paths = append(paths, controls[i].path)
	}
	for _, path := range paths {
		switch _, err := e.client.Get(ctx, path); {
		case broken(err):
			return err
		case err == nil, statusOf(err) == http.StatusMethodNotAllowed:
			b.paths[path] = true
		}
	}
	return nil
}

// broken says whether a question found no server, as against one that has no
// answer to it.
func broken(err error) bool {
	kind := engine.KindOf(err)
	return err != nil && (kind.Inhibits() || kind == engine.Cancelled || kind == engine.DeadlineExceeded || kind == engine.Unavailable)
}

// describe reads the description of the API.
func (b *build) describe(text []byte) {
	var doc struct {
		Paths      map[string]jsontext.Value `json:"paths"`
		Components struct {
			Schemas map[string]jsontext.Value `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(text, &doc, lenient) != nil || len(doc.Paths) == 0 {
		return
	}
	b.paths = map[string]bool{}
	for path := range doc.Paths {
		b.paths[path] = true
	}
	var request struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(doc.Components.Schemas["CompletionRequest"], &request, lenient) != nil || len(request.Properties) == 0 {
		return
	}
	b.fields = map[string]bool{}
	for name := range request.Properties {
		b.fields[name] = true
	}
}

// field says whether completions have a member: by the description of the API, or
// else by the version since which they do.
func (b *build) field(name string, since ...int) bool {
	if b.fields != nil {
		return b.fields[name]
	}
	return atLeast(b.version, since)
}

// atLeast compares versions number by number. A version that begins with no number
// is one of a developer, and new.
func atLeast(version string, since []int) bool {
	parts := strings.FieldsFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if version == "" || version[0] < '0' || version[0] > '9' {
		return true
	}
	for i, want := range since {
		have := 0
		if i < len(parts) {
			have, _ = strconv.Atoi(parts[i])
		}
		if have != want {
			return have > want
		}
	}
	return true
}
