package sglang

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"iter"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// facts are what a server told of itself. They are never changed in place.
type facts struct {
	epoch    uint64
	card     *engine.Card
	fault    string // why the card cannot be used; "": it can
	lowFirst bool   // lower priorities are sooner
	pages    uint64 // tokens of a page
}

// serverInfo is what /server_info has for us.
type serverInfo struct {
	Version       string `json:"version"`
	ModelPath     string `json:"model_path"`
	ServedName    string `json:"served_model_name"`
	RandomSeed    int64  `json:"random_seed"`
	NCCLPort      int64  `json:"nccl_port"`
	DPSize        uint32 `json:"dp_size"`
	PageSize      uint32 `json:"page_size"`
	ContextLength uint32 `json:"context_length"`
	MaxTokens     uint64 `json:"max_total_num_tokens"`
	MaxRunning    uint32 `json:"max_running_requests"`
	MaxPrefill    uint64 `json:"max_prefill_tokens"`
	Mode          string `json:"disaggregation_mode"`
	Device        string `json:"device"`
	Host          string `json:"host"`
	DistInitAddr  string `json:"dist_init_addr"`
	BootstrapPort uint16 `json:"disaggregation_bootstrap_port"`

	Priority       bool           `json:"enable_priority_scheduling"`
	LowFirst       bool           `json:"schedule_low_priority_values_first"`
	NoTokenizer    bool           `json:"skip_tokenizer_init"`
	LoRA           bool           `json:"enable_lora"`
	LoRAPaths      jsontext.Value `json:"lora_paths"`
	Deterministic  bool           `json:"enable_deterministic_inference"`
	Sampler        string         `json:"sampling_backend"`
	RadixSessions  bool           `json:"enable_session_radix_cache"`
	InternalStates []struct {
		MaxTokens uint64 `json:"max_total_num_tokens"`
	} `json:"internal_states"`
	Events *struct {
		BlockSize uint32 `json:"block_size"`
	} `json:"kv_events"`
}

type modelList struct {
	Data []struct {
		ID     string `json:"id"`
		Parent string `json:"parent"`
		MaxLen uint32 `json:"max_model_len"`
	} `json:"data"`
}

// lenient reads what other people's software writes.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// get reads the first of some routes that the server has.
func (e *Engine) get(ctx context.Context, into any, paths ...string) error {
	var body []byte
	var err error
	for _, path := range paths {
		if body, err = e.http.Get(ctx, path); err == nil {
			if err = json.Unmarshal(body, into, lenient); err != nil {
				err = &engine.Error{Kind: engine.Internal, Message: path + " answers with something else than expected", Err: err}
			}
			return err
		}
		if kind := engine.KindOf(err); kind != engine.Unsupported && kind != engine.NotFound {
			break
		}
	}
	return err
}

// discover asks the server what it is.
func (e *Engine) discover(ctx context.Context) (*facts, error) {
	var info serverInfo
	if err := e.get(ctx, &info, "/server_info", "/get_server_info"); err != nil {
		return nil, fmt.Errorf("server info: %w", err)
	}
	var models modelList
	if err := e.get(ctx, &models, "/v1/models"); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	return e.read(&info, &models), nil
}

func (e *Engine) read(info *serverInfo, models *modelList) *facts {
	page := max(1, info.PageSize)
	if info.Events != nil && info.Events.BlockSize > 0 {
		page = info.Events.BlockSize
	}
	if info.MaxTokens == 0 && len(info.InternalStates) > 0 {
		info.MaxTokens = info.InternalStates[0].MaxTokens
	}
	ranks := max(1, info.DPSize)
	c := &engine.Card{
		Engine:           strings.TrimSpace("sglang " + info.Version),
		Role:             role(info.Mode),
		Accepts:          []engine.Input{engine.InputTokens},
		ContextLength:    first(e.cfg.ContextLength, info.ContextLength),
		BlockSize:        first(e.cfg.BlockSize, page),
		HashScheme:       engine.SchemeXXH3,
		DPSize:           ranks,
		MaxSeqs:          info.MaxRunning / ranks,
		MaxBatchedTokens: info.MaxPrefill,
		MaxLogprobs:      e.cfg.MaxLogprobs,
		Controls: []string{
			engine.ControlReset, engine.ControlPause, engine.ControlResume, engine.ControlSleep, engine.ControlWake,
		},
		Features: engine.Features{
			engine.FeatureLogitBias, engine.FeatureStopIDs, engine.FeatureLogprobs, engine.FeaturePromptLogprobs,
			engine.FeatureCachedTokens, engine.FeatureCacheSalt, engine.FeatureDPRank,
			engine.FeatureGuidedJSON, engine.FeatureGuidedObject, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice,
			engine.FeatureGuidedGrammar, engine.FeatureStructuralTag,
		},
	}
	if c.Role != engine.Aggregated {
		c.Disagg = e.transfer(info)
	}
	c.TotalBlocks = (info.MaxTokens + uint64(c.BlockSize) - 1) / uint64(c.BlockSize)
	if info.Device == engine.DeviceCPU {
		c.Device = engine.DeviceCPU
	}
	e.name(c, info, models)
	priority := info.Priority
	if e.cfg.PriorityEnabled != nil {
		priority = *e.cfg.PriorityEnabled
	}
	lora := info.LoRA || len(info.LoRAPaths) > 0 && info.LoRAPaths.Kind() != 'n'
	for f, has := range map[engine.Feature]bool{
		engine.FeaturePriority:  priority,
		engine.FeatureMinTokens: !info.NoTokenizer,
		engine.FeatureLoRA:      lora,
		engine.FeatureSeed:      info.Deterministic || info.Sampler == "pytorch",
		engine.FeatureSessions:  info.RadixSessions,
		engine.FeatureHandoff:   c.Role == engine.Prefill,
	} {
		if has {
			c.Features = append(c.Features, f)
		}
	}
	if lora {
		c.Controls = append(c.Controls, engine.ControlLoadLoRA, engine.ControlUnloadLoRA)
	}
	f := &facts{epoch: epoch(e.http.URL(), info), card: c, lowFirst: info.LowFirst, pages: uint64(page)}
	switch {
	case c.BlockSize%page != 0:
		f.fault = fmt.Sprintf("block_size is %d, which is no multiple of the server's page of %d tokens", c.BlockSize, page)
	case c.Model == "":
		f.fault = "the server tells no name of its model; give one with model"
	}
	return f
}

// name fills in what the list of models says: the model, its adapters and how
// much fits into it.
func (e *Engine) name(c *engine.Card, info *serverInfo, models *modelList) {
	for _, m := range models.Data {
		switch {
		case m.Parent != "":
			c.Adapters = append(c.Adapters, m.ID)
		case c.Model == "":
			c.Model = m.ID
			if e.cfg.ContextLength == 0 && m.MaxLen > 0 {
				c.ContextLength = m.MaxLen
			}
		}
	}
	served := first(c.Model, first(info.ServedName, info.ModelPath))
	c.Model = first(e.cfg.Model, served)
	if served != c.Model {
		c.Aliases = []string{served}
	}
}

func first[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

func role(mode string) engine.Role {
	switch mode {
	case "prefill":
		return engine.Prefill
	case "decode":
		return engine.Decode
	}
	return engine.Aggregated
}

// epoch tells one life of a server from another: by the seed and the port that
// it draws at each start, unless they were given.
func epoch(url string, info *serverInfo) uint64 {
	h := fnv.New64a()
	h.Write([]byte(url + "\x00" + info.Version + "\x00" + info.ModelPath))
	for _, n := range []int64{info.RandomSeed, info.NCCLPort, int64(info.MaxTokens), int64(info.PageSize)} {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	return max(1, h.Sum64())
}

// How often a server is asked for everything and not for its health alone, and
// how many looks may fail before it counts as gone.
const (
	fullEvery = 4
	mayFail   = 3
)

// look is the memory from one look at a server to the next.
type look struct {
	e      *Engine
	n      int // looks since everything was asked for
	failed int // in a row
}

// probe looks once, and returns the state and a sentence about it.
func (l *look) probe(ctx context.Context) (engine.Status, error) {
	facts := l.e.facts.Load()
	_, err := l.e.http.Get(ctx, "/health")
	if err == nil && (facts == nil || l.failed > 0 || l.n == 0 || l.e.doubt.Swap(false)) {
		if facts, err = l.e.discover(ctx); err == nil {
			l.e.learn(facts)
		}
	}
	if err != nil {
		return l.without(err)
	}
	l.n = (l.n + 1) % fullEvery
	l.failed = 0
	s := l.status(engine.Ready, "")
	switch parked := l.e.parked.Load(); {
	case facts.fault != "":
		s.State, s.Reason = engine.Failed, facts.fault
	case parked != nil:
		s.State, s.Reason = engine.Draining, *parked
	default:
		l.e.up.Store(true)
	}
	return s, nil
}

// without is the status of a server that did not say it is well.
func (l *look) without(err error) (engine.Status, error) {
	l.failed++
	e, status := engine.KindOf(err), 0
	if told, ok := err.(*engine.Error); ok {
		status = told.Status
	}
	switch {
	case e == engine.Denied:
		return engine.Status{}, err
	case status == http.StatusServiceUnavailable && l.e.up.Load():
		return l.status(engine.Draining, "the server says that it is not well or is shutting down"), nil
	case l.e.up.Load() && l.failed < mayFail && e != engine.CannotConnect:
		return l.status(engine.Ready, ""), nil
	}
	l.e.up.Store(false)
	return l.status(engine.Loading, "waiting for the server: "+err.Error()), nil
}

// unknown is the epoch of a server that has told nothing yet.
const unknown = 1

func (l *look) status(state engine.State, reason string) engine.Status {
	s := engine.Status{Epoch: unknown, State: state, Reason: reason}
	if f := l.e.facts.Load(); f != nil {
		s.Epoch, s.Card = f.epoch, f.card
	}
	return s
}

// learn keeps what a server told. A new life has no sessions and is not paused.
func (e *Engine) learn(f *facts) {
	before := e.facts.Swap(f)
	if before == nil || before.epoch == f.epoch {
		return
	}
	e.parked.Store(nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.sessions)
}

// Card yields what is known, then every change, until ctx ends. Only refused
// credentials end it with an error.
func (e *Engine) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		ctx, done := e.within(ctx)
		defer done()
		l := look{e: e}
		var told engine.Status
		var shown string
		for s, err := range engine.Poll(ctx, e.cfg.Every, jitter, l.probe) {
			if err != nil {
				yield(engine.Status{}, err)
				return
			}
			now := show(s.Card)
			s.Revision = told.Revision
			if now != shown || told.Revision == 0 {
				s.Revision++
			}
			if s.Revision == told.Revision && s.State == told.State && s.Epoch == told.Epoch && s.Reason == told.Reason {
				continue
			}
			told, shown = s, now
			if !yield(s, nil) {
				return
			}
		}
	}
}

// show writes a card so that two can be compared.
func show(c *engine.Card) string {
	if c == nil {
		return ""
	}
	text, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return err.Error()
	}
	return string(text)
}
