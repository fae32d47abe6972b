package frontend_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// inventory is what a fake fleet has.
type inventory struct{}

func (inventory) SessionList(model string) (list []router.SessionInfo) {
	for i := range 250 {
		s := router.SessionInfo{Model: "demo", Tenant: []string{"blue", "red"}[i%2], ID: fmt.Sprint("s", i), State: router.SessionIdle, Target: kv.Target{Worker: 7, Rank: 1}, Kept: true, Timeout: time.Minute, ExpiresIn: 1500 * time.Millisecond}
		if model == "" || model == s.Model {
			list = append(list, s)
		}
	}
	return list
}

func (inventory) PinList(model string) []pipeline.PinInfo {
	p := pipeline.PinInfo{Model: "demo", Tenant: "blue", Session: "s", Target: kv.Target{Worker: 7}, Hash: 1<<64 - 1, Blocks: 12, Until: time.Now().Add(time.Hour), By: "nvext"}
	other := p
	other.Tenant, other.Warm = "red", true
	return []pipeline.PinInfo{p, other}
}

func (inventory) Holders(block kv.EngineHash) []router.Holding {
	if block != 1<<64-1 {
		return nil
	}
	return []router.Holding{{Target: kv.Target{Worker: 7, Rank: 1}, Tiers: []kv.Tier{kv.TierDevice, kv.TierHost}}}
}

// Operators see what is bound and pinned, a page at a time.
func TestInventory(t *testing.T) {
	s := start(t, newFake(), func(f *frontend.Config) { f.Inventory = inventory{} })
	type answer struct {
		Total, Next int
		Sessions    []struct {
			ID string `json:"session_id"`
		}
	}
	var ids []string
	from := 0
	for {
		var a answer
		got := s.do("GET", fmt.Sprintf("/v1/kv/sessions?limit=100&from=%d&tenant=blue", from), "")
		if err := json.Unmarshal([]byte(got.body), &a); got.status != 200 || err != nil || a.Total != 125 {
			t.Fatalf("%d %s: %v", got.status, got.body, err)
		}
		for _, s := range a.Sessions {
			ids = append(ids, s.ID)
		}
		if from = a.Next; from == 0 {
			break
		}
	}
	if len(ids) != 125 || ids[0] != "s0" || ids[124] != "s248" || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 125 {
		t.Errorf("%d sessions: %v", len(ids), ids)
	}
	for _, tc := range []struct {
		path string
		want int
		says string
	}{
		{"/v1/kv/sessions?limit=1", 200, `{"total":250,"next":1,"sessions":[{"session_id":"s0","model":"demo","tenant":"blue","state":"idle","worker_id":7,"dp_rank":1,"running":0,"kept_by_engine":true,"ephemeral":false,"timeout_s":60,"expires_in_s":1.5}]}`},
		{"/v1/kv/sessions?model=nobody", 200, `{"total":0,"sessions":[]}`},
		{"/v1/kv/sessions?from=1000", 200, `{"total":250,"sessions":[]}`},
		{"/v1/kv/sessions?limit=0", 400, "want 1 to 1000"},
		{"/v1/kv/sessions?limit=1001", 400, "want 1 to 1000"},
		{"/v1/kv/sessions?from=-1", 400, "from"},
		{"/v1/kv/pins", 200, `{"block_hash":"18446744073709551615","blocks":12,"model":"demo","tenant":"blue","session_id":"s","worker_id":7,"dp_rank":0,"by":"nvext","kept_warm":false,"ends_in_s":3`},
		{"/v1/kv/pins?tenant=red", 200, `"total":1`},
		{"/v1/kv/keys/18446744073709551615", 200, `{"block_hash":"18446744073709551615","holders":[{"worker_id":7,"dp_rank":1,"tiers":["device","host_pinned"]}]}`},
		{"/v1/kv/keys/5", 404, "holds block 5"},
		{"/v1/kv/keys/abc", 400, "a number of 64 bits"},
	} {
		if got := s.do("GET", tc.path, ""); got.status != tc.want || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s: %d %s, want %d and %s", tc.path, got.status, got.body, tc.want, tc.says)
		}
	}
	apart := start(t, newFake(), func(f *frontend.Config) { f.Inventory, f.SeparateAdmin = inventory{}, true })
	if got := apart.do("GET", "/v1/kv/pins", ""); got.status != 404 {
		t.Errorf("with a listener for operators the public one answers %d", got.status)
	}
}

// Who comes with a tenant's key sees nothing of other tenants.
func TestInventoryOfTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("k-blue blue\nk-all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := frontend.ReadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, newFake(), func(f *frontend.Config) { f.Inventory, f.Keys = inventory{}, keys })
	for _, tc := range []struct{ key, path, says string }{
		{"k-blue", "/v1/kv/sessions", `"total":125`},
		{"k-blue", "/v1/kv/sessions?tenant=red", `{"total":0,"sessions":[]}`},
		{"k-blue", "/v1/kv/pins", `"total":1`},
		{"k-all", "/v1/kv/sessions", `"total":250`},
		{"k-all", "/v1/kv/pins?tenant=red", `"total":1`},
	} {
		if got := s.do("GET", tc.path, "", "Authorization", "Bearer "+tc.key); got.status != 200 || !strings.Contains(got.body, tc.says) {
			t.Errorf("%s with %s: %d %s, want %s", tc.path, tc.key, got.status, got.body, tc.says)
		}
	}
}
