package kvevent_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Messages that the engines' own libraries have written, as testdata/engines.py
// has it.
func TestEngines(t *testing.T) {
	text, err := os.ReadFile("testdata/engines.txt")
	if err != nil {
		t.Fatal(err)
	}
	entries := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	if len(entries) < 60 {
		t.Fatalf("%d entries", len(entries))
	}
	for _, entry := range entries {
		name, body, _ := strings.Cut(entry, "\n")
		t.Run(name, func(t *testing.T) {
			var payloads [][]byte
			var want []kv.Event
			for line := range strings.Lines(body) {
				line = strings.TrimSpace(line)
				if event, ok := strings.CutPrefix(line, "> "); ok {
					want = append(want, parseEvent(t, event))
				} else {
					payloads = append(payloads, unhex(t, line))
				}
			}
			d := kvevent.NewDecoder(kvevent.Config{})
			if diff := cmp.Diff(want, decodeAll(t, d, payloads...), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if c := d.Counts(); c.Dropped[kvevent.TypeUnknown] != [len(c.Dropped[0])]uint64{} {
				t.Errorf("not understood: %v", drops(c))
			}
		})
	}
}

// parseEvent reads a line of testdata/engines.txt.
func parseEvent(t *testing.T, line string) kv.Event {
	t.Helper()
	words := strings.Fields(line)
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if words[0] == "cleared" {
		return kv.Event{Kind: kv.Cleared}
	}
	var e kv.Event
	for e.Tier.String() != words[1] {
		e.Tier++
	}
	if words[0] == "removed" {
		e.Kind = kv.Removed
		for _, w := range words[2:] {
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(number(w))})
		}
		return e
	}
	if words[2] != "root" {
		e.Parent, e.HasParent = kv.EngineHash(number(words[2])), true
	}
	var ns kv.Namespace
	var media []uint64
	var text [][]uint32
	for _, w := range words[3:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "lora":
			ns.LoRA = value
		case "salt":
			ns.Salt = value
		case "media":
			media = append(media, number(value))
		default:
			e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(number(key))})
			var tokens []uint32
			for token := range strings.SplitSeq(value, ",") {
				tokens = append(tokens, uint32(number(token)))
			}
			text = append(text, tokens)
		}
	}
	for i, tokens := range text {
		e.Blocks[i].Local = kv.HashMediaBlock(tokens, media, ns.Seed())
	}
	return e
}
