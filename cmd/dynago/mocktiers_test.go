//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// prose is a message of so many words, which no other message begins like.
func prose(of string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d ", of, i)
	}
	return b.String()
}

// cachedTokens asks and returns how much of the prompt was cached.
func (p *program) cachedTokens(text string) (cached, prompt int) {
	p.t.Helper()
	body := fmt.Sprintf(`{"model": "dynago/demo", "max_tokens": 4, "messages": [{"role": "user", "content": %q}]}`, text)
	resp, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.UnmarshalRead(resp.Body, &answer); err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s, %v", resp.Status, err)
	}
	return answer.Usage.Details.Cached, answer.Usage.Prompt
}

// page returns a page of the program.
func (p *program) page(path string) string {
	p.t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// A prompt that has been pushed out of the device comes back from the host, and
// usage says so; without a host it is computed again.
func TestServeWithTiers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		back bool
	}{
		{"device alone", nil, false},
		{"host", []string{"--g2-blocks", "400"}, true},
		{"disk in bytes", []string{"--g3-bytes", "2000000000"}, true},
		{"in an object", []string{"--extra-engine-args", `{"num_g2_blocks": 400}`}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, append([]string{"--workers", "1", "--num-gpu-blocks-override", "40"}, tt.args...)...)
			first, other := prose("one", 100), prose("other", 180)
			if cached, _ := p.cachedTokens(first); cached != 0 {
				t.Errorf("%d tokens of the first prompt were cached", cached)
			}
			p.cachedTokens(other)
			cached, prompt := p.cachedTokens(first)
			if want := (prompt - 1) / 16 * 16; tt.back && cached != want || !tt.back && cached > want/2 {
				t.Errorf("%d of %d tokens cached, want it back: %v", cached, prompt, tt.back)
			}
			metrics := p.page("/metrics")
			if loads := strings.Contains(metrics, "dynago_kv_parked_requests_total"); loads != tt.back {
				t.Errorf("metrics tell of loads: %v", loads)
			}
			if !strings.Contains(metrics, `dynago_kv_blocks{dp_rank="0",pool="device",state="all"`) {
				t.Error("metrics do not tell of the device")
			}
		})
	}
}

// Two workers with one store: what one has computed the other one loads.
func TestServeWithASharedStore(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "2", "--router-mode", "round-robin", "--g2-blocks", "400", "--g4-blocks", "400", "--extra-engine-args", `{"load_bias": 1000}`)
	prompt := prose("one", 100)
	p.cachedTokens(prompt)
	if cached, n := p.cachedTokens(prompt); cached != (n-1)/16*16 {
		t.Errorf("the other worker found %d of %d tokens", cached, n)
	}
}

// What the environment says of tiers holds, unless a flag or the object of arguments
// says otherwise.
func TestTiersOfTheEnvironment(t *testing.T) {
	args := func(s engineSettings) mock.Args {
		t.Helper()
		a, err := s.over(mock.DefaultArgs())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	t.Setenv("DYN_KVBM_CPU_CACHE_GB", "1")
	t.Setenv("DYN_KVBM_DISK_CACHE_OVERRIDE_NUM_BLOCKS", "77")
	size, few := 16, 5
	a := args(engineSettings{BlockSize: &size, ExtraArgs: `{"kv_bytes_per_token": 1000}`})
	if got := a.Tiers(); got[kv.TierHost] != 62500 || got[kv.TierDisk] != 77 || !a.DiskFilter {
		t.Errorf("1 GB of blocks of 16,000 bytes is %v, filter %v", got, a.DiskFilter)
	}
	a = args(engineSettings{mockTierSettings: mockTierSettings{HostBlocks: &few}, ExtraArgs: `{"g3_blocks": 6}`})
	if got := a.Tiers(); got[kv.TierHost] != 5 || got[kv.TierDisk] != 6 {
		t.Errorf("flag and object lose: %v", got)
	}
	t.Setenv("DYN_KVBM_CPU_CACHE_GB", "much")
	if _, err := (&engineSettings{}).over(mock.DefaultArgs()); err == nil || !strings.Contains(err.Error(), "DYN_KVBM_CPU_CACHE_GB") {
		t.Errorf("a size that cannot be: %v", err)
	}
}
