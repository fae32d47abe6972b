package frontend_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/router/peers"
)

// listening hears what frontends tell.
type listening struct{ heard []string }

func (l *listening) Hear(body []byte) (peers.Heard, error) {
	if l.heard = append(l.heard, string(body)); string(body) == "?" {
		return peers.Heard{}, errors.New("router_id: is missing")
	}
	return peers.Heard{Router: "r1", Adopted: 2, Ignored: 1}, nil
}

// Only operators may tell where the sessions of all are bound.
func TestPeers(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("house\nguest team\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := frontend.ReadKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	l := &listening{}
	s := start(t, newFake(), func(f *frontend.Config) { f.Peers, f.Keys = l, k })
	for _, tc := range []struct {
		key, body string
		want      int
		says      string
	}{
		{"house", "{}", 200, `{"router_id":"r1","adopted":2,"ignored":1}`},
		{"house", "?", 400, "router_id: is missing"},
		{"guest", "{}", 403, "want a key without a tenant"},
		{"", "{}", 401, ""},
		{"house", strings.Repeat("x", peers.MaxMessage), 200, ""},
		{"house", strings.Repeat("x", peers.MaxMessage+1), 413, "longer than 1048576 bytes"},
	} {
		got := s.do("POST", peers.Path, tc.body, "Authorization", "Bearer "+tc.key)
		if got.status != tc.want || !strings.Contains(got.body, tc.says) {
			t.Errorf("key %q, %.5q: %d %s, want %d %s", tc.key, tc.body, got.status, got.body, tc.want, tc.says)
		}
	}
	if len(l.heard) != 3 {
		t.Errorf("it has heard %d messages", len(l.heard))
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	text := s.do("GET", "/openapi.json", "", "Authorization", "Bearer house").body
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.Paths[peers.Path]["post"] == nil {
		t.Errorf("the document tells nothing of it: %v", err)
	}
	none := start(t, newFake())
	if got := none.do("POST", peers.Path, "{}"); got.status != 404 {
		t.Errorf("without peers: %d", got.status)
	}
}
