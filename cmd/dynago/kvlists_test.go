//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Operators see the session that a client has bound, what it has had pinned, and who
// holds the last block of that; once the session is closed, none of it is told.
func TestInventory(t *testing.T) {
	t.Parallel()
	p := crowded(t, nil, "--hold-sessions")
	list := func(path string, into any) {
		t.Helper()
		status, body := p.get(p.url + path)
		if err := json.Unmarshal([]byte(body), into); status != 200 || err != nil {
			t.Fatalf("%s: %d %s: %v", path, status, body, err)
		}
	}
	type told struct {
		Total    int
		Sessions []struct {
			ID    string `json:"session_id"`
			State string
			Kept  bool `json:"kept_by_engine"`
		}
		Pins []struct {
			Hash     string `json:"block_hash"`
			Blocks   int
			Session  string `json:"session_id"`
			By       string
			WorkerID uint64 `json:"worker_id"`
		}
		Holders []struct {
			WorkerID uint64 `json:"worker_id"`
			Tiers    []string
		}
	}
	text := prose("one", 60)
	p.asked("chat", text, `,"nvext":{"session_control":`+control("s", "open")+`}`)
	prompt, _ := p.asked("chat", prose("two", 60), `,"nvext":{"cache_control":{"ttl":"5m"}}`)
	var sessions, pins told
	list("/v1/kv/sessions", &sessions)
	if len(sessions.Sessions) != 1 || sessions.Sessions[0].ID != "s" || sessions.Sessions[0].State != "idle" || !sessions.Sessions[0].Kept {
		t.Errorf("sessions %+v", sessions)
	}
	list("/v1/kv/pins?model=dynago/demo", &pins)
	if len(pins.Pins) != 2 || pins.Pins[0].By != "nvext" || pins.Pins[1].By != "hold" || pins.Pins[1].Session != "s" || pins.Pins[0].Blocks != prompt/16 {
		t.Fatalf("pins %+v", pins)
	}
	for _, pin := range pins.Pins {
		var key told
		until(t, "the block is known", func() bool { status, _ := p.get(p.url + "/v1/kv/keys/" + pin.Hash); return status == 200 })
		list("/v1/kv/keys/"+pin.Hash, &key)
		if len(key.Holders) != 1 || key.Holders[0].WorkerID != pin.WorkerID || strings.Join(key.Holders[0].Tiers, " ") != "device" {
			t.Errorf("the last block of %+v is held by %+v", pin, key)
		}
	}
	p.asked("chat", text, `,"nvext":{"session_control":`+control("s", "close")+`}`)
	until(t, "the session is gone", func() bool { var now told; list("/v1/kv/sessions", &now); return now.Total == 0 })
	var now told
	if list("/v1/kv/pins", &now); now.Total != 1 || now.Pins[0].By != "nvext" {
		t.Errorf("pins %+v behind the end of the session", now)
	}
}
