package remote

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

func TestQuestion(t *testing.T) {
	temperature := 0.2
	q := &router.Query{
		ID: "r-1", Model: "m", Tokens: make([]uint32, 2048), Expected: 300, Priority: 5, StrictPriority: 1, Class: "chat", TTFT: 400 * time.Millisecond, ITL: 25500 * time.Microsecond,
		Session:   router.Session{ID: "s-1", Parent: "s-0", Final: true, Input: router.ToolInput},
		Overrides: &router.Overrides{Temperature: &temperature},
	}
	c := []router.Candidate{{
		Target: kv.Target{Worker: 7, Rank: 1}, BlockSize: 16, Device: 90, Host: 12, Disk: 3, Shared: 4,
		PrefillTokens: 512, ActiveBlocks: 310, TotalBlocks: 8192, Requests: 3, DecodeBlocks: 350, Preference: 0.5, Cost: 43.5,
	}}
	const row = `"block_size":16,"cached_blocks":{"device":90,"host":12,"disk":3,"shared":4},"prefill_tokens":512,"active_blocks":310,"total_blocks":8192,"active_requests":3,"decode_blocks":350,"preference":0.5,"cost":43.5}]}`
	got, err := appendQuestion(nil, q, c)
	if want := `{"request":{"id":"r-1","model":"m","role":"aggregated","prompt_tokens":2048,"expected_output_tokens":300,"choices":1,"priority":5,"strict_priority":1,"background":false,"class":"chat","temperature":0.2,"ttft_target":400,"itl_target":25.5,"session":{"id":"s-1","parent":"s-0","final":true,"input":"tool"}},"candidates":[{"worker_id":7,"dp_rank":1,` + row; err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}

	bare := &router.Query{ID: "r\xff", Role: engine.Prefill, Hashes: &router.Hashes{Tokens: 9}, Priority: math.NaN(), Choices: 4, Background: true, Advisory: true}
	c = []router.Candidate{{Cost: math.Inf(1)}}
	got, err = appendQuestion(nil, bare, c)
	if want := `{"request":{"id":"r�","model":"","role":"prefill","prompt_tokens":9,"choices":4,"background":true,"advisory":true},"candidates":[{"worker_id":0,"dp_rank":0,"block_size":0,"cached_blocks":{"device":0,"host":0,"disk":0,"shared":0},"prefill_tokens":0,"active_blocks":0,"active_requests":0,"decode_blocks":0,"preference":0,"cost":1.7976931348623157e+308}]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

func TestAnswer(t *testing.T) {
	c := []router.Candidate{
		{Target: kv.Target{Worker: 7}},
		{Target: kv.Target{Worker: 7, Rank: 1}},
		{Target: kv.Target{Worker: 9, Rank: 4}},
	}
	for text, want := range map[string]int{
		`{"choice": 0}`:                          0,
		`{"choice":2,"why":["because"]}`:         2,
		`{"worker_id": 9}`:                       2,
		`{"worker_id": 7, "dp_rank": 1}`:         1,
		` {"worker_id": 9, "dp_rank": 4}` + "\n": 2,
	} {
		a, err := parseAnswer([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := a.row(c); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		``: "EOF", `[]`: "unmarshal", `1`: "unmarshal", `{"choice":"0"}`: "unmarshal",
		`{"choice":0.5}`: "unmarshal", `{"choice":0`: "EOF", `{"choice":0} {}`: "after top-level value",
		`{"choice":0,"choice":1}`:         "duplicate",
		`{"choice":-1}`:                   "choice -1, want 0 to 2",
		`{"choice":3}`:                    "choice 3, want 0 to 2",
		`{"choice":99999999999999999999}`: "unmarshal",
		`{"choice":0,"worker_id":7}`:      "want one of them",
		`{"dp_rank":0}`:                   "without worker_id",
		`{"worker_id":8}`:                 "no candidate",
		`{"worker_id":9,"dp_rank":0}`:     "no candidate",
		`{"worker_id":7}`:                 "want dp_rank as well",
		`{}`:                              "leaves the choice",
		`null`:                            "leaves the choice",
		`{"choice":null}`:                 "leaves the choice",
	} {
		a, err := parseAnswer([]byte(text))
		if err == nil {
			_, err = a.row(c)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %s", text, err, says)
		}
	}
}

// Whatever a server answers, it is a row or an error.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{`{"choice":1}`, `{"worker_id":7,"dp_rank":1,"outcomes":true}`, `{"choice":null}`, `{`} {
		f.Add([]byte(seed))
	}
	c := []router.Candidate{{Target: kv.Target{Worker: 7}}, {Target: kv.Target{Worker: 7, Rank: 1}}, {Target: kv.Target{Worker: 9}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(text)
		if err != nil {
			return
		}
		i, err := a.row(c)
		switch {
		case err != nil:
		case i < 0 || i >= len(c):
			t.Fatalf("%s is row %d", text, i)
		case a.WorkerID != nil && c[i].Target.Worker != *a.WorkerID, a.Rank != nil && c[i].Target.Rank != *a.Rank,
			a.Choice != nil && int64(i) != *a.Choice:
			t.Fatalf("%s is row %d, another one", text, i)
		}
	})
}
