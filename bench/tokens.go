package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// kinds are the kinds of documents.
var kinds = []string{"code", "english", "chinese"}

// takeTokens measures how fast the tokenizer reads documents that it has not seen
// before, against the library that everybody uses on the very same documents, and
// how fast it reads the next turn of a conversation.
func takeTokens(ctx context.Context, b *bench) ([]part, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	python, err := referencePython(ctx)
	if err != nil {
		return nil, err
	}
	documents := map[string][]string{}
	for _, kind := range kinds {
		var paths []string
		if err := b.tokens(ctx, &paths, "documents", "-root", root, "-kind", kind, "-n", strconv.Itoa(pick(b, 40, 16)), "-out", b.programs.dir); err != nil {
			return nil, err
		}
		documents[kind] = paths
	}
	script := filepath.Join(root, "bench", "tokens", "huggingface.py")
	var judged, others []part
	for i, name := range vocabularies[:pick(b, len(vocabularies), 1)] {
		dir, err := fetchVocabulary(ctx, name)
		if err != nil {
			return nil, err
		}
		parts, err := b.speeds(ctx, name, filepath.Join(dir, "tokenizer.json"), python, script, documents)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if i > 0 {
			others = append(others, parts...)
			continue
		}
		rate, err := b.turn(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: next turn: %w", name, err)
		}
		judged = append(judgedSpeeds(parts), rate.atLeast(0.4).aimAtLeast(0.8))
	}
	return append(judged, others...), nil
}

// judgedSpeeds puts the lines on what speeds returned.
func judgedSpeeds(parts []part) []part {
	for i, lines := range [][2]float64{{25, 45}, {25, 45}, {12, 25}, {10, 25}} {
		parts[i] = parts[i].atLeast(lines[0]).aimAtLeast(lines[1])
	}
	parts[4] = parts[4].atMost(0)
	return parts
}

// read is what one reading of documents took.
type read struct {
	Bytes   int      `json:"bytes"`
	Seconds float64  `json:"seconds"`
	IDs     []string `json:"ids"`
}

func (r read) rate() float64 { return float64(r.Bytes) / r.Seconds / megabyte }

// warmDocuments are read first and not counted.
const warmDocuments = 8

// speeds returns the speed for each kind of document, how many times that of the
// reference it is for all together, and the number of documents whose ids are
// others than the reference's.
func (b *bench) speeds(ctx context.Context, name, vocabulary, python, script string, documents map[string][]string) ([]part, error) {
	var parts []part
	var ratios []float64
	runs := pick(b, 5, 1)
	ourSeconds, theirSeconds := make([]float64, runs), make([]float64, runs)
	differ, all := 0, 0
	for _, kind := range kinds {
		var ours, theirs []float64
		for i := range runs {
			var our, their read
			args := append([]string{"encode", "-vocabulary", vocabulary, "-warm", strconv.Itoa(warmDocuments)}, documents[kind]...)
			if err := b.tokens(ctx, &our, args...); err != nil {
				return nil, err
			}
			command := exec.CommandContext(ctx, python, append([]string{script, vocabulary, strconv.Itoa(warmDocuments)}, documents[kind]...)...)
			command.Env = append(os.Environ(), "TOKENIZERS_PARALLELISM=false", "RAYON_NUM_THREADS=1")
			if err := output(command, &their); err != nil {
				return nil, err
			}
			ours, theirs = append(ours, our.rate()), append(theirs, their.rate())
			ourSeconds[i] += our.Seconds
			theirSeconds[i] += their.Seconds
			if i == 0 {
				n, err := differing(our, their)
				if err != nil {
					return nil, err
				}
				differ += n
				all += len(our.IDs)
			}
		}
		parts = append(parts, median(name+", "+kind, "MB/s", ours).against(reference, median("", "", theirs).Value))
	}
	for i := range runs {
		ratios = append(ratios, theirSeconds[i]/ourSeconds[i])
	}
	return append(parts,
		median(name+", all kinds, as fast as "+reference, "×", ratios),
		count(name+", documents whose ids are not the reference's", differ).noted("of %d", all),
	), nil
}

// differing returns for how many documents two readings gave other ids.
func differing(a, b read) (int, error) {
	if len(a.IDs) != len(b.IDs) || len(a.IDs) == 0 || a.Bytes != b.Bytes {
		return 0, fmt.Errorf("%d documents of %d bytes were read, and %d of %d by the reference", len(a.IDs), a.Bytes, len(b.IDs), b.Bytes)
	}
	n := 0
	for i := range a.IDs {
		if a.IDs[i] != b.IDs[i] {
			n++
		}
	}
	return n, nil
}

// turn returns the rate of prompts of which 95% stood in an earlier turn.
func (b *bench) turn(ctx context.Context, model string) (part, error) {
	var rates []float64
	for range pick(b, 5, 1) {
		var r read
		if err := b.tokens(ctx, &r, "turn", "-model", model); err != nil {
			return part{}, err
		}
		rates = append(rates, r.rate()/1e3)
	}
	return median("next turn, 95% of 240 KB known", "GB/s", rates), nil
}

// takeVocabularies measures what it takes to load a tokenizer and to have it.
func takeVocabularies(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	for i, name := range vocabularies[:pick(b, len(vocabularies), 1)] {
		dir, err := fetchVocabulary(ctx, name)
		if err != nil {
			return nil, err
		}
		var seconds, heap []float64
		var l struct {
			Seconds float64 `json:"seconds"`
			Heap    float64 `json:"heap"`
			Tokens  int     `json:"tokens"`
		}
		for range pick(b, 5, 1) {
			if err := b.tokens(ctx, &l, "load", "-vocabulary", filepath.Join(dir, "tokenizer.json")); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			seconds, heap = append(seconds, l.Seconds), append(heap, l.Heap/megabyte)
		}
		time := median(name+", CPU", "s", seconds).noted("%d tokens", l.Tokens)
		live := median(name+", live heap", "MB", heap)
		if i == 0 {
			time, live = time.atMost(0.4).aim(0.15), live.atMost(40).aim(20)
		}
		parts = append(parts, time, live)
	}
	return parts, nil
}

// tokens runs the program that measures the tokenizer.
func (b *bench) tokens(ctx context.Context, result any, args ...string) error {
	return output(exec.CommandContext(ctx, b.programs.tokens, args...), result)
}

// output runs a program that prints one JSON value.
func output(command *exec.Cmd, result any) error {
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(command.Path), err)
	}
	if err := json.Unmarshal(out, result); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(command.Path), err)
	}
	return nil
}
