package thompson_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/thompson"
)

func fresh(t testing.TB) *thompson.Policy {
	t.Helper()
	c := thompson.Default()
	c.Seed = 1
	p, err := thompson.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// learned returns the state of a policy that knows that one of four is slow.
func learned(t testing.TB) []byte {
	t.Helper()
	f := newFleet(t, 1)
	f.slow[2] = 3
	f.clients(8, true)
	f.serve(600)
	var b bytes.Buffer
	if err := f.policy.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What was learned is there after a restart: the slow worker is avoided at once.
func TestStateSurvives(t *testing.T) {
	state := learned(t)
	share := func(state []byte) (mean float64) {
		const seeds = 10
		for seed := range uint64(seeds) {
			f := newFleet(t, seed+2)
			if state != nil {
				if err := f.policy.Load(bytes.NewReader(state)); err != nil {
					t.Fatal(err)
				}
			}
			f.slow[2] = 3
			f.clients(1, false)
			f.serve(40)
			mean += f.share(2, 40) / seeds
		}
		return mean
	}
	if with, without := share(state), share(nil); with > 0.2 || without < with+0.2 {
		t.Errorf("the slow worker gets %.2f of what others get with what was learned, %.2f without", with, without)
	}
}

func TestStateRoundTrip(t *testing.T) {
	state := learned(t)
	p := fresh(t)
	if p.Learned() {
		t.Error("a new policy has learned something")
	}
	if err := p.Load(bytes.NewReader(state)); err != nil {
		t.Fatal(err)
	}
	if !p.Learned() {
		t.Error("nothing is learned from a state")
	}
	var again bytes.Buffer
	if err := p.Save(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(state, again.Bytes()) {
		t.Error("the state is another after it was loaded and saved")
	}
	if n := len(p.Stats().Arms); n != 4 {
		t.Errorf("%d workers are known, want 4", n)
	}
}

// sealed puts the first line before a body.
func sealed(version int, body string) string {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Sprintf("dynago thompson %d crc32c %08x bytes %d\n%s", version, sum, len(body), body)
}

const emptyBaselines = `{"per_token":{"kinds":[[%[1]s,%[1]s,%[1]s],[%[1]s,%[1]s,%[1]s],[%[1]s,%[1]s,%[1]s]],"all":%[1]s},"whole":{"kinds":[[%[1]s,%[1]s,%[1]s],[%[1]s,%[1]s,%[1]s],[%[1]s,%[1]s,%[1]s]],"all":%[1]s}}`

// body is a state with one worker.
func body(precision, moment, alpha, average string) string {
	b := fmt.Sprintf(emptyBaselines, average)
	return fmt.Sprintf(`{"session_length":%s,"fleet":%s,"arms":[{"worker":"w","rank":0,"precision":%s,"moment":%s,"alpha":%s,"beta":1,"own":%s}]}`, average, b, precision, moment, alpha, b)
}

func TestStateFaults(t *testing.T) {
	state := string(learned(t))
	head, _, _ := strings.Cut(state, "\n")
	ones := "[1,0,1,0,0,1,0,0,0,1,0,0,0,0,1,0,0,0,0,0,1,0,0,0,0,0,0,1,0,0,0,0,0,0,0,1,0,0,0,0,0,0,0,0,1]"
	zeros, average := "[0,0,0,0,0,0,0,0,0]", `{"value":0,"count":0}`
	if err := fresh(t).Load(strings.NewReader(sealed(1, body(ones, zeros, "1", average)))); err != nil {
		t.Fatalf("a sound state: %v", err)
	}
	for name, c := range map[string]struct{ state, says string }{
		"nothing":           {"", "not a state"},
		"something else":    {"{}\n", "not a state"},
		"no body":           {head, "not a state"},
		"cut":               {state[:len(state)-1], "after the first line"},
		"longer":            {state + " ", "after the first line"},
		"another version":   {sealed(2, "{}"), "version 2, want 1"},
		"a version before":  {sealed(0, "{}"), "version 0, want 1"},
		"a byte changed":    {strings.Replace(state, `"worker":"#1/0"`, `"worker":"#1/1"`, 1), "checksum"},
		"unknown members":   {sealed(1, `{"legs":2}`), "legs"},
		"a list too short":  {sealed(1, body("[1]", zeros, "1", average)), "numbers that cannot be"},
		"no precision":      {sealed(1, body(strings.Replace(ones, "1", "0", 1), zeros, "1", average)), "numbers that cannot be"},
		"a huge precision":  {sealed(1, body(strings.Replace(ones, "1", "1e300", 1), zeros, "1", average)), "numbers that cannot be"},
		"a moment too much": {sealed(1, body(ones, zeros[:len(zeros)-1]+",0]", "1", average)), "numbers that cannot be"},
		"no belief":         {sealed(1, body(ones, zeros, "0.5", average)), "numbers that cannot be"},
		"negative times":    {sealed(1, body(ones, zeros, "1", `{"value":-1,"count":0}`)), "averages that cannot be"},
		"too many workers":  {sealed(1, fmt.Sprintf(`{"arms":[%s{}]}`, strings.Repeat("{},", 4096))), "want at most 4096"},
	} {
		p := fresh(t)
		if err := p.Load(strings.NewReader(c.state)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %s", name, err, c.says)
		}
		if p.Learned() {
			t.Errorf("%s: something was learned all the same", name)
		}
	}
	gone := errors.New("the disk is gone")
	if err := fresh(t).Load(io.MultiReader(strings.NewReader(state[:100]), iotest.ErrReader(gone))); !errors.Is(err, gone) {
		t.Errorf("got %v, want what the disk says", err)
	}
}

// Whatever is in a file, loading it neither panics nor leaves a policy that does.
func FuzzState(f *testing.F) {
	state := learned(f)
	_, text, _ := strings.Cut(string(state), "\n")
	f.Add(text)
	f.Add(`{"arms":[]}`)
	f.Add(`{"arms":[{"worker":"w","precision":[1e12,1e-300],"moment":[1e12],"alpha":1e12,"beta":1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p := fresh(t)
		if err := p.Load(strings.NewReader(text)); err == nil {
			t.Fatal("a state without its first line was taken")
		}
		if p.Load(strings.NewReader(sealed(1, text))) != nil {
			return
		}
		c := make([]router.Candidate, 4)
		for i := range c {
			c[i] = router.Candidate{Target: kv.Target{Worker: uint64(i + 1)}, BlockSize: 16}
		}
		for range 3 {
			i, err := p.Pick(context.Background(), &router.Query{ID: "r", Tokens: make([]uint32, 100)}, c)
			if err != nil || i < 0 || i > 3 {
				t.Fatalf("picked %d, %v", i, err)
			}
			p.Learn(router.Outcome{ID: "r", Target: c[i].Target, Total: time.Second, OutputTokens: 1, End: router.Completed})
		}
		var b bytes.Buffer
		if err := p.Save(&b); err != nil {
			t.Fatal(err)
		}
		if err := fresh(t).Load(&b); err != nil {
			t.Fatalf("what was saved is not taken: %v", err)
		}
	})
}
