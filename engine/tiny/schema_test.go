package tiny_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/guided"
)

// Answers of a model that knows nothing, drawn at temperature 1, keep the schemas that
// they are held to, and the calls that they are held to are calls.
func TestSchemas(t *testing.T) {
	e := guiding(t)
	once := false
	tools := []chat.Tool{
		{Name: "ls", Schema: []byte(`{"type":"object","properties":{"p":{"enum":["a","b"]},"n":{"type":"integer","minimum":-5,"maximum":20}},"required":["p"]}`)},
		{Name: "pwd", Schema: []byte(`{"type":"object","properties":{}}`)},
	}
	calls, err := guided.Calls(tools, true)
	if err != nil {
		t.Fatal(err)
	}
	tag, ok := guided.Tag("hermes", tools, chat.ToolChoice{Mode: chat.ToolRequired, Parallel: &once}, guided.TagOptions{Schemas: true})
	if !ok {
		t.Fatal("there is no tag")
	}
	schema := func(s string) chat.OutputFormat {
		return chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(s)}
	}
	for name, format := range map[string]chat.OutputFormat{
		"numbers and choices": schema(`{"type":"object","properties":{"day":{"type":"string","format":"date"},"count":{"type":"integer","minimum":1,"maximum":300},"share":{"type":"number","exclusiveMinimum":0,"maximum":1},"unit":{"enum":["c","f"]}},"required":["day","count","unit"],"additionalProperties":false}`),
		"a list":              schema(`{"type":"array","items":{"anyOf":[{"type":"null"},{"type":"string","pattern":"^[a-c]{1,3}$"}]},"minItems":2,"maxItems":4}`),
		"recursion":           schema(`{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"boolean"},"next":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n"}]}},"required":["v","next"],"additionalProperties":false}}}`),
		"calls":               calls,
		"arguments":           guided.Arguments(&tools[0]),
		"a tag":               tag,
	} {
		t.Run(name, func(t *testing.T) {
			keeps := func(s string) error {
				form, err := guided.Compile(&format)
				if err != nil {
					return err
				}
				return form.Check(s)
			}
			if format.Kind == chat.FormatStructuralTag {
				keeps = func(s string) error {
					s = strings.TrimSuffix(strings.TrimLeft(s, " \n"), "}\n</tool_call>")
					form, err := guided.Compile(&chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: tools[0].Schema})
					if err != nil {
						return err
					}
					if rest, ok := strings.CutPrefix(s, `<tool_call>`+"\n"+`{"name": "pwd", "arguments": `); ok {
						if form, err = guided.Compile(&chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: tools[1].Schema}); err != nil {
							return err
						}
						return form.Check(rest)
					}
					return form.Check(strings.TrimPrefix(s, `<tool_call>`+"\n"+`{"name": "ls", "arguments": `))
				}
			}
			var all sync.WaitGroup
			var ended atomic.Int32
			for seed := range int64(12) {
				all.Go(func() {
					one := 1.0
					ids, last := generate(t, e, &engine.Request{
						ID: "u-1", TokenIDs: prompt(int(seed), 12), Format: &format, Sampling: engine.Sampling{Temperature: &one, Seed: &seed},
						Stop: engine.Stop{MaxTokens: 900, Hidden: []uint32{7}},
					})
					if last.Finish != engine.FinishEOS {
						return
					}
					ended.Add(1)
					if err := keeps(text(ids)); err != nil {
						t.Errorf("seed %d: %q: %v", seed, text(ids), err)
					}
				})
			}
			all.Wait()
			if ended.Load() < 6 {
				t.Errorf("%d of 12 answers came to an end", ended.Load())
			}
		})
	}
}
