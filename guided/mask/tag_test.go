package mask_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/guided/mask"
)

func tagFormat(s string) *chat.OutputFormat {
	return &chat.OutputFormat{Kind: chat.FormatStructuralTag, Schema: []byte(s)}
}

var (
	tools = []chat.Tool{
		{Name: "ls", Schema: []byte(`{"type":"object","properties":{"p":{"type":"string"},"n":{"type":"integer"},"k":{"enum":["x","y",1]}},"required":["p"]}`)},
		{Name: "cat", Schema: []byte(`{"type":"object","properties":{}}`)},
	}
	once = false
)

func TestTags(t *testing.T) {
	all := guided.TagOptions{Always: true, Schemas: true}
	auto, forced := chat.ToolChoice{Mode: chat.ToolAuto}, chat.ToolChoice{Mode: chat.ToolRequired}
	single := chat.ToolChoice{Mode: chat.ToolAuto, Parallel: &once}
	v := byBytes(t, "<tool_call>", "<tool", "\n", `{"`, `":`, "</", "ame", "<p", `"}}`)
	for _, tc := range []struct {
		family string
		choice chat.ToolChoice
		o      guided.TagOptions
		text   string
		ok     bool
	}{
		{"hermes", auto, all, "hello", true},
		{"hermes", auto, all, "", true},
		{"hermes", auto, all, "a < b <tool", true},
		{"hermes", auto, all, `so <tool_call>` + "\n" + `{"name": "ls", "arguments": {"p":"x"}}` + "\n</tool_call> and", true},
		{"hermes", auto, all, `<tool_call>` + "\n" + `{"name": "ls", "arguments": {"p":"x"}}` + "\n</tool_call>\n<tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call>", true},
		{"hermes", auto, all, `<tool_call>` + "\n" + `{"name": "ls", "arguments": {"q":"x"}}` + "\n</tool_call>", false},
		{"hermes", auto, all, `<tool_call>` + "\n" + `{"name": "rm", "arguments": {}}` + "\n</tool_call>", false},
		{"hermes", auto, all, "<tool_call>", false},
		{"hermes", auto, guided.TagOptions{Always: true}, `<tool_call>` + "\n" + `{"name": "ls", "arguments": {"q":[1]}}` + "\n</tool_call>", true},
		{"hermes", forced, all, "hello", false},
		{"hermes", forced, all, "\n\n<tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call>", true},
		{"hermes", single, all, "hi <tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call>", true},
		{"hermes", single, all, "hi <tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call> there", false},
		{"hermes", forced, guided.TagOptions{Schemas: true, ThoughtEnd: "</think>"}, "I <think</think>\n\n<tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call>", true},
		{"hermes", forced, guided.TagOptions{Schemas: true, ThoughtEnd: "</think>"}, "<tool_call>\n" + `{"name": "cat", "arguments": {}}` + "\n</tool_call>", false},
		{"hermes", chat.ToolChoice{Mode: chat.ToolNone}, all, "no <tool", true},
		{"hermes", chat.ToolChoice{Mode: chat.ToolNone}, all, "no <tool_call>", false},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=ls>\n<parameter=p>\na </p\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>", true},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=ls>\n<parameter=p>\na\n</parameter>\n<parameter=k>\ny\n</parameter>\n</function>\n</tool_call>", true},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=ls>\n<parameter=p>\na\n</parameter>\n<parameter=k>\n1\n</parameter>\n</function>\n</tool_call>", true},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=ls>\n<parameter=p>\na\n</parameter>\n<parameter=k>\nz\n</parameter>\n</function>\n</tool_call>", false},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=ls>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>", false},
		{"qwen3_coder", forced, all, "<tool_call>\n<function=cat>\n\n</function>\n</tool_call>", true},
		{"qwen3_coder", forced, guided.TagOptions{}, "<tool_call>\n<function=cat>\n<parameter=any>\nthing\n</parameter>\n</function>\n</tool_call>", true},
		{"glm47", forced, all, "<tool_call>ls\n<arg_key>p</arg_key></tool_call>", true},
		{"deepseek_v4", forced, all, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"ls\">\n<｜DSML｜parameter name=\"p\" string=\"true\">a</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", true},
		{"deepseek_v4", forced, all, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"ls\">\n<｜DSML｜parameter name=\"p\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", false},
		{"minimax_m2", forced, all, "<minimax:tool_call>\n<invoke name=\"cat\">\n</invoke>\n<invoke name=\"ls\">\n<parameter name=\"p\">q</parameter>\n</invoke>\n</minimax:tool_call>", true},
		{"kimi_k2", forced, all, `<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{"p": ""}<|tool_call_end|><|tool_calls_section_end|>`, true},
	} {
		format, ok := guided.Tag(tc.family, tools, tc.choice, tc.o)
		if !ok {
			t.Fatalf("%s has no tag", tc.family)
		}
		g, err := mask.NewCompiler(v).Compile(&format)
		if err != nil {
			t.Fatalf("%s: %v", tc.family, err)
		}
		for seed := range uint64(5) {
			if err := say(v, g, tc.text, seed); (err == nil) != tc.ok {
				t.Errorf("%s, %s: %q may be said: %v; want %t", tc.family, tc.choice.Mode, tc.text, err, tc.ok)
				break
			}
		}
	}
}

// All tags that the house writes are understood, and what is said under them is
// never stuck.
func TestAllTags(t *testing.T) {
	file, err := os.Open("../testdata/tags.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	v := byBytes(t, "<tool_call>", "</tool_call>", "</think>")
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue
		}
		n++
		g, err := mask.NewCompiler(v).Compile(tagFormat(lines.Text()))
		if err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
			continue
		}
		for seed := range uint64(3) {
			babble(t, v, g, seed, 60)
		}
	}
	if n < 40 {
		t.Fatalf("only %d tags were read", n)
	}
}

// The markers of calls are special tokens where the vocabulary has such ones, and
// nothing else.
func TestMarks(t *testing.T) {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	const begin, end, other, eos = 256, 257, 258, 259
	tokens = append(tokens, []byte("<tool_call>"), []byte("</tool_call>"), []byte("<|other|>"), nil)
	v, err := mask.NewVocabulary(mask.Tokens{
		Bytes: tokens, Ends: []uint32{eos},
		Marks: map[uint32]string{begin: "<tool_call>", end: "</tool_call>", other: "<|other|>"},
	})
	if err != nil {
		t.Fatal(err)
	}
	format, _ := guided.Tag("hermes", tools, chat.ToolChoice{Mode: chat.ToolAuto}, guided.TagOptions{Always: true, Schemas: true})
	g, err := mask.NewCompiler(v).Compile(&format)
	if err != nil {
		t.Fatal(err)
	}
	spell := func(parts ...any) (ids []uint32) {
		for _, p := range parts {
			switch p := p.(type) {
			case int:
				ids = append(ids, uint32(p))
			case string:
				for i := range len(p) {
					ids = append(ids, uint32(p[i]))
				}
			}
		}
		return ids
	}
	for _, tc := range []struct {
		ids  []uint32
		fail int // the token that must not come; -1: none
	}{
		{spell("hi ", begin, "\n", `{"name": "cat", "arguments": {}}`, "\n", end, " ok", eos), -1},
		{spell("<tool_call>"), 10},
		{spell("hi", other), 2},
		{spell("hi", end), 2},
		{spell(begin, eos), 1},
	} {
		s := g.Start()
		bits := make([]uint64, v.Words())
		for i, id := range tc.ids {
			if err := s.Mask(bits); err != nil {
				t.Fatal(err)
			}
			in := bits[id>>6]>>(id&63)&1 == 1
			err := s.Advance(id)
			if (err == nil) != in || in == (i == tc.fail) {
				t.Errorf("%v: token %d at %d: in the mask %t, %v", tc.ids, id, i, in, err)
			}
			if err != nil {
				break
			}
		}
	}
}

func TestTagsRefused(t *testing.T) {
	v := byBytes(t)
	for source, says := range map[string]string{
		`{"type":"structural_tag","format":{"type":"dispatch"}}`:                                                                                                "dispatch: answers cannot be held to a format of this type",
		`{"type":"structural_tag","format":{"type":"tag","begin":"a","end":"b"}}`:                                                                               "it has no content",
		`{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["x"],"tags":[{"type":"tag","begin":"y","content":{"type":"any_text"}}]}}`:       `no trigger is how the tag "y" begins`,
		`{"type":"structural_tag","format":{"type":"json_schema","style":"toml"}}`:                                                                              `the style "toml"`,
		`{"type":"structural_tag","format":{"type":"any_text","colour":1}}`:                                                                                     "colour",
		`{"type":"structural_tag","format":{"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"contains":{}}}}}}`:                          "/properties/a/contains: answers cannot be held to this keyword",
		`{"type":"structural_tag","format":` + strings.Repeat(`{"type":"sequence","elements":[`, 100) + `{"type":"any_text"}` + strings.Repeat(`]}`, 100) + `}`: "64 deep",
		`[]`: "no structural tag",
	} {
		if _, err := mask.NewCompiler(v).Compile(tagFormat(source)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", source, err, says)
		}
	}
}
