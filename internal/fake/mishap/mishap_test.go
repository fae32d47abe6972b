package mishap_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/fake/mishap"
)

// pieces are what the server behind the door answers.
var pieces = []string{"one ", "two ", "three ", "four"}

func open(t *testing.T) (*mishap.Door, string) {
	t.Helper()
	d := mishap.NewDoor(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			io.WriteString(w, p)
			http.NewResponseController(w).Flush()
		}
	}))
	s := httptest.NewServer(d)
	t.Cleanup(s.Close)
	return d, s.URL
}

// answer is what a client gets.
type answer struct {
	status int
	kind   string
	body   string
	err    error
}

func ask(ctx context.Context, t *testing.T, method, url string, header ...string) (a answer) {
	t.Helper()
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), string(body), err}
}

func TestFaults(t *testing.T) {
	whole := strings.Join(pieces, "")
	for name, tt := range map[string]struct {
		faults mishap.Faults
		method string
		check  func(a answer) bool
	}{
		"none":         {mishap.Faults{}, "POST", func(a answer) bool { return a.status == 200 && a.body == whole && a.err == nil }},
		"refused":      {mishap.Faults{Fail: []string{"rate_limit"}}, "POST", func(a answer) bool { return a.status == 429 && strings.Contains(a.body, "Rate limit") }},
		"probes":       {mishap.Faults{Fail: []string{"rate_limit"}}, "GET", func(a answer) bool { return a.status == 200 }},
		"all paths":    {mishap.Faults{Fail: []string{"server_error"}, Paths: []string{"/"}}, "GET", func(a answer) bool { return a.status == 503 }},
		"other paths":  {mishap.Faults{Hang: true, Paths: []string{"/other"}}, "POST", func(a answer) bool { return a.body == whole }},
		"hang":         {mishap.Faults{Hang: true}, "POST", func(a answer) bool { return errors.Is(a.err, context.DeadlineExceeded) && a.status == 0 }},
		"stall":        {mishap.Faults{StallAfter: 2}, "POST", func(a answer) bool { return a.body == "one two " && errors.Is(a.err, context.DeadlineExceeded) }},
		"drop":         {mishap.Faults{DropAfter: 1}, "POST", func(a answer) bool { return a.body == "one " && errors.Is(a.err, io.ErrUnexpectedEOF) }},
		"drip":         {mishap.Faults{DripMS: 1}, "POST", func(a answer) bool { return a.body == whole }},
		"late":         {mishap.Faults{DelayMS: 10_000}, "POST", func(a answer) bool { return errors.Is(a.err, context.DeadlineExceeded) }},
		"another kind": {mishap.Faults{ContentType: "application/json"}, "POST", func(a answer) bool { return a.kind == "application/json" && a.body == whole }},
		"a page":       {mishap.Faults{HTML: true}, "POST", func(a answer) bool { return a.status == 200 && strings.HasPrefix(a.body, "<html>") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, url := open(t)
			if err := d.Set(tt.faults); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if a := ask(ctx, t, tt.method, url); !tt.check(a) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// What happens to some requests happens to none of the others, and the ways of
// refusing take turns.
func TestEvery(t *testing.T) {
	d, url := open(t)
	if err := d.Set(mishap.Faults{Every: 3, Fail: []string{"rate_limit", "internal_error"}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{200, 200, 429, 200, 200, 500, 200, 200, 429} {
		if a := ask(t.Context(), t, "POST", url); a.status != want {
			t.Errorf("request %d: %d, want %d", i+1, a.status, want)
		}
		ask(t.Context(), t, "GET", url) // does not count
	}
	if err := d.Set(mishap.Faults{}); err != nil {
		t.Fatal(err)
	}
	if a := ask(t.Context(), t, "POST", url, mishap.ReturnError, "418"); a.status != 418 {
		t.Errorf("asked for a status: %d", a.status)
	}
}

func TestCheck(t *testing.T) {
	d, _ := open(t)
	for want, f := range map[string]mishap.Faults{
		"every: -1": {Every: -1},
		`fail: "none": want any of context_length, `: {Fail: []string{"none"}},
	} {
		if err := d.Set(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
	if f := d.Faults(); f.Every != 0 || f.Fail != nil {
		t.Errorf("what cannot be was set: %+v", f)
	}
}
