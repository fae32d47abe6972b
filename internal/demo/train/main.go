// Command train makes the tokenizer of the built-in demo model: it generates a
// corpus, learns a byte-level BPE from it, and writes tokenizer.json.gz. The
// same program writes the same file, bit for bit:
//
//	go run ./internal/demo/train -out internal/demo
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/internal/bpe"
	"github.com/klauspost/compress/gzip"
)

// vocabulary is the number of tokens, added ones included.
const vocabulary = 8192

// splitPattern cuts text into words; it is the one of Qwen2, which many models
// use.
const splitPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// addedTokens are the tokens behind those of the vocabulary. Special ones are
// structure; the tags are text that the chat template and the parsers know.
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

func main() {
	log.SetFlags(0)
	out := flag.String("out", ".", "folder that tokenizer.json.gz is written to")
	flag.Parse()

	file, err := build()
	if err != nil {
		log.Fatalf("train: %v", err)
	}
	packed, err := pack(file)
	if err != nil {
		log.Fatalf("train: compress: %v", err)
	}
	path := filepath.Join(*out, "tokenizer.json.gz")
	if err := os.WriteFile(path, packed, 0o644); err != nil {
		log.Fatalf("train: %v", err)
	}
	fmt.Printf("%s: %d bytes, unpacked %d\n", path, len(packed), len(file))
}

// build returns the tokenizer.json.
func build() ([]byte, error) {
	text, err := text()
	if err != nil {
		return nil, err
	}
	words, err := bpe.Count(splitPattern, text)
	if err != nil {
		return nil, err
	}
	merges := bpe.Learn(words, vocabulary-256-len(addedTokens))
	return bpe.Spec{Merges: merges, Added: addedTokens, Pattern: splitPattern, NFC: true}.File()
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
