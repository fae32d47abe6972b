package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/dynago/dynago/internal/bpe"
	"github.com/dynago/dynago/internal/tiny/train/talk"
	"github.com/klauspost/compress/gzip"
)

// The words are those of GPT-2, after each digit was made one: SmolLM's form.
const pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

const (
	vocabulary = 2048
	spaced     = 72     // tokens that are a word with the blank before it
	bpeTalks   = 12_000 // that the tokenizer is learned from
	bpeSeed    = 3
)

var addedTokens = []bpe.Added{
	{Content: "<|endoftext|>", Special: true},
	{Content: "<|im_start|>", Special: true},
	{Content: "<|im_end|>", Special: true},
	{Content: "<think>"},
	{Content: "</think>"},
	{Content: "<tool_call>"},
	{Content: "</tool_call>"},
	{Content: "<tool_response>"},
	{Content: "</tool_response>"},
}

func makeTokenizer(args []string) error {
	out := ""
	if err := flags("tokenizer", args, func(f *flag.FlagSet) {
		f.StringVar(&out, "out", ".", "folder that tokenizer.json.gz is written to")
	}); err != nil {
		return err
	}
	file, err := learnTokenizer()
	if err != nil {
		return err
	}
	packed, err := pack(file)
	if err != nil {
		return err
	}
	path := filepath.Join(out, "tokenizer.json.gz")
	if err := os.WriteFile(path, packed, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, unpacked %d\n", path, len(packed), len(file))
	return nil
}

// learnTokenizer makes a vocabulary for copying: a word is spelled alike wherever it
// stands. So a blank is a token of its own, except before the words that make up
// sentences and are never the name or the value of anything.
func learnTokenizer() ([]byte, error) {
	var text strings.Builder
	source := talk.New(bpeSeed, false)
	for i := range bpeTalks {
		rendered, err := render(source.Next(talk.Course(float64(i) / bpeTalks)))
		if err != nil {
			return nil, err
		}
		text.WriteString(bare(rendered))
	}
	counts, err := bpe.Count(pattern, text.String())
	if err != nil {
		return nil, err
	}
	words := map[string]int{}
	for word, n := range counts {
		letters := strings.TrimPrefix(word, " ")
		switch {
		case isDigits(letters):
		case !isLetters(letters):
			words[word] += n
		case n > bpeTalks/8 || n > bpeTalks/200 && !talk.Drawn(letters):
			words[letters] += n
		case !talk.Rare(letters):
			for i := range max(1, len(letters)-2) {
				words[letters[i:min(i+3, len(letters))]] += n
			}
		}
	}
	added := len(addedTokens)
	merges := bpe.Learn(words, vocabulary-256-added-spaced)
	tokens := map[string]bool{}
	for _, m := range merges {
		tokens[m.Left+m.Right] = true
	}
	var function []string
	for word := range tokens {
		if isLetters(word) && !talk.Value(word) && counts[" "+word] >= 8*counts[word] && counts[" "+word] > 20 {
			function = append(function, word)
		}
	}
	slices.SortFunc(function, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[" "+b], counts[" "+a]), cmp.Compare(a, b))
	})
	if len(function) < spaced {
		return nil, fmt.Errorf("%d words go with a blank, want %d", len(function), spaced)
	}
	for _, word := range function[:spaced] {
		merges = append(merges, bpe.Merge{Left: " ", Right: word})
	}
	return bpe.Spec{Merges: merges, Added: addedTokens, Pattern: pattern, Digits: true}.File()
}

// bare is text without the added tokens, which are found before any words.
func bare(text string) string {
	for _, t := range addedTokens {
		text = strings.ReplaceAll(text, t.Content, "\x00")
	}
	return text
}

func isLetters(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}

func isDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
}

// pack compresses without a time stamp, so that the result depends on the data
// alone.
func pack(file []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(file); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
