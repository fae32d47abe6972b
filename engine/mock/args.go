package mock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// Args says what engine is imitated, with the names and defaults that the
// engine's users know. Start from [DefaultArgs]; the zero value is not valid.
type Args struct {
	// EngineType must be "vllm".
	EngineType string `json:"engine_type"`
	// NumGPUBlocks is the size of the cache in blocks, per rank.
	NumGPUBlocks int `json:"num_gpu_blocks"`
	// BlockSize is the number of tokens per block, at least 2.
	BlockSize int `json:"block_size"`
	// MaxModelLen bounds prompt and output together; 0 = what the cache holds.
	MaxModelLen int `json:"max_model_len"`
	// MaxNumSeqs bounds the running requests of a rank.
	MaxNumSeqs int `json:"max_num_seqs"`
	// MaxNumBatchedTokens bounds the tokens computed in one pass.
	MaxNumBatchedTokens int `json:"max_num_batched_tokens"`
	// EnablePrefixCaching lets requests share blocks; without it there are no
	// events either.
	EnablePrefixCaching bool `json:"enable_prefix_caching"`
	// EnableChunkedPrefill lets a prompt be computed over several passes.
	EnableChunkedPrefill bool `json:"enable_chunked_prefill"`
	// GuidedDecoding lets answers be held to a schema, an expression or a choice,
	// if the engine knows how texts are spelled.
	GuidedDecoding bool `json:"guided_decoding"`
	// PreemptionMode says who makes room: "lifo" the youngest running request,
	// "fifo" the oldest.
	PreemptionMode string `json:"preemption_mode"`
	// PreemptOnPriority lets a waiting request take the place of running ones of lower
	// priority if there is no room for it.
	PreemptOnPriority bool `json:"preempt_on_priority"`
	// Watermark is the part of the cache that stays free of new requests while others
	// run, 0 to 1.
	Watermark float64 `json:"watermark"`
	// DPSize is the number of data-parallel ranks.
	DPSize int `json:"dp_size"`
	// StartupTime is how many seconds pass before the engine takes requests.
	StartupTime float64 `json:"startup_time"`
	// SpeedupRatio divides all modelled times; 0 means no delay at all.
	SpeedupRatio float64 `json:"speedup_ratio"`
	// DecodeSpeedupRatio divides decode times further.
	DecodeSpeedupRatio float64 `json:"decode_speedup_ratio"`
	// TimingModel is "roofline", "polynomial" or "constant".
	TimingModel string `json:"timing_model"`
	// PrefillMS and DecodeMS are the two times of the constant model.
	PrefillMS float64 `json:"prefill_ms"`
	DecodeMS  float64 `json:"decode_ms"`
	// WorkerType says which part of requests the engine does: "aggregated" both,
	// "prefill" the prompt, for others, "decode" the answer, with blocks from others.
	WorkerType string `json:"worker_type"`
	// BootstrapPort is where decode engines meet a prefill engine, both at work at
	// once; 0 lets the one begin when the other has ended.
	BootstrapPort int `json:"bootstrap_port"`
	// HandoffTimeoutMS is how long a prefill engine keeps a prompt for which no
	// decode engine comes.
	HandoffTimeoutMS int `json:"handoff_session_timeout_ms"`
	// KVBytesPerToken over KVTransferBandwidth, in GB/s, is how long the blocks of a
	// token are on their way; 0 of either is no time.
	KVBytesPerToken     int     `json:"kv_bytes_per_token"`
	KVTransferBandwidth float64 `json:"kv_transfer_bandwidth"`

	TierArgs
}

// DefaultArgs returns the defaults of the engine that is imitated.
func DefaultArgs() Args {
	return Args{
		EngineType:           "vllm",
		NumGPUBlocks:         16384,
		BlockSize:            64,
		MaxNumSeqs:           256,
		MaxNumBatchedTokens:  8192,
		EnablePrefixCaching:  true,
		GuidedDecoding:       true,
		EnableChunkedPrefill: true,
		PreemptionMode:       "lifo",
		DPSize:               1,
		SpeedupRatio:         1,
		DecodeSpeedupRatio:   1,
		TimingModel:          "roofline",
		WorkerType:           "aggregated",
		HandoffTimeoutMS:     defaultHandoffTimeoutMS,
		TierArgs:             defaultTierArgs(),
	}
}

// ParseArgs reads a JSON object over the defaults and validates the result. A
// key it does not know is an error that names it.
func ParseArgs(data []byte) (Args, error) {
	a := DefaultArgs()
	if err := json.Unmarshal(renamed(data), &a, json.RejectUnknownMembers(true)); err != nil {
		if se, ok := errors.AsType[*json.SemanticError](err); ok {
			key := strings.TrimPrefix(string(se.JSONPointer), "/")
			if errors.Is(err, json.ErrUnknownName) {
				return Args{}, fmt.Errorf("engine arguments: unknown key %q (known: %s)", key, strings.Join(argNames(), ", "))
			}
			if key != "" {
				key += ": "
			}
			return Args{}, fmt.Errorf("engine arguments: %swant %s", key, form(se.GoType))
		}
		return Args{}, fmt.Errorf("engine arguments: %w", err)
	}
	if err := a.Validate(); err != nil {
		return Args{}, err
	}
	return a, nil
}

// renamed gives the members of an object the names that they have here. Where one is
// there under two names, that of other engines counts: ours may be a default.
func renamed(data []byte) []byte {
	var members map[string]jsontext.Value
	if json.Unmarshal(data, &members) != nil {
		return data // which is an error that names its place
	}
	changed := false
	for alias, key := range tierAliases {
		if v, ok := members[alias]; ok {
			members[key], changed = v, true
			delete(members, alias)
		}
	}
	if !changed {
		return data
	}
	data, _ = json.Marshal(members)
	return data
}

// form says in words what JSON fits a type of this package.
func form(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "an object"
}

func argNames() []string {
	var names []string
	for f := range reflect.TypeFor[Args]().Fields() {
		if f.Anonymous {
			for f := range f.Type.Fields() {
				names = append(names, f.Tag.Get("json"))
			}
			continue
		}
		names = append(names, f.Tag.Get("json"))
	}
	slices.Sort(names)
	return names
}

// Validate returns an error that names the first argument that cannot be.
func (a *Args) Validate() error {
	fault := func(key string, value any, want string) error {
		return fmt.Errorf("engine arguments: %s is %v, want %s", key, value, want)
	}
	const most = math.MaxInt32
	for _, c := range []struct {
		key       string
		value     int
		low, high int
	}{
		{"num_gpu_blocks", a.NumGPUBlocks, 1, most},
		{"block_size", a.BlockSize, 2, 1 << 16},
		{"max_model_len", a.MaxModelLen, 0, most},
		{"max_num_seqs", a.MaxNumSeqs, 1, most},
		{"max_num_batched_tokens", a.MaxNumBatchedTokens, 1, most},
		{"dp_size", a.DPSize, 1, 1024},
		{"bootstrap_port", a.BootstrapPort, 0, math.MaxUint16},
		{"handoff_session_timeout_ms", a.HandoffTimeoutMS, 0, most},
		{"kv_bytes_per_token", a.KVBytesPerToken, 0, most},
	} {
		if c.value < c.low || c.value > c.high {
			return fault(c.key, c.value, fmt.Sprintf("%d to %d", c.low, c.high))
		}
	}
	for _, c := range []struct {
		key   string
		value float64
	}{
		{"startup_time", a.StartupTime},
		{"speedup_ratio", a.SpeedupRatio},
		{"decode_speedup_ratio", a.DecodeSpeedupRatio},
		{"prefill_ms", a.PrefillMS},
		{"decode_ms", a.DecodeMS},
		{"kv_transfer_bandwidth", a.KVTransferBandwidth},
	} {
		if !(c.value >= 0) || c.value > 1e9 {
			return fault(c.key, c.value, "0 to 1e9")
		}
	}
	if !(a.Watermark >= 0) || a.Watermark > 1 {
		return fault("watermark", a.Watermark, "0 to 1")
	}
	for _, c := range []struct {
		key, value string
		want       []string
	}{
		{"engine_type", a.EngineType, []string{"vllm"}},
		{"preemption_mode", a.PreemptionMode, []string{"lifo", "fifo"}},
		{"timing_model", a.TimingModel, []string{"roofline", "polynomial", "constant"}},
		{"worker_type", cmp.Or(a.WorkerType, "aggregated"), []string{"aggregated", "prefill", "decode"}},
	} {
		if !slices.Contains(c.want, c.value) {
			return fault(c.key, fmt.Sprintf("%q", c.value), strings.Join(c.want, " or "))
		}
	}
	if a.TimingModel != "constant" && (a.PrefillMS != 0 || a.DecodeMS != 0) {
		return errors.New(`engine arguments: prefill_ms and decode_ms need "timing_model": "constant"`)
	}
	return a.validateTiers()
}

// defaultHandoffTimeoutMS is what real engines wait, about.
const defaultHandoffTimeoutMS = 300_000

// role returns the role of the engine in a fleet.
func (a *Args) role() engine.Role {
	switch a.WorkerType {
	case "prefill":
		return engine.Prefill
	case "decode":
		return engine.Decode
	}
	return engine.Aggregated
}

// transfer returns how long the blocks of so many tokens are on their way.
func (a *Args) transfer(tokens int) time.Duration {
	if a.KVBytesPerToken == 0 || a.KVTransferBandwidth == 0 || a.SpeedupRatio == 0 {
		return 0
	}
	seconds := float64(tokens) * float64(a.KVBytesPerToken) / (a.KVTransferBandwidth * 1e9) / a.SpeedupRatio
	return time.Duration(min(seconds, longestPass.Seconds()) * float64(time.Second))
}

// Capacity returns how many tokens one request can have, prompt and output
// together.
func (a *Args) Capacity() int {
	n := a.NumGPUBlocks * a.BlockSize
	if a.MaxModelLen > 0 {
		n = min(n, a.MaxModelLen)
	}
	if !a.EnableChunkedPrefill {
		n = min(n, a.MaxNumBatchedTokens) // a request that was preempted comes back whole
	}
	return n
}
