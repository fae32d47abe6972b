package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// family is what the models of a model_type have in common, and what their
// config.json means where it is silent.
type family struct {
	bias   bool // of queries, keys and values
	window int  // sliding_window, 0 for none
}

var families = map[string]family{
	"llama":   {},
	"mistral": {window: 4096},
	"qwen2":   {bias: true},
}

// ParseConfig reads the shape of a model from its config.json. What would change
// the numbers and is not computed here is an error, which names the field.
func ParseConfig(text []byte) (llama.Config, error) {
	f := fields{fault: new(error)}
	if err := json.Unmarshal(bytes.TrimPrefix(text, []byte("\ufeff")), &f.members); err != nil || f.members == nil {
		return llama.Config{}, fmt.Errorf("want a JSON object: %w", errOr(err, "null is none"))
	}
	kind := f.text("model_type", "")
	common, ok := families[kind]
	if !ok && *f.fault == nil {
		return llama.Config{}, fmt.Errorf("model_type: %q: want llama, mistral or qwen2", kind)
	}
	c := llama.Config{
		Vocab: f.count("vocab_size"), Width: f.count("hidden_size"), Layers: f.count("num_hidden_layers"),
		Heads: f.count("num_attention_heads"), Hidden: f.count("intermediate_size"), Context: f.count("max_position_embeddings"),
		NormEps: float32(f.number("rms_norm_eps", 1e-6)),
		Tied:    f.flag("tie_word_embeddings", false), QKVBias: common.bias,
	}
	c.KVHeads = f.countOr("num_key_value_heads", c.Heads)
	c.HeadSize = f.countOr("head_dim", c.Width/max(c.Heads, 1))
	c.RopeBase, c.RopeScaling = f.positions()

	f.only("hidden_act", `"silu"`)
	f.only("attention_bias", "false")
	f.only("mlp_bias", "false")
	f.only("partial_rotary_factor", "1", "1.0")
	f.only("use_mrope", "false")
	f.only("quantization_config")
	f.layers()
	if kind == "qwen2" {
		f.only("use_sliding_window", "false")
	} else {
		f.window(common.window, c.Context)
	}
	return c, *f.fault
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// fields reads the members of a JSON object. The first that is wrong is kept in
// fault, and reading goes on. A member that is null is absent.
type fields struct {
	path    string // before the names of members, in messages
	members map[string]json.RawMessage
	fault   *error
}

func (f *fields) wrong(name, want string) {
	if *f.fault != nil {
		return
	}
	is := "absent"
	if v, ok := f.members[name]; ok {
		if is = string(v); len(is) > 60 {
			is = strings.ToValidUTF8(is[:60], "") + "…"
		}
	}
	*f.fault = fmt.Errorf("%s%s: %s: %s", f.path, name, is, want)
}

func (f *fields) has(name string) bool {
	v, ok := f.members[name]
	return ok && string(v) != "null"
}

// read reads a member into a place, and says whether it was there.
func (f *fields) read(name string, into any, want string) bool {
	if !f.has(name) {
		return false
	}
	if err := json.Unmarshal(f.members[name], into); err != nil {
		f.wrong(name, want)
		return false
	}
	return true
}

func (f *fields) text(name, otherwise string) string {
	f.read(name, &otherwise, "want a text")
	return otherwise
}

func (f *fields) flag(name string, otherwise bool) bool {
	f.read(name, &otherwise, "want true or false")
	return otherwise
}

func (f *fields) number(name string, otherwise float64) float64 {
	f.read(name, &otherwise, "want a number")
	return otherwise
}

// count reads a number of things, which has to be there.
func (f *fields) count(name string) int {
	n := f.number(name, 0)
	if n < 1 || n > math.MaxInt32 || n != math.Trunc(n) {
		f.wrong(name, fmt.Sprintf("want a whole number from 1 to %d", math.MaxInt32))
		return 0
	}
	return int(n)
}

func (f *fields) countOr(name string, otherwise int) int {
	if !f.has(name) {
		return otherwise
	}
	return f.count(name)
}

// only refuses any other value than these, which change nothing.
func (f *fields) only(name string, neutral ...string) {
	if f.has(name) && !slices.Contains(neutral, string(f.members[name])) {
		want := "want it absent"
		if len(neutral) > 0 {
			want = "want " + neutral[0] + ", for nothing else is computed"
		}
		f.wrong(name, want)
	}
}

// positions reads the base of the frequencies and how they are stretched: from
// rope_theta and rope_scaling, or where newer files have them, rope_parameters.
func (f *fields) positions() (base float64, s llama.RopeScaling) {
	base = f.number("rope_theta", 10000)
	name := "rope_scaling"
	if !f.has(name) {
		name = "rope_parameters"
	}
	r := fields{path: name + ".", fault: f.fault}
	if !f.read(name, &r.members, "want an object") {
		return base, s
	}
	base = r.number("rope_theta", base)
	r.only("partial_rotary_factor", "1", "1.0")
	named := "rope_type"
	if !r.has(named) && r.has("type") {
		named = "type" // as it was called first
	}
	switch s.Type = r.text(named, "default"); s.Type {
	case "default":
		s.Type = ""
		if r.has("factor") {
			r.only("factor", "1", "1.0")
		}
	case "linear":
		s.Factor = r.number("factor", 0)
	case "llama3":
		s.Factor = r.number("factor", 0)
		s.LowFrequency, s.HighFrequency = r.number("low_freq_factor", 0), r.number("high_freq_factor", 0)
		s.Original = r.count("original_max_position_embeddings")
	default:
		r.wrong(named, "want default, linear or llama3")
	}
	return base, s
}

// layers refuses layers that do not look at all positions.
func (f *fields) layers() {
	var kinds []string
	f.read("layer_types", &kinds, "want a list of texts")
	for _, kind := range kinds {
		if kind != "full_attention" {
			f.wrong("layer_types", fmt.Sprintf("want full_attention for all layers, not %q", kind))
		}
	}
}

// window refuses positions that look back less far than to the first one.
func (f *fields) window(otherwise, context int) {
	const name = "sliding_window"
	if _, said := f.members[name]; said {
		otherwise = f.countOr(name, 0)
	}
	if otherwise > 0 && otherwise < context {
		f.wrong(name, fmt.Sprintf("want null, or no less than max_position_embeddings (%d)", context))
	}
}
