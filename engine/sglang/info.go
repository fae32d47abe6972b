package sglang

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// serverInfo is what /server_info has for us.
type serverInfo struct {
	Version       string `json:"version"`
	ModelPath     string `json:"model_path"`
	ServedName    string `json:"served_model_name"`
	WeightVersion string `json:"weight_version"`
	Embedding     bool   `json:"is_embedding"`
	RandomSeed    int64  `json:"random_seed"`
	NCCLPort      int64  `json:"nccl_port"`
	DPSize        uint32 `json:"dp_size"`
	DCPSize       uint32 `json:"dcp_size"` // ranks that share the context of one request
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

	Priority          bool           `json:"enable_priority_scheduling"`
	LowFirst          bool           `json:"schedule_low_priority_values_first"`
	Eviction          string         `json:"radix_eviction_policy"`
	NoTokenizer       bool           `json:"skip_tokenizer_init"`
	LoRA              bool           `json:"enable_lora"`
	LoRAPaths         jsontext.Value `json:"lora_paths"`
	Deterministic     bool           `json:"enable_deterministic_inference"`
	Sampler           string         `json:"sampling_backend"`
	StrictThinking    bool           `json:"enable_strict_thinking"`
	RadixSessions     bool           `json:"enable_session_radix_cache"`
	StreamingSessions bool           `json:"enable_streaming_session"`
	Hierarchical      bool           `json:"enable_hierarchical_cache"`
	RoutedExperts     bool           `json:"enable_return_routed_experts"`
	Incremental       *bool          `json:"incremental_streaming_output"`
	StreamOutput      *bool          `json:"stream_output"` // older name
	InternalStates    []struct {
		MaxTokens uint64 `json:"max_total_num_tokens"`
	} `json:"internal_states"`
	Events       *eventsInfo    `json:"kv_events"`
	EventsConfig jsontext.Value `json:"kv_events_config"`
}

// page is the number of tokens in a block of the server's.
func (i *serverInfo) page() uint32 {
	if i.Events != nil && i.Events.BlockSize > 0 {
		return i.Events.BlockSize
	}
	return max(1, i.PageSize) * max(1, i.DCPSize)
}

// form is the one that the server says its streams have.
func (i *serverInfo) form() form {
	for _, told := range []*bool{i.Incremental, i.StreamOutput} {
		switch {
		case told == nil:
		case *told:
			return pieces
		default:
			return cumulative
		}
	}
	return undecided
}

// sessions is the way in which the server keeps sessions.
func (i *serverInfo) sessions() kind {
	switch {
	case i.RadixSessions:
		return radix
	case i.StreamingSessions:
		return streaming
	}
	return sessionless
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

// discover asks the server what it is besides its models.
func (e *Engine) discover(ctx context.Context, models *modelList) (*facts, error) {
	var info serverInfo
	if err := e.get(ctx, &info, "/server_info", "/get_server_info"); err != nil {
		return nil, fmt.Errorf("server info: %w", err)
	}
	process := process(e.http.URL(), &info, e.starts.Load())
	f := &facts{process: process, epoch: max(unknown+1, process+e.wipes.Load())}
	e.describe(ctx, f)
	e.read(&info, models, f)
	return f, nil
}

// describe asks for the server's description of itself, which is long, until it
// has answered, and once in a life.
func (e *Engine) describe(ctx context.Context, f *facts) {
	if before := e.facts.Load(); before != nil && before.process == f.process && before.described {
		f.fields, f.described = before.fields, true
		return
	}
	document, err := e.http.Get(ctx, "/openapi.json")
	switch engine.KindOf(err) {
	case engine.Unsupported, engine.NotFound:
		f.described = true
	default:
		f.fields, f.described = describe(document), err == nil
	}
}

// read fills in what follows from what a server told.
func (e *Engine) read(info *serverInfo, models *modelList, f *facts) {
	if info.MaxTokens == 0 && len(info.InternalStates) > 0 {
		info.MaxTokens = info.InternalStates[0].MaxTokens
	}
	page, ranks := info.page(), max(1, info.DPSize)
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
		Controls:         info.controls(),
	}
	if c.Role != engine.Aggregated {
		c.Disagg = e.transfer(info)
	}
	if c.Role == engine.Decode { // it would keep a whole request waiting
		c.Needs = []engine.Role{engine.Prefill}
	}
	c.TotalBlocks = (info.MaxTokens + uint64(c.BlockSize) - 1) / uint64(c.BlockSize)
	if info.Device == engine.DeviceCPU {
		c.Device = engine.DeviceCPU
	}
	e.name(c, info, models)
	c.Features = e.allowed(info, f.fields, c.Role)
	if f.events = e.published(info); f.events.Endpoint != "" {
		c.Features = append(c.Features, engine.FeatureEvents)
	}
	f.card, f.form, f.sessions = c, info.form(), info.sessions()
	f.lowFirst, f.evictsByPriority = info.LowFirst, info.Eviction == "priority"
	f.tellsExperts = info.RoutedExperts
	switch {
	case c.BlockSize%page != 0:
		f.fault = fmt.Sprintf("block_size is %d, which is no multiple of the server's page of %d tokens", c.BlockSize, page)
	case info.Embedding:
		f.fault = "the server was started with --is-embedding and generates nothing"
	case c.Model == "":
		f.fault = "the server tells no name of its model; give one with model"
	}
	f.advice = advise(info, c)
	if f.events.Endpoint != "" && f.events.Replay == "" {
		f.advice = append(f.advice, "the server does not tell KV events again: after a lost one it is known partially, until all is forgotten; add replay_endpoint to its --kv-events-config")
	}
}

// allowed are the features that follow from a server's flags and the members that
// it takes.
func (e *Engine) allowed(info *serverInfo, takes fields, role engine.Role) engine.Features {
	list := engine.Features{
		engine.FeatureLogitBias, engine.FeatureStopIDs, engine.FeatureLogprobs, engine.FeaturePromptLogprobs,
		engine.FeatureCachedTokens,
		engine.FeatureGuidedJSON, engine.FeatureGuidedObject, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice,
		engine.FeatureGuidedGrammar, engine.FeatureStructuralTag,
	}
	priority := info.Priority
	if e.cfg.PriorityEnabled != nil {
		priority = *e.cfg.PriorityEnabled
	}
	for _, f := range []struct {
		name engine.Feature
		has  bool
	}{
		{engine.FeatureCacheSalt, takes.salt() != ""},
		{engine.FeatureDPRank, takes.rank() != ""},
		{engine.FeaturePriority, priority && takes.has("priority", true)},
		{engine.FeatureMinTokens, !info.NoTokenizer},
		{engine.FeatureLoRA, info.hasLoRA()},
		{engine.FeatureSeed, info.Deterministic || info.Sampler == "pytorch"},
		{engine.FeatureThinkingBudget, info.StrictThinking && takes.has("max_thinking_tokens", false)},
		{engine.FeatureSessions, info.sessions() != sessionless},
		{engine.FeatureHandoff, role == engine.Prefill},
	} {
		if f.has {
			list = append(list, f.name)
		}
	}
	return list
}

func (i *serverInfo) hasLoRA() bool {
	return i.LoRA || len(i.LoRAPaths) > 0 && i.LoRAPaths.Kind() != 'n'
}

func (i *serverInfo) controls() []string {
	list := []string{engine.ControlReset, engine.ControlPause, engine.ControlResume, engine.ControlSleep, engine.ControlWake}
	if i.hasLoRA() {
		list = append(list, engine.ControlLoadLoRA, engine.ControlUnloadLoRA)
	}
	if i.Hierarchical {
		list = append(list, ControlStore, ControlAttachStore, ControlDetachStore)
	}
	return list
}

// smallPage is the number of tokens below which a page is small: each is a block
// of its own, with events of its own.
const smallPage = 16

// advise tells an operator what to do better, or what to compare if two servers do
// not find each other.
func advise(info *serverInfo, c *engine.Card) (list []string) {
	if c.BlockSize < smallPage {
		list = append(list, fmt.Sprintf("the server's pages have %d tokens: start it with --page-size %d, or give a larger block_size", c.BlockSize, smallPage))
	}
	if d := c.Disagg; d.Host != "" {
		list = append(list, fmt.Sprintf("decode servers are told to fetch prompts from %s port %d: if they cannot reach it, give disagg.bootstrap_host", d.Host, d.Port))
	}
	if info.sessions() == streaming {
		list = append(list, "sessions are held only while prompts grow at their end: --enable-session-radix-cache knows no such limit")
	}
	return list
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

// process tells one start of a server from another: by the seed and the port that
// it draws, unless they were given, and by how often it was found again after it
// had been away. Other weights are another start, too: nothing that was cached is
// of use to them.
func process(url string, info *serverInfo, starts uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(url + "\x00" + info.Version + "\x00" + info.ModelPath + "\x00" + info.WeightVersion))
	for _, n := range []uint64{uint64(info.RandomSeed), uint64(info.NCCLPort), info.MaxTokens, uint64(info.PageSize), starts} {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	return h.Sum64()
}
