package kvstore_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kvstore"
)

// killed begins anew over a copy of the directory, as it is now: what is left when
// the process is killed.
func (h *house) killed() *client {
	h.t.Helper()
	dir := h.t.TempDir()
	for _, name := range []string{"values.v1", "records.v1"} {
		b, err := os.ReadFile(filepath.Join(h.disk.Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.end()
	h.disk.Dir = dir
	h.begin()
	return dial(h.t, h.address)
}

// model is what a store with room for all must have.
type model struct {
	values  map[string]string
	expires map[string]time.Time
	kept    map[string]kept // by the key of the value, of which metadata is a part
}

type kept struct {
	priority int
	epoch    uint32
	pinned   time.Time
}

// unit returns the key of the value that key is a part of, and its other part.
func unit(key string) (name, other string) {
	if stem, ok := strings.CutSuffix(key, "metadata"); ok && strings.Contains(stem, "@") {
		return stem + "kv_bytes", stem + "kv_bytes"
	}
	if stem, ok := strings.CutSuffix(key, "kv_bytes"); ok {
		return key, stem + "metadata"
	}
	return key, ""
}

func (m *model) remove(name string) {
	_, other := unit(name)
	for _, key := range []string{name, other} {
		delete(m.values, key)
		delete(m.expires, key)
	}
	delete(m.kept, name)
}

func (m *model) pass(now time.Time) {
	for key, at := range maps.Clone(m.expires) {
		if name, _ := unit(key); !now.Before(at) {
			m.remove(name)
		}
	}
}

// Through any history of a store with room, with ends and kills, what was put is
// what is there, with what was asked for it.
func TestAnyHistory(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for i := range 3 {
		keys = append(keys, fmt.Sprintf(chunkKey, i)+"kv_bytes", fmt.Sprintf(chunkKey, i)+"metadata")
	}
	rapid.Check(t, func(rt *rapid.T) {
		now := &clock{now: time.Unix(2e9, 0)}
		h := home(t, 256<<10, 32<<20, kvstore.Options{Lease: -1, Now: now.Now})
		defer h.end()
		c := dial(t, h.address)
		m := model{map[string]string{}, map[string]time.Time{}, map[string]kept{}}
		turn := 0
		key := rapid.SampledFrom(keys)
		check := func(key string) {
			want, there := m.values[key]
			if !there {
				want = "nil"
			}
			if got := c.do("GET", key); got != want {
				rt.Fatalf("%s: %d bytes, %.30q, want %.30q", key, len(got), got, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				key := key.Draw(rt, "key")
				name, _ := unit(key)
				turn++
				v := value(turn, rapid.SampledFrom([]int{20, 300, 5000, 100_000, 400_000}).Draw(rt, "size"))
				args := []string{"SET", key, v}
				ttl := rapid.SampledFrom([]int{0, 0, 10_000, 100_000}).Draw(rt, "ttl")
				if ttl > 0 {
					args = append(args, "PX", fmt.Sprint(ttl))
				}
				if got := c.do(args...); got != "+OK" {
					rt.Fatalf("SET: %s", got)
				}
				if _, there := m.values[name]; key != name && !there {
					return // metadata whose bytes are not there
				}
				m.values[key] = v
				delete(m.expires, key)
				if ttl > 0 {
					m.expires[key] = now.Now().Add(time.Duration(ttl) * time.Millisecond)
				}
			},
			"get": func(rt *rapid.T) { check(key.Draw(rt, "key")) },
			"del": func(rt *rapid.T) {
				key := key.Draw(rt, "key")
				c.do("DEL", key)
				if name, _ := unit(key); key == name {
					m.remove(name)
				} else {
					delete(m.values, key)
					delete(m.expires, key)
				}
			},
			"retain": func(rt *rapid.T) {
				key := key.Draw(rt, "key")
				name, _ := unit(key)
				k := kept{priority: rapid.IntRange(0, 100).Draw(rt, "priority"), epoch: uint32(rapid.IntRange(0, 9).Draw(rt, "epoch"))}
				args := []string{"KV.RETAIN", key, "PRIO", fmt.Sprint(k.priority), "EPOCH", fmt.Sprint(k.epoch)}
				if rapid.Bool().Draw(rt, "pin") {
					k.pinned = now.Now().Add(200 * time.Second)
					args = append(args, "PIN", "200000")
				}
				got := c.do(args...)
				if _, there := m.values[key]; there != (got == ":1") {
					rt.Fatalf("KV.RETAIN %s: %s", key, got)
				} else if !there || k.epoch < m.kept[name].epoch {
					return
				}
				if k.pinned.IsZero() {
					k.pinned = m.kept[name].pinned
				}
				m.kept[name] = k
			},
			"pass": func(rt *rapid.T) {
				now.pass(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
				m.pass(now.Now())
			},
			"end":  func(*rapid.T) { c = h.again() },
			"kill": func(*rapid.T) { c = h.killed() },
			"": func(rt *rapid.T) {
				if got := c.do("DBSIZE"); got != fmt.Sprint(":", len(m.values)) {
					rt.Fatalf("%s keys, want %d: %s", got, len(m.values), c.do("KEYS", "*"))
				}
				for name, k := range m.kept {
					e, ok := h.Tenant("", "").Look(name)
					pinned := e.Retention.PinDeadline
					// What is read renews a pin; it never ends earlier.
					if now.Now().Before(k.pinned) && pinned < k.pinned.UnixMilli() {
						rt.Fatalf("%s is pinned until %d, want %d", name, pinned, k.pinned.UnixMilli())
					}
					if !ok || int(e.Retention.Priority) != k.priority || e.Retention.Epoch != k.epoch {
						rt.Fatalf("%s: %+v, want %+v", name, e.Retention, k)
					}
				}
			},
		})
		for _, key := range keys {
			check(key)
		}
	})
}
