package prompt_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/prompt"
)

// The model's own defaults stand where a request leaves something open, and nowhere
// else.
func TestSamplingDefaults(t *testing.T) {
	const all = `{"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1}`
	for name, tc := range map[string]struct {
		file        string
		asked, want engine.Sampling
	}{
		"nothing told": {`{}`, engine.Sampling{TopP: new(0.5)}, engine.Sampling{TopP: new(0.5)}},
		"all open":     {all, engine.Sampling{}, engine.Sampling{Temperature: new(0.6), TopP: new(0.95), TopK: new(20), MinP: new(0.05), RepetitionPenalty: new(1.1)}},
		"zeros are given": {
			all,
			engine.Sampling{Temperature: new(0.0), TopP: new(1.0), TopK: new(0), MinP: new(0.0), RepetitionPenalty: new(1.0), Seed: new(int64(7))},
			engine.Sampling{Temperature: new(0.0), TopP: new(1.0), TopK: new(0), MinP: new(0.0), RepetitionPenalty: new(1.0), Seed: new(int64(7))},
		},
		"some of each": {`{"temperature": 0.6, "top_k": null}`, engine.Sampling{TopK: new(5)}, engine.Sampling{Temperature: new(0.6), TopK: new(5)}},
		"greedy":       {`{"temperature": 0, "top_k": -1}`, engine.Sampling{}, engine.Sampling{Temperature: new(0.0), TopK: new(-1)}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := prompt.Load(snapshot{"generation_config.json": tc.file}.read, prompt.Parsers{})
			if err != nil {
				t.Fatal(err)
			}
			got := tc.asked
			m.Defaults(&got)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// A default that no engine would take is named when the model is read.
func TestBadSamplingDefaults(t *testing.T) {
	for file, want := range map[string]string{
		`{"temperature": -1}`:       "generation_config.json: temperature: want a number from 0 to ",
		`{"top_p": 1.5}`:            "generation_config.json: top_p: want a number from 0 to 1, not 1.5",
		`{"top_k": "many"}`:         "generation_config.json: top_k: want a number",
		`{"min_p": 2}`:              "generation_config.json: min_p: want a number from 0 to 1, not 2",
		`{"repetition_penalty":[]}`: "generation_config.json: repetition_penalty: want a number",
	} {
		if _, err := prompt.Load(snapshot{"generation_config.json": file}.read, prompt.Parsers{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
