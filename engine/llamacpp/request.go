package llamacpp

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// body writes the members of a JSON object in the order in which they are set.
// What the operator or the request adds stands in place of what the adapter
// would say under that name.
type body struct {
	text  []byte
	extra map[string]json.RawMessage
}

func (b *body) raw(name string, value []byte) {
	if _, ok := b.extra[name]; !ok {
		b.member(name, value)
	}
}

func (b *body) member(name string, value []byte) {
	b.text = append(b.text, ',')
	b.text = strconv.AppendQuote(b.text, name) // names are plain
	b.text = append(b.text, ':')
	b.text = append(b.text, value...)
}

func (b *body) int(name string, v int64) { b.raw(name, strconv.AppendInt(nil, v, 10)) }

// float writes v, or what it is where the client said nothing: the server's own
// defaults are not neutral.
func (b *body) float(name string, v *float64, neutral float64) {
	if v != nil {
		neutral = *v
	}
	b.raw(name, strconv.AppendFloat(nil, neutral, 'g', -1, 64))
}

// complete returns the body of POST /completion.
func (e *Engine) complete(r *engine.Request, at *place) ([]byte, error) {
	extra, err := httpapi.Extra(r.Extra, own...)
	if err != nil {
		return nil, engine.Errorf(engine.InvalidArgument, "fields for the engine: %v", err)
	}
	b := &body{text: make([]byte, 0, 512+8*len(r.TokenIDs)), extra: e.extra}
	if len(extra) > 0 {
		b.extra = maps.Clone(e.extra)
		if b.extra == nil {
			b.extra = map[string]json.RawMessage{}
		}
		maps.Copy(b.extra, extra)
	}
	b.text = append(b.text, `{"prompt":`...)
	b.text = httpapi.AppendIDs(b.text, r.TokenIDs)
	b.text = append(b.text, `,"stream":true,"return_tokens":true,"return_progress":true`...)
	b.member("n_predict", strconv.AppendInt(nil, int64(r.Stop.MaxTokens), 10))
	b.raw("cache_prompt", []byte("true"))
	b.int("id_slot", e.slot(r, at.slots))
	if len(r.Stop.Hidden) == 0 {
		b.raw("ignore_eos", []byte("true"))
	}
	b.sampling(&r.Sampling)
	if r.Logprobs != nil {
		b.int("n_probs", int64(max(1, *r.Logprobs)))
	}
	if err := b.format(r.Format); err != nil {
		return nil, err
	}
	b.lora(r.KV.Namespace.LoRA, at.adapters)
	for _, name := range slices.Sorted(maps.Keys(b.extra)) {
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		b.text = append(append(append(append(b.text, ','), quoted...), ':'), b.extra[name]...)
	}
	return append(b.text, '}'), nil
}

func (b *body) sampling(s *engine.Sampling) {
	b.float("temperature", s.Temperature, 1)
	topK := 0
	if s.TopK != nil {
		topK = max(0, *s.TopK)
	}
	b.int("top_k", int64(topK))
	b.float("top_p", s.TopP, 1)
	b.float("min_p", s.MinP, 0)
	b.float("repeat_penalty", s.RepetitionPenalty, 1)
	b.float("presence_penalty", s.PresencePenalty, 0)
	b.float("frequency_penalty", s.FrequencyPenalty, 0)
	if s.RepetitionPenalty != nil || s.PresencePenalty != nil || s.FrequencyPenalty != nil {
		b.int("repeat_last_n", -1) // of all tokens, not of the last few
	}
	if s.Seed != nil {
		// The server's seeds have 32 bits, of which all ones mean "any".
		b.int("seed", int64(uint64(*s.Seed)%math.MaxUint32))
	}
	b.bias(s)
}

// surely outweighs whatever a model makes of a token.
const surely = 1e4

// bias makes single tokens likelier or less so, forbids some, and allows no others
// than some: beside these, none has a chance.
func (b *body) bias(s *engine.Sampling) {
	bias := map[uint32]float64{}
	for _, id := range s.AllowedIDs {
		bias[id] = surely
	}
	for id, v := range s.LogitBias {
		bias[id] += v
	}
	for _, word := range s.BadWords {
		bias[word[0]] = math.Inf(-1) // of one token, see check
	}
	if len(bias) == 0 {
		return
	}
	list := []byte{'['}
	for i, id := range slices.Sorted(maps.Keys(bias)) {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendUint(append(list, '['), uint64(id), 10)
		if v := bias[id]; math.IsInf(v, -1) {
			list = append(list, ",false"...)
		} else {
			list = strconv.AppendFloat(append(list, ','), v, 'g', -1, 64)
		}
		list = append(list, ']')
	}
	b.raw("logit_bias", append(list, ']'))
}

// format holds the answer to a form: by a schema, or by a grammar in the
// server's own dialect.
func (b *body) format(f *chat.OutputFormat) error {
	if f == nil {
		return nil
	}
	grammar := ""
	switch f.Kind {
	case chat.FormatText:
		return nil
	case chat.FormatJSONObject:
		b.raw("json_schema", []byte("{}"))
		return nil
	case chat.FormatJSONSchema:
		b.raw("json_schema", f.Schema)
		return nil
	case chat.FormatGrammar:
		grammar = f.Pattern
	case chat.FormatChoice:
		grammar = choiceGrammar(f.Choices)
	case chat.FormatRegex:
		var err error
		if grammar, err = regexGrammar(f.Pattern); err != nil {
			e := engine.Errorf(engine.InvalidArgument, "the expression for the answer cannot be used: %v", err)
			e.Param = f.Member
			return e
		}
	default:
		return engine.Errorf(engine.Unsupported, "guided output (%s) is not available on llama-server", f.Kind)
	}
	quoted, err := json.Marshal(grammar)
	if err != nil {
		return err
	}
	b.raw("grammar", quoted)
	return nil
}

// lora names the scale of each adapter that the server has loaded: those that
// are not named would keep what the server was started with.
func (b *body) lora(name string, adapters []adapter) {
	if len(adapters) == 0 {
		return
	}
	list := []byte{'['}
	for i, a := range adapters {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(append(list, `{"id":`...), int64(a.id), 10)
		if a.name == name {
			list = append(list, `,"scale":1}`...)
		} else {
			list = append(list, `,"scale":0}`...)
		}
	}
	b.raw("lora", append(list, ']'))
}

// slot returns where a request is to run, -1 for where the server likes.
func (e *Engine) slot(r *engine.Request, slots uint32) int64 {
	if !e.cfg.PinSessions || slots == 0 || r.KV.Session.ID == "" {
		return -1
	}
	h := fnv.New64a()
	h.Write([]byte(r.Model + "\x00" + r.KV.Session.ID)) //nolint:errcheck // it has none
	return int64(h.Sum64() % uint64(slots))
}

// check refuses what the server would not do, or would do otherwise than asked.
func (e *Engine) check(r *engine.Request, at *place) error {
	switch {
	case len(r.Stop.Strings) > 0:
		return engine.Errorf(engine.Unsupported, "stop strings are not available on llama-server: its ids would go on behind them")
	case r.KV.Namespace.Salt != "":
		return engine.Errorf(engine.Unsupported, "cache salts are not available on llama-server")
	case r.Logprobs != nil && (*r.Logprobs < 0 || *r.Logprobs > maxLogprobs):
		e := engine.Errorf(engine.InvalidArgument, "logprobs must be between 0 and %d, got %d", maxLogprobs, *r.Logprobs)
		e.Param = "logprobs"
		return e
	case r.PromptLogprobs != nil:
		return engine.Errorf(engine.Unsupported, "log probabilities of the prompt are not available on llama-server")
	case slices.ContainsFunc(r.Sampling.BadWords, func(word []uint32) bool { return len(word) != 1 }):
		return engine.Errorf(engine.Unsupported, "words of several tokens cannot be forbidden on llama-server")
	case r.Disagg.Phase != engine.PhaseWhole:
		return engine.Errorf(engine.Unsupported, "llama-server computes no prompts for others, nor takes them from others")
	case r.KV.Namespace.LoRA != "" && len(at.adapters) == 0:
		return engine.Errorf(engine.Unsupported, "this llama-server has no adapters")
	case r.KV.Namespace.LoRA != "" && !at.has(r.KV.Namespace.LoRA):
		return engine.Errorf(engine.NotFound, "this llama-server has no adapter %q", r.KV.Namespace.LoRA)
	case r.Epoch != 0 && r.Epoch != at.epoch:
		return engine.Errorf(engine.Stale, "the server was started again since")
	case at.context > 0 && len(r.TokenIDs)+r.Stop.MaxTokens > int(at.context):
		return &engine.Error{
			Kind: engine.InvalidArgument, Code: "context_length_exceeded",
			Message: "a prompt of " + strconv.Itoa(len(r.TokenIDs)) + " tokens and an answer of " + strconv.Itoa(r.Stop.MaxTokens) +
				" are longer than the context of " + strconv.Itoa(int(at.context)),
		}
	}
	return nil
}
