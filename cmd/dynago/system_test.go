package main

import (
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
)

// A text that the model's pattern gives up on must not end the process: it stays
// out of what a mock engine says, and the log tells so.
func TestEncoder(t *testing.T) {
	was := tokenizer.SetPatience(200 * time.Millisecond)
	t.Cleanup(func() { tokenizer.SetPatience(was) })
	model, err := prompt.Load(func(name string) ([]byte, error) {
		if name != "tokenizer.json" {
			return nil, fs.ErrNotExist
		}
		return []byte(`{
			"pre_tokenizer":{"type":"Split","pattern":{"Regex":"c|(a+)+b"},"behavior":"Isolated"},
			"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}}`), nil
	}, prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	encode := encoder(model, slog.New(slog.NewTextHandler(&log, nil)))
	if got := encode([]uint32{9}, "cab"); !slices.Equal(got, []uint32{9, 2, 0, 1}) || log.Len() > 0 {
		t.Errorf("got %v, log %s", got, &log)
	}
	if got := encode([]uint32{9}, strings.Repeat("a", 1000)); !slices.Equal(got, []uint32{9}) {
		t.Errorf("got %v", got)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "c|(a+)+b") || !strings.Contains(log.String(), "bytes=1000") {
		t.Errorf("log %s", &log)
	}
}
