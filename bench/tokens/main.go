// Command tokens measures the tokenizer, on one core, for the figures B11 and
// B11l of bench. It prints one JSON object. A process takes one measurement, so
// that none profits from what another one left in caches:
//
//	tokens documents -root . -kind english -n 40 -out dir
//	tokens encode -vocabulary tokenizer.json -warm 8 dir/english-*.txt
//	tokens load -vocabulary tokenizer.json
//	tokens turn -model folder
//
// The documents are files, so that another tokenizer reads the very same.
package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
)

func main() {
	runtime.GOMAXPROCS(1)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("want documents, encode, load or turn")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	root := flags.String("root", ".", "the repository")
	kind := flags.String("kind", "code", "code, english or chinese")
	n := flags.Int("n", 40, "number of documents")
	out := flags.String("out", ".", "folder for them")
	vocabulary := flags.String("vocabulary", "", "a tokenizer.json")
	model := flags.String("model", "", "folder with tokenizer.json and tokenizer_config.json")
	warm := flags.Int("warm", 0, "number of documents that are not counted")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var result any
	var err error
	switch args[0] {
	case "documents":
		result, err = writeDocuments(*root, *kind, *n, *out)
	case "encode":
		result, err = encode(*vocabulary, *warm, flags.Args())
	case "load":
		result, err = load(*vocabulary)
	case "turn":
		result, err = turn(*model)
	default:
		err = fmt.Errorf("unknown measurement %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// cpu is the time that this process has used, that of the collector included.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // the only errors are bad arguments
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// writeDocuments returns the paths of the documents that it wrote.
func writeDocuments(root, kind string, n int, out string) ([]string, error) {
	all, err := documents(root, kind, n)
	if err != nil {
		return nil, err
	}
	var paths []string
	for i, document := range all {
		path := filepath.Join(out, fmt.Sprintf("%s-%03d.txt", kind, i))
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			return nil, fmt.Errorf("document: %w", err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// encoded is what encoding took. Another tokenizer reports the same.
type encoded struct {
	Bytes   int      `json:"bytes"`
	Seconds float64  `json:"seconds"`
	IDs     []string `json:"ids"` // a digest of each counted document's ids, as little-endian uint32
}

// encode encodes each document once, so that all are new to the tokenizer.
func encode(vocabulary string, warm int, paths []string) (encoded, error) {
	var e encoded
	file, err := os.ReadFile(vocabulary)
	if err != nil {
		return e, fmt.Errorf("vocabulary: %w", err)
	}
	t, err := tokenizer.Load(file)
	if err != nil {
		return e, err
	}
	if len(paths) <= warm {
		return e, fmt.Errorf("%d documents: want more than the %d that are not counted", len(paths), warm)
	}
	var texts []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return e, fmt.Errorf("document: %w", err)
		}
		texts = append(texts, string(text))
	}
	file = nil
	runtime.GC()
	ids := make([]uint32, 0, documentBytes)
	for _, text := range texts[:warm] {
		ids = t.Append(ids[:0], text)
	}
	all := make([][]uint32, 0, len(texts)-warm)
	began := cpu()
	for _, text := range texts[warm:] {
		e.Bytes += len(text)
		all = append(all, append([]uint32(nil), t.Append(ids[:0], text)...))
	}
	e.Seconds = (cpu() - began).Seconds()
	for _, ids := range all {
		digest := sha256.New()
		if err := binary.Write(digest, binary.LittleEndian, ids); err != nil {
			return e, fmt.Errorf("digest: %w", err)
		}
		e.IDs = append(e.IDs, hex.EncodeToString(digest.Sum(nil)))
	}
	return e, nil
}

// loaded is what a tokenizer costs to have.
type loaded struct {
	Seconds float64 `json:"seconds"`
	Heap    int     `json:"heap"` // bytes that are live once it is loaded, without the file's
	Tokens  int     `json:"tokens"`
}

func load(vocabulary string) (loaded, error) {
	file, err := os.ReadFile(vocabulary)
	if err != nil {
		return loaded{}, fmt.Errorf("vocabulary: %w", err)
	}
	before := live()
	began := cpu()
	t, err := tokenizer.Load(file)
	if err != nil {
		return loaded{}, err
	}
	seconds := (cpu() - began).Seconds()
	heap := live() - before
	runtime.KeepAlive(file)
	return loaded{Seconds: seconds, Heap: heap, Tokens: t.Size()}, nil
}

// live is the heap after a collection; it takes two to empty a pool.
func live() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// turned is what tokenizing the next turns of a conversation took.
type turned struct {
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// turn tokenizes prompts of 240 KB of which 95% stood in an earlier turn.
func turn(model string) (turned, error) {
	m, err := prompt.Load(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(model, name)) }, prompt.Parsers{})
	if err != nil {
		return turned{}, err
	}
	const turns, bytes, fresh = 200, 240_000, 12_000
	var before strings.Builder
	transcript(&before, bytes-fresh, 0)
	r := &chat.Request{Prompt: &chat.Prompt{Text: before.String(), NoSpecialTokens: true}}
	if _, err := m.Tokens(r, true); err != nil {
		return turned{}, err
	}
	var t turned
	for i := range turns {
		var text strings.Builder
		text.WriteString(before.String())
		transcript(&text, fresh, 1000*(i+1))
		r.Prompt.Text = text.String()
		t.Bytes += text.Len()
		began := cpu()
		if _, err := m.Tokens(r, true); err != nil {
			return turned{}, err
		}
		t.Seconds += (cpu() - began).Seconds()
	}
	return t, nil
}

// transcript appends so many bytes of an agent's work: code that was read, and
// words about it.
func transcript(b *strings.Builder, bytes, seed int) {
	for end := b.Len() + bytes; b.Len() < end; seed++ {
		fmt.Fprintf(b, "<|im_start|>user\n<tool_response>\nfile_%d.go, lines %d to %d\n", seed, seed*3, seed*7)
		for i := range 15 {
			fmt.Fprintf(b, "\tif err := store.read(ctx, key%d, &value); err != nil {\n\t\treturn fmt.Errorf(\"read %d of %%s: %%w\", name, err)\n\t}\n", seed%100+i, i)
		}
		fmt.Fprintf(b, "</tool_response><|im_end|>\n<|im_start|>assistant\nStep %d: the error of the reader is not handled where the value is missing; I change the caller.<|im_end|>\n", seed)
	}
}
