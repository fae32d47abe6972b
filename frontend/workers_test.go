package frontend_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
)

// roster is a fleet that writes down what is done to it.
type roster struct{ done []string }

func (r *roster) Attach(text string) (uint64, error) {
	if !strings.Contains(text, "=") {
		return 0, errors.New("url: want the server's address")
	}
	r.done = append(r.done, text)
	return 9, nil
}

func (r *roster) Drain(id uint64) bool  { return r.change("drain", id) }
func (r *roster) Detach(id uint64) bool { return r.change("detach", id) }

func (r *roster) Resume(id uint64) bool { return r.change("resume", id) }

func (r *roster) Reload() (fleet.Change, error) {
	r.done = append(r.done, "reload")
	if len(r.done) > 5 {
		return fleet.Change{}, errors.New("workers.yaml line 3: no")
	}
	return fleet.Change{Added: []string{"http://h"}, Kept: 2}, nil
}

func (r *roster) Sources() []fleet.SourceState {
	return []fleet.SourceState{{Name: "file", Workers: 3, Changes: 2, Errors: 1, Fault: "no such file"}}
}

func (r *roster) change(what string, id uint64) bool {
	if id == 9 {
		r.done = append(r.done, what)
	}
	return id == 9
}

// Operators list workers, and add, drain and remove them.
func TestWorkerRoutes(t *testing.T) {
	house := &roster{}
	s := start(t, newFake(), func(c *frontend.Config) { c.Roster = house })
	for _, c := range []struct {
		method, path, body string
		want               int
		says               string
	}{
		{"GET", "/admin/workers", "", 200, `{"workers":[`},
		{"POST", "/admin/workers", " vllm=http://h:1,model=m\n", 201, `{"worker_id":9}`},
		{"POST", "/admin/workers", "vllm", 400, "url: want the server's address"},
		{"POST", "/admin/workers", strings.Repeat("=", 1<<17), 413, "longer than 65536 bytes"},
		{"POST", "/admin/workers/9/drain", "", 202, `{"worker_id":9}`},
		{"POST", "/admin/workers/8/drain", "", 404, `There is no worker \"8\"`},
		{"DELETE", "/admin/workers/9", "", 202, `{"worker_id":9}`},
		{"DELETE", "/admin/workers/x", "", 404, "worker_not_found"},
		{"GET", "/admin/workers", "", 200, `"sources":[{"source":"file","workers":3,"changes":2,"errors":1,"fault":"no such file"}]`},
		{"POST", "/admin/workers/9/resume", "", 202, `{"worker_id":9}`},
		{"POST", "/admin/workers/reload", "", 200, `{"added":["http://h"],"removed":[],"changed":[],"kept":2}`},
		{"POST", "/admin/workers/reload", "", 400, "workers.yaml line 3: no"},
		{"PUT", "/admin/workers/9", "", 405, ""},
	} {
		if got := s.do(c.method, c.path, c.body); got.status != c.want || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: status %d, want %d and %q:\n%s", c.method, c.path, got.status, c.want, c.says, got.body)
		}
	}
	if want := []string{"vllm=http://h:1,model=m", "drain", "detach", "resume", "reload", "reload"}; !slices.Equal(house.done, want) {
		t.Errorf("done %q, want %q", house.done, want)
	}
}

// The document of the API tells of these routes, where they can be reached.
func TestWorkerRoutesAreDescribed(t *testing.T) {
	type paths map[string]map[string]struct {
		Responses map[string]any `json:"responses"`
	}
	document := func(separate bool) paths {
		s := start(t, newFake(), func(c *frontend.Config) { c.Roster, c.SeparateAdmin = &roster{}, separate })
		var told struct {
			Paths paths `json:"paths"`
		}
		if err := json.Unmarshal([]byte(s.do("GET", "/openapi.json", "").body), &told); err != nil {
			t.Fatal(err)
		}
		return told.Paths
	}
	public, apart := document(false), document(true)
	for _, c := range []struct{ method, path, status string }{
		{"get", "/admin/workers", "200"},
		{"post", "/admin/workers", "201"},
		{"post", "/admin/workers/reload", "200"},
		{"post", "/admin/workers/{id}/drain", "202"},
		{"post", "/admin/workers/{id}/resume", "202"},
		{"delete", "/admin/workers/{id}", "202"},
	} {
		if public[c.path][c.method].Responses[c.status] == nil {
			t.Errorf("%s %s: %+v, want a %s", c.method, c.path, public[c.path][c.method], c.status)
		}
		if apart[c.path] != nil {
			t.Errorf("%s is told of on a port where it is not", c.path)
		}
	}
}
