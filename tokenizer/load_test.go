package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A file that cannot be read is told by the place and what is wrong there.
// tenfold writes ten letters for one.
const tenfold = `{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`

func TestLoadErrors(t *testing.T) {
	for _, tc := range []struct{ member, value, want string }{
		{"model", `{"type":"Morphemes","vocab":{}}`, `model.type: "Morphemes" is not supported`},
		{"model", `{"type":"WordPiece","vocab":{}}`, `model.unk_token: "" is not in the vocabulary`},
		{"model", `{}`, `model.type: "" is not supported`},
		{"model", `{"type":"BPE","vocab":{},"merges":[],"byte_fallback":true}`, `model.byte_fallback: true is not supported for a byte-level`},
		{"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"],"continuing_subword_prefix":"##"}`, `model.merges[0]: "b" is shorter than continuing_subword_prefix`},
		{"model", `{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"],"end_of_word_suffix":"</w>"}`, `model.merges[0]: "a" and "b", or both together`},
		{"model", `{"type":"BPE","vocab":[],"merges":[]}`, `model.vocab: must be an object`},
		{"model", `{"type":"BPE","vocab":{"a":-1},"merges":[]}`, `model.vocab["a"]: must be an id, a whole number below 4194304`},
		{"model", `{"type":"BPE","vocab":{"a":0.5},"merges":[]}`, `model.vocab["a"]`},
		{"model", `{"type":"BPE","vocab":{"a":"x"},"merges":[]}`, `model.vocab["a"]: must be an id`},
		{"model", `{"type":"BPE","vocab":{"a":5000000},"merges":[]}`, `model.vocab["a"]: 5000000 is not below`},
		{"model", `{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}`, `model.vocab["b"]: id 0 is taken`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":{}}`, `model.merges: must be a list`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a"]}`, `model.merges[0]: "a" is not two tokens`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}`, `model.merges[0]: must be a pair`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[7]}`, `model.merges[0]: must be a string or a pair`},
		{"model", `{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b","a a"]}`, `model.merges[1]: "a" and "a"`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"?"}`, `model.unk_token: "?" is not in the vocabulary`},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"CAAAAAA="}`, `normalizer.precompiled_charsmap: has an array of 8 bytes`},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"?"}`, `normalizer: `},
		{"normalizer", `{"type":"Titlecase"}`, `normalizer.type: "Titlecase" is not supported`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]}`, `normalizer.normalizers[1].precompiled_charsmap: ends before`},
		{"normalizer", `{"type":"Replace","pattern":{"Regex":"(a"},"content":""}`, `normalizer.pattern.Regex: `},
		{"normalizer", `{"type":"Replace","pattern":{"String":""},"content":"x"}`, `normalizer.pattern.String: must not be empty`},
		{"normalizer", `{"type":"Replace","pattern":{},"content":"x"}`, `normalizer.pattern: must hold`},
		{"normalizer", `{"type":"Sequence","normalizers":[` + strings.Repeat(tenfold+",", 11) + tenfold + `]}`, `normalizer: may make a text 1e+12 times as long, want at most 256 times`},
		{"normalizer", `{"type":"Sequence","decoders":1,"normalizers":[` + strings.Repeat(tenfold+",", 2) + tenfold + `]}`, `normalizer: may make a text 1e+03 times as long`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"Regex":"a*"},"content":"` + strings.Repeat("a", 256) + `"}]}`, `normalizer: may make a text 257 times as long`},
		{"normalizer", `{"type":"Prepend","prepend":"` + strings.Repeat("a", 256) + `"}`, `normalizer: may make a text 257 times as long`},
		{"pre_tokenizer", `{"type":"Syllables"}`, `pre_tokenizer.type: "Syllables" is not supported`},
		{"pre_tokenizer", `{"type":"Metaspace"}`, `pre_tokenizer.replacement: "" must be one character`},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`, `pre_tokenizer.prepend_scheme: "last" must be`},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]}`, `pre_tokenizer.pretokenizers[1].prepend_scheme: "first" behind`},
		{"pre_tokenizer", `{"type":"Punctuation","behavior":"Glued"}`, `pre_tokenizer.behavior: "Glued" is not supported`},
		{"pre_tokenizer", `{"type":"CharDelimiterSplit","delimiter":"ab"}`, `pre_tokenizer.delimiter: "ab" must be one character`},
		{"pre_tokenizer", `{"type":"FixedLength","length":0}`, `pre_tokenizer.length: 0 must be 1 or more`},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"}`, `pre_tokenizer.pattern.Regex: `},
		{"pre_tokenizer", `{"type":"Split","pattern":{},"behavior":"Isolated"}`, `pre_tokenizer.pattern: must hold`},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"a"},"behavior":"Glued"}`, `pre_tokenizer.behavior: "Glued"`},
		{"decoder", `{"type":"Sequence","decoders":[{"type":"Fuse"},` + strings.Repeat(tenfold+",", 2) + tenfold + `]}`, `decoder: may make a text 1e+03 times as long`},
		{"decoder", `{"type":"Metaspace"}`, `decoder.replacement: "" must be one character`},
		{"post_processor", `{"type":"Pairing"}`, `post_processor.type: "Pairing" is not supported`},
		{"post_processor", `{"type":"BertProcessing","sep":["x"],"cls":["y",1]}`, `post_processor: `},
		{"post_processor", `{"type":"Sequence","processors":[{"type":"X"}]}`, `post_processor.processors[0].type: "X"`},
		{"post_processor", `{"type":"TemplateProcessing","single":[],"special_tokens":{}}`, `post_processor.single: must hold sequence A once`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"B"}}]}`, `post_processor.single[0]: must be`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}]}`, `post_processor.single[0]: "<s>" is not in special_tokens`},
		{"added_tokens", `[{"id":0,"content":"x"},{"id":4194304,"content":"y"}]`, `added_tokens[1].id: 4194304 is not below`},
		{"added_tokens", `[{"id":9000,"content":"x y"},{"id":9000,"content":"x y"},{"id":9000,"content":"z y"}]`, `added_tokens[2].id: 9000 is taken by another token`},
		{"added_tokens", `[{"id":7,"content":"x y"}]`, `added_tokens[0].id: 7 is taken by another token`},
		{"added_tokens", `[{"id":-1,"content":"x"}]`, `added_tokens`},
	} {
		f := demoFile(t)
		f[tc.member] = jsontext.Value(tc.value)
		_, err := tokenizer.Load(encode(t, f))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "tokenizer: ") {
			t.Errorf("%s = %s: error %v, want one with %s", tc.member, tc.value, err, tc.want)
		}
	}
	for value, want := range map[string]string{
		`{"type":"Babel"}`:                  `decoder.type: "Babel" is not supported`,
		`{"type":"CTC","pad_token":""}`:     `decoder: pad_token and word_delimiter_token must not be empty`,
		`{"type":"BPEDecoder","suffix":""}`: `decoder.suffix: must not be empty`,
		`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{},"content":""}]}`: `decoder.decoders[1].pattern: must hold`,
		`{"type":"Strip","content":"  ","start":1,"stop":0}`:                                            `decoder: must have one character`,
		`{"type":"Replace","pattern":{"Regex":"(a"},"content":""}`:                                      `decoder.pattern.Regex: `,
	} {
		f := textFile(t)
		f["decoder"] = jsontext.Value(value)
		if _, err := tokenizer.Load(encode(t, f)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("decoder = %s: error %v, want one with %s", value, err, want)
		}
	}
	for value, want := range map[string]string{
		`{"type":"WordPiece","vocab":{"a":0},"unk_token":"?"}`:      `model.unk_token: "?" is not in the vocabulary`,
		`{"type":"WordPiece","vocab":[["?",0]],"unk_token":"?"}`:    `model.vocab: must be an object`,
		`{"type":"Unigram","vocab":{"?":0},"unk_id":0}`:             `model.vocab: must be a list`,
		`{"type":"Unigram","vocab":[["?",0]]}`:                      `model.unk_id: must be`,
		`{"type":"Unigram","vocab":[["?",0]],"unk_id":1}`:           `model.unk_id: must be`,
		`{"type":"Unigram","vocab":[["?",0],["a"]],"unk_id":0}`:     `model.vocab[1]: want a token and its score`,
		`{"type":"Unigram","vocab":[["?",0],["a","b"]],"unk_id":0}`: `model.vocab[1]: `,
		`{"type":"Unigram","vocab":[["?",0],{"a":1}],"unk_id":0}`:   `model.vocab[1]: `,
		`{"type":"WordLevel","vocab":{"?":0},"unk_token":"!"}`:      `model.unk_token: "!" is not in the vocabulary`,
		`{"type":"WordLevel","vocab":[["?",0]],"unk_token":"?"}`:    `model.vocab: must be an object`,
	} {
		f := textFile(t)
		f["model"] = jsontext.Value(value)
		if _, err := tokenizer.Load(encode(t, f)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("model = %s: error %v, want one with %s", value, err, want)
		}
	}
	f := textFile(t)
	f["normalizer"] = jsontext.Value(`{"type":"Strip","strip_left":true,"strip_right":true}`)
	f["pre_tokenizer"] = jsontext.Value(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}`)
	if _, err := tokenizer.Load(encode(t, f)); err == nil || !strings.Contains(err.Error(), `pre_tokenizer: prepend_scheme "first" after a normalizer that strips`) {
		t.Errorf("a stripped start and a space before the first piece: error %v", err)
	}
	for _, text := range []string{"", "null", "[]", "{", `{"model":3}`, `{"model":{"vocab":{"a"`} {
		if _, err := tokenizer.Load([]byte(text)); err == nil {
			t.Errorf("%q was loaded", text)
		}
	}
}

// Both spellings of merges, members in any order, and a file without a model
// type, as the oldest are.
func TestLoadAcceptsOldAndNewForms(t *testing.T) {
	const rest = `"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"Sequence","decoders":[{"type":"ByteLevel"}]},"truncation":{"max_length":1}`
	for _, model := range []string{
		`{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`,
		`{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]}`,
		`{"merges":["a b"],"vocab":{"ab":2,"b":1,"a":0}}`,
	} {
		tok := load(t, []byte(`{"model":`+model+`,`+rest+`}`))
		if ids := tok.Append(nil, "aab"); len(ids) != 2 || ids[0] != 0 || ids[1] != 2 {
			t.Errorf("%s: aab is %d, want [0 2]", model, ids)
		}
	}
}

// FuzzLoad holds that no file makes loading panic, nor the use of what loaded,
// and that a tokenizer keeps its promises whatever its file says.
func FuzzLoad(f *testing.F) {
	f.Add(smallFile(f, "abc", [][2]string{{"a", "b"}, {"ab", "c"}}, true))
	f.Add([]byte(`{"added_tokens":[{"id":3,"content":"<s>","special":true,"lstrip":true,"rstrip":true,"single_word":true,"normalized":true}],"normalizer":{"type":"NFKC"},
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Split","pattern":{"Regex":"a|b*"},"behavior":"MergedWithNext","invert":true},{"type":"Split","pattern":{"String":" "},"behavior":"Contiguous"},{"type":"ByteLevel"}]},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[3]}}},"decoder":{"type":"ByteLevel"},
		"model":{"type":"BPE","unk_token":"a","fuse_unk":true,"vocab":{"a":0,"b":1,"ab":2,"你":4},"merges":["a b"]}}`))
	f.Add([]byte(`{"added_tokens":[{"id":9,"content":"<0x41>","normalized":true},{"id":3,"content":"<s>","special":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"Lowercase"},{"type":"StripAccents"},{"type":"Strip","strip_left":true},{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"Regex":"b+| "},"content":"▁"}]},
		"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false},
		"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},
		"model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"vocab":{"<unk>":0,"▁":1,"a":2,"▁a":4,"a▁a":5,"<0xE4>":6,"<0xBD>":7,"<0xA0>":8},"merges":["▁ a","a ▁a"]}}`))
	f.Add([]byte(`{"added_tokens":[{"id":0,"content":"?","special":true}],"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":{"type":"BertProcessing","sep":["?",0],"cls":["a",1]},
		"decoder":{"type":"WordPiece"},"model":{"type":"WordPiece","unk_token":"?","vocab":{"?":0,"a":1,"##b":2,"##bb":3,"12":4}}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},"decoder":{"type":"Metaspace","replacement":"▁"},
		"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["?",0],["a",-1],["ab",-1.5],["▁",-3],["b▁",-2],["<0xE4>",0],["<0xBD>",0],["<0xA0>",0]]}}`))
	f.Add([]byte(`{"normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"},{"type":"Precompiled","precompiled_charsmap":"EAAAAAAEAABhBQAAAAAAgAAAAABiYwA="},{"type":"ByteLevel"}]},
		"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Punctuation"},{"type":"UnicodeScripts"},{"type":"FixedLength","length":4},{"type":"CharDelimiterSplit","delimiter":"b"},{"type":"ByteLevel","use_regex":false}]},
		"decoder":{"type":"Sequence","decoders":[{"type":"CTC"},{"type":"BPEDecoder"},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":2},{"type":"Replace","pattern":{"String":"ab"},"content":"b"},{"type":"Metaspace","replacement":"▁"}]},
		"model":{"type":"BPE","unk_token":"?","continuing_subword_prefix":"#","end_of_word_suffix":"</w>","vocab":{"?":0,"a":1,"#b":2,"#b</w>":3,"ab":4,"ab</w>":5,"#a</w>":6,"<0xE4>":7},"merges":["a #b","a #b</w>"]}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"WhitespaceSplit"},"decoder":{"type":"Sequence","decoders":[{"type":"ByteLevel"},{"type":"WordPiece"}]},"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"ab":1,"12":2}}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		defer giveUp()
		tok, err := tokenizer.Load(file)
		if err != nil {
			return
		}
		const text = " ab<s> abba 12 你\xff"
		ids := tok.Append(nil, text)
		for _, id := range ids {
			if tok.Bytes(id) == nil {
				t.Errorf("%q has the id %d, which the tokenizer does not know", text, id)
			}
		}
		if again := tok.Append([]uint32{7}, text); !slices.Equal(again[1:], ids) {
			t.Errorf("%q is %d, then %d", text, ids, again[1:])
		}
		// What is unknown forges nothing, though its token may be special.
		var model struct {
			Model struct {
				Unk   string `json:"unk_token"`
				UnkID int    `json:"unk_id"`
				Type  string `json:"type"`
			} `json:"model"`
		}
		_ = json.Unmarshal(file, &model, jsontext.AllowDuplicateNames(true))
		forged := func(id uint32) bool {
			return tok.IsSpecial(id) && string(tok.Bytes(id)) != model.Model.Unk && (model.Model.Type != "Unigram" || int(id) != model.Model.UnkID)
		}
		if literal := tok.AppendLiteral(nil, text); slices.ContainsFunc(literal, forged) {
			t.Errorf("%q taken literally is %d, which has a special id", text, literal)
		}
		if s := tok.Decode(append(tok.AppendWithSpecial(nil, text), 0, 1, 2, 3, 4, 1<<31), true); !utf8.ValidString(s) {
			t.Errorf("decoded to %q", s)
		}
		for _, skip := range []bool{false, true} {
			all := append(slices.Clone(ids), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			dec := tok.NewDecoder(skip)
			var pieces []byte
			for _, id := range all {
				pieces = dec.Append(pieces, id)
			}
			if pieces = dec.Flush(pieces); string(pieces) != tok.Decode(all, skip) {
				t.Errorf("%d is %q one by one and %q at once", all, pieces, tok.Decode(all, skip))
			}
		}
		more := tok.AddSpecial(map[uint32]string{1: "b", 9: "<x>"})
		if id, ok := more.ID("<x>"); (!ok || more.Bytes(id) == nil) && tok.Bytes(9) == nil {
			t.Errorf("<x> was added with id %d (known %v)", id, ok)
		}
	})
}

// Components that are nested without end are refused before any of them is read.
func TestLoadDepth(t *testing.T) {
	nested := func(list string, depth int) string {
		return strings.Repeat(`{"type":"Sequence","`+list+`":[`, depth) + strings.Repeat("]}", depth)
	}
	for member, list := range map[string]string{
		"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors", "decoder": "decoders",
	} {
		const model = `,"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`
		if _, err := tokenizer.Load([]byte(`{"` + member + `":` + nested(list, 32) + model)); err != nil {
			t.Errorf("%s, 32 sequences: %v", member, err)
		}
		for _, depth := range []int{33, 4000} {
			want := "tokenizer: " + member + ": nested more than 64 levels deep"
			if _, err := tokenizer.Load([]byte(`{"` + member + `":` + nested(list, depth) + model)); err == nil || err.Error() != want {
				t.Errorf("%s, %d sequences: %v, want %s", member, depth, err, want)
			}
		}
	}
}
