package openai_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai"
)

// Members that come one by one make the same call as a body that has them, or the same
// refusal.
func TestPiecesAreABody(t *testing.T) {
	members := []string{
		`"max_tokens":5`, `"max_tokens":0`, `"min_tokens":7`, `"temperature":0.5`, `"temperature":3`, `"temperature":null`, `"temperature":"warm"`, `"top_k":0`,
		`"n":2`, `"n":129`, `"seed":-1`, `"stop":["a","b"]`, `"stop":""`, `"logprobs":2`, `"logprobs":6`, `"echo":true`, `"best_of":1`, `"logit_bias":{"7":1}`,
		`"nvext":{"agent_hints":{"osl":3}}`, `"nvext":{"agent_hints":{"osl":-3}}`, `"nvext":{"greed_sampling":true}`, `"cache_salt":"s"`, `"prompt_cache_key":"k"`,
		`"response_format":{"type":"json_object"}`, `"strange":1`, `"suffix":"x"`, `"metadata":{"a":"b"}`, `"stream":true`,
	}
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfN(rapid.SampledFrom(members), 0, 5).Draw(t, "members")
		o := openai.Options{RejectUnknown: rapid.Bool().Draw(t, "reject"), StrictNVExt: true}
		want, wantErr := openai.DecodeCompletion([]byte(`{`+strings.Join(append(chosen, `"model":"m","prompt":"Hi"`), ",")+`}`), o)

		p := openai.NewPieces(o)
		var err error
		for _, m := range chosen {
			name, value, _ := strings.Cut(m, ":")
			if err = p.Set(strings.Trim(name, `"`), []byte(value)); err != nil {
				break
			}
		}
		var got *openai.Call
		if err == nil {
			got, err = p.Call("m", "Hi")
		}
		if diff := cmp.Diff(wantErr, err, cmpopts.IgnoreUnexported(wire.Error{})); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(openai.Call{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		if got != nil && got.Choices() != want.Choices() {
			t.Fatalf("%d choices, want %d", got.Choices(), want.Choices())
		}
	})
}

func TestPiecesRefused(t *testing.T) {
	for _, tc := range []struct{ name, value, param, text string }{
		{"max_tokens", ``, "max_tokens", "max_tokens: the JSON text ends too early"},
		{"max_tokens", `5 6`, "max_tokens", "max_tokens: more than one JSON value in the body"},
		{"max_tokens", `[`, "max_tokens", "max_tokens: the JSON text ends too early"},
		{"nvext", `{"a":`, "nvext", "nvext: the JSON text ends too early"},
		{"stop", `["a",1]`, "stop[1]", "stop[1]: expected a string or a token ID, got a number"},
	} {
		err := openai.NewPieces(openai.Options{}).Set(tc.name, []byte(tc.value))
		e, ok := err.(*wire.Error)
		if !ok || e.Param != tc.param || e.Message != tc.text || e.Status != 400 {
			t.Errorf("%s %s: %+v", tc.name, tc.value, err)
		}
	}
	if _, err := openai.NewPieces(openai.Options{}).Call("m", ""); err == nil || !strings.Contains(err.Error(), "Prompt string cannot be empty") {
		t.Error(err)
	}
	if _, err := openai.NewPieces(openai.Options{}).Call("", "a"); err == nil || !strings.Contains(err.Error(), "Model cannot be empty") {
		t.Error(err)
	}
	if c, err := openai.NewPieces(openai.Options{DefaultModel: "usual"}).Call("", "a"); err != nil || c.Model != "usual" {
		t.Error(c, err)
	}
}

func templateOf(t *testing.T, doc string) *openai.RequestTemplate {
	t.Helper()
	template, err := openai.DecodeRequestTemplate([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// A template fills what is open and nothing else.
func TestRequestTemplate(t *testing.T) {
	template := templateOf(t, `{"model":"usual","temperature":0.25,"max_completion_tokens":50,"top_k":3,"stop":["END"],"seed":0,"min_tokens":4,"logit_bias":{"1":2}}`)
	if template.DefaultModel() != "usual" || template.MaxTokens() != 50 {
		t.Errorf("%+v", template)
	}
	bias := map[uint32]float64{1: 2}
	full := chat.Sampling{Temperature: new(0.25), MaxTokens: new(50), TopK: new(3), Stop: []string{"END"}, Seed: new(int64(0)), MinTokens: 4, LogitBias: bias}
	for name, tc := range map[string]struct{ from, want chat.Sampling }{
		"nothing": {chat.Sampling{}, full},
		"zeros": {
			chat.Sampling{Temperature: new(0.0), Seed: new(int64(9)), TopK: new(-1), N: 2, TopP: new(0.5), Stop: []string{"x"}, MaxTokens: new(5), MinTokens: 1, LogitBias: map[uint32]float64{}},
			chat.Sampling{Temperature: new(0.0), Seed: new(int64(9)), TopK: new(-1), N: 2, TopP: new(0.5), Stop: []string{"x"}, MaxTokens: new(5), MinTokens: 1, LogitBias: map[uint32]float64{}},
		},
		"no minimum beyond the limit": {
			chat.Sampling{MaxTokens: new(2), StopIDs: []uint32{7}},
			chat.Sampling{Temperature: new(0.25), MaxTokens: new(2), TopK: new(3), StopIDs: []uint32{7}, Seed: new(int64(0)), MinTokens: 2, LogitBias: bias},
		},
		"no limit below the minimum": {
			chat.Sampling{MinTokens: 60},
			chat.Sampling{Temperature: new(0.25), MaxTokens: new(60), TopK: new(3), Stop: []string{"END"}, Seed: new(int64(0)), MinTokens: 60, LogitBias: bias},
		},
	} {
		got := tc.from
		template.Fill(&got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		again := got
		if template.Fill(&again); !cmp.Equal(got, again) {
			t.Errorf("%s: filled twice", name)
		}
	}
	all := templateOf(t, `{"temperature":1,"top_p":0.5,"top_k":3,"min_p":0.1,"frequency_penalty":0.2,"presence_penalty":0.3,"repetition_penalty":1.4,"seed":5,"n":2,"stop_token_ids":[7],"max_tokens":6}`)
	var got chat.Sampling
	all.Fill(&got)
	want := chat.Sampling{
		Temperature: new(1.0), TopP: new(0.5), TopK: new(3), MinP: new(0.1), FrequencyPenalty: new(0.2), PresencePenalty: new(0.3), RepetitionPenalty: new(1.4),
		Seed: new(int64(5)), N: 2, StopIDs: []uint32{7}, MaxTokens: new(6),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	untouched := chat.Sampling{N: 1}
	(*openai.RequestTemplate)(nil).Fill(&untouched)
	if !cmp.Equal(untouched, chat.Sampling{N: 1}) {
		t.Errorf("%+v", untouched)
	}
}

// Chat completions and pieces take the template, and are checked with it; completions
// do not.
func TestWhereTemplatesCount(t *testing.T) {
	o := openai.Options{Template: templateOf(t, `{"temperature":0,"max_tokens":9}`)}
	filled := chat.Sampling{Temperature: new(0.0), MaxTokens: new(9)}
	c, err := openai.DecodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":"a"}]}`), o)
	if err != nil || !cmp.Equal(c.Requests[0].Sampling, filled) {
		t.Error(c, err)
	}
	c, err = openai.DecodeCompletion([]byte(`{"model":"m","prompt":"a"}`), o)
	if err != nil || !cmp.Equal(c.Requests[0].Sampling, chat.Sampling{}) {
		t.Error(c, err)
	}
	if c, err = openai.NewPieces(o).Call("m", "a"); err != nil || !cmp.Equal(c.Requests[0].Sampling, filled) {
		t.Error(c, err)
	}
	if _, err = openai.DecodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":"a"}],"n":2}`), o); err == nil || !strings.Contains(err.Error(), "When n > 1") {
		t.Error(err)
	}
}

func TestRefusedTemplates(t *testing.T) {
	for doc, text := range map[string]string{
		`{"temperature":3}`:               "Temperature must be between 0 and 2, got 3",
		`{"max_completion_tokens":0}`:     "Max completion tokens must be greater than 0",
		`{"temprature":1}`:                `"temprature" cannot be set by a template`,
		`{"ignore_eos":true}`:             `"ignore_eos" cannot be set by a template`,
		`{"messages":[]}`:                 `"messages" cannot be set by a template`,
		`[]`:                              "expected an object, got an array",
		`{"temperature":1`:                "ends too early",
		`{"model":7}`:                     "model: expected a string, got a number",
		`{"n":2,"temperature":0}`:         "When n > 1",
		`{"min_tokens":5,"max_tokens":4}`: "min_tokens must be less than or equal to max_tokens",
	} {
		if _, err := openai.DecodeRequestTemplate([]byte(doc)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", doc, err, text)
		}
	}
}
