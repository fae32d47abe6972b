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

	"github.com/klauspost/compress/gzip"
)

// vocabulary is the number of tokens, added ones included.
const vocabulary = 8192

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
	text, err := corpus()
	if err != nil {
		return nil, err
	}
	words, err := countWords(text)
	if err != nil {
		return nil, err
	}
	merges := learn(words, vocabulary-256-len(addedTokens))
	return tokenizerJSON(merges)
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
