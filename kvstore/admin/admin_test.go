package admin_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvstore"
	"github.com/dynago/dynago/kvstore/admin"
)

// both is a namespace that anybody may use, beside one that a token opens.
func both() []kvstore.Namespace {
	return []kvstore.Namespace{{Name: "open"}, {Name: "closed", Token: "secret", Quota: 1 << 20, Deny: true}}
}

// stage is a store, a client of Redis, and the server under test.
type stage struct {
	t     testing.TB
	store *kvstore.Server
	http  *admin.Server
	redis string
	url   string
}

func newStage(t testing.TB, o kvstore.Options) *stage {
	t.Helper()
	driver, err := memory.New(memory.Options{Capacity: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o.Driver = driver
	store, err := kvstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- store.Serve(l) }()
	h, err := admin.New(admin.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		web.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		store.Shutdown(ctx) //nolint:errcheck // tests end with clients that are idle
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		driver.Close() //nolint:errcheck // it is memory
	})
	return &stage{t, store, h, l.Addr().String(), web.URL}
}

// put stores values of 1,000 bytes as clients of Redis do.
func (s *stage) put(token string, keys ...string) {
	s.t.Helper()
	requests := [][]string{}
	for _, key := range keys {
		requests = append(requests, []string{"SET", key, strings.Repeat("v", 1000)})
	}
	s.send(token, requests...)
}

// send sends requests and wants no errors.
func (s *stage) send(token string, all ...[]string) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.redis)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // all is answered
	var requests strings.Builder
	say := func(args ...string) {
		fmt.Fprintf(&requests, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(&requests, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	if token != "" {
		say("AUTH", token)
	}
	for _, args := range all {
		say(args...)
	}
	say("QUIT")
	if _, err := io.WriteString(c, requests.String()); err != nil {
		s.t.Fatal(err)
	}
	answers, err := io.ReadAll(c)
	if err != nil || strings.Contains("\n"+string(answers), "\n-") {
		s.t.Fatalf("%s, %v", answers, err)
	}
}

// answer is what a request was answered with.
type answer struct {
	status int
	body   string
}

// ask sends a request; a body is JSON.
func (s *stage) ask(method, path, token, body string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(got)}
}

// want sends a request and says if it is not answered with status and a part.
func (s *stage) want(method, path, token, body string, status int, part string) {
	s.t.Helper()
	if got := s.ask(method, path, token, body); got.status != status || !strings.Contains(got.body, part) {
		s.t.Errorf("%s %s %s\n got %d %s\nwant %d %s", method, path, body, got.status, got.body, status, part)
	}
}

const chunk = "org/model@1@0@00ff@half"

func TestValues(t *testing.T) {
	s := newStage(t, kvstore.Options{PinBudget: 0.001}) // 8,388 bytes
	s.put("", "a", "b c", chunk+"kv_bytes", chunk+"metadata")
	s.want("GET", "/v1/kv/stats", "", "", 200, `"keys":4,"values":3,`)
	s.want("GET", "/v1/kv/stats", "", "", 200, `"stored":4,`)
	s.want("GET", "/v1/kv/namespaces", "", "", 200, `{"namespaces":[{"name":"default","keys":4,`)
	s.want("GET", "/v1/kv/keys/b%20c", "", "", 200, `{"key":"b c",`)
	s.want("GET", "/v1/kv/keys/"+chunk+"metadata", "", "", 200, `,"pair":true,`)
	s.want("GET", "/v1/kv/keys/none", "", "", 404, `{"error":"there is no none"}`)

	s.want("GET", "/v1/kv/prefixes?model=org/model&hash=00ff&hash=01", "", "", 200, `{"asked":2,"present":1}`)
	s.want("POST", "/v1/kv/prefixes", "", `{"model":"org/model","hashes":["01","00ff"]}`, 200, `{"asked":2,"present":0}`)
	s.want("GET", "/v1/kv/prefixes?model=m", "", "", 400, "hashes")

	s.want("POST", "/v1/kv/retain", "", `{"keys":["a","none"],"priority":80,"duration_ms":60000,"session":"s"}`, 200, `{"requested":2,"granted":1,"absent":["none"]}`)
	s.want("GET", "/v1/kv/keys/a", "", "", 200, `"class":"high","priority":80,"priority_until":"20`)
	s.want("GET", "/v1/kv/sessions", "", "", 200, `{"sessions":1}`)
	s.want("GET", "/v1/kv/sessions/s", "", "", 200, `{"session":"s","state":"idle","values":1}`)
	s.want("DELETE", "/v1/kv/sessions/s", "", "", 200, `{"session":"s","was":"idle"}`)
	s.want("GET", "/v1/kv/sessions/s", "", "", 404, "no session s")
	s.want("DELETE", "/v1/kv/sessions/s", "", "", 200, `"was":"unknown"`)
	s.want("POST", "/v1/kv/retain", "", `{"key":"b c","class":"ephemeral"}`, 200, `"granted":1`)
	s.want("GET", "/v1/kv/keys/b%20c", "", "", 200, `"class":"ephemeral"`)
	for body, part := range map[string]string{
		`{"key":"a","priority":101}`:                "0 to 100",
		`{"key":"a","priority":300}`:                "not what this operation takes",
		`{"key":"a","prioritiy":1}`:                 "prioritiy",
		`{"key":"a","duration_ms":1}`:               "without a priority",
		`{"key":"a","pin_ms":-1}`:                   "pin_ms: -1",
		`{"key":"a","class":"eph"}`:                 "want ephemeral or normal",
		`{"priority":1}`:                            "0 keys",
		`{"key":"a","priority":1,"priority":2}`:     "not what this operation takes",
		`{"key":"a"`:                                "not what this operation takes",
		`{"key":"a","duration_ms":922337203685477}`: "duration_ms",
	} {
		s.want("POST", "/v1/kv/retain", "", body, 400, part)
	}
}

func TestPins(t *testing.T) {
	s := newStage(t, kvstore.Options{PinBudget: 0.0005}) // 4,194 bytes: four values
	keys := []string{"a", "b", "c", "d", "e"}
	s.put("", keys...)
	s.want("POST", "/v1/kv/pins", "", `{"keys":["a","b","c","d","e"],"ttl_ms":60000}`, 200, `{"requested":5,"granted":4,"denied":["e"]}`)
	s.want("GET", "/v1/kv/keys/a", "", "", 200, `"class":"soft_pinned"`)
	var seen []string
	for from := uint64(0); ; {
		var page struct {
			Pinned int64 `json:"pinned_bytes"`
			Pins   []struct {
				Key string `json:"key"`
			} `json:"pins"`
			Next uint64 `json:"next"`
		}
		got := s.ask("GET", fmt.Sprintf("/v1/kv/pins?limit=1&from=%d", from), "", "")
		if err := json.Unmarshal([]byte(got.body), &page); err != nil || got.status != 200 || len(page.Pins) > 1 || page.Pinned != 4000 {
			t.Fatalf("%+v: %v", got, err)
		}
		for _, p := range page.Pins {
			seen = append(seen, p.Key)
		}
		if from = page.Next; from == 0 {
			break
		}
	}
	if fmt.Sprint(seen) != "[a b c d]" {
		t.Errorf("pinned: %v", seen)
	}
	s.want("DELETE", "/v1/kv/pins/a", "", "", 200, `"granted":1`)
	s.want("GET", "/v1/kv/keys/a", "", "", 200, `"class":"plain"`)
	s.want("POST", "/v1/kv/pins", "", `{"key":"e","ttl_ms":60000,"session":"s"}`, 200, `"granted":1`)
	s.want("DELETE", "/v1/kv/pins/e", "", "", 200, `"granted":1`)
	s.want("GET", "/v1/kv/keys/e", "", "", 200, `"class":"soft_pinned"`) // it is the session's
	s.want("DELETE", "/v1/kv/pins/e?session=s", "", "", 200, `"granted":1`)
	s.want("GET", "/v1/kv/keys/e", "", "", 200, `"class":"plain"`)
	s.want("DELETE", "/v1/kv/pins/none", "", "", 404, "no none")
	s.want("POST", "/v1/kv/pins", "", `{"key":"a"}`, 400, "ttl_ms")
	s.want("GET", "/v1/kv/pins?limit=0", "", "", 400, "want 1 to 1000")
	s.want("GET", "/v1/kv/pins?from=x", "", "", 400, "from=x")
}

// A token opens its namespace and no other; without one it is that of everybody.
func TestTokens(t *testing.T) {
	s := newStage(t, kvstore.Options{Namespaces: both()})
	s.put("", "shared")
	s.put("secret", "shared", "own")
	s.want("GET", "/v1/kv/stats", "", "", 200, `"name":"open","keys":1,`)
	s.want("GET", "/v1/kv/namespaces", "secret", "", 200, `{"namespaces":[{"name":"closed","keys":2,`)
	s.want("GET", "/v1/kv/keys/own", "", "", 404, "")
	s.want("GET", "/v1/kv/keys/own", "secret", "", 200, "")
	s.want("GET", "/v1/kv/stats", "wrong", "", 401, "opens no namespace")
	s.want("POST", "/v1/kv/flush?namespace=closed", "", "", 400, "the one to be emptied, open")
	s.want("POST", "/v1/kv/flush", "secret", "", 400, "the one to be emptied, closed")
	s.want("POST", "/v1/kv/flush?namespace=closed", "secret", "", 200, `{"namespace":"closed","removed_keys":2}`)
	s.want("GET", "/v1/kv/namespaces", "secret", "", 200, `"keys":0,`)
	s.want("GET", "/v1/kv/namespaces", "", "", 200, `"keys":1,`)

	u, err := url.Parse(s.url + "/v1/kv/namespaces")
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("default", "secret")
	resp, err := http.Get(u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("with the token as a password: %s", resp.Status)
	}
}

// Where every namespace has a token nothing is open but health and figures.
func TestNoOpenNamespace(t *testing.T) {
	s := newStage(t, kvstore.Options{Namespaces: both()[1:]})
	s.want("GET", "/v1/kv/stats", "", "", 401, "Authorization: Bearer")
	s.want("GET", "/healthz", "", "", 200, `{"status":"ok"}`)
	s.want("GET", "/metrics", "", "", 200, "dynago_kvstore_keys")
	s.want("GET", "/v1/kv/none", "secret", "", 404, "there is no /v1/kv/none")
	s.want("PUT", "/v1/kv/stats", "secret", "", 405, "PUT is not for this path")
}

// From another machine, a page in a browser, or by way of a proxy nobody changes
// what has no token.
func TestChangesFromElsewhere(t *testing.T) {
	s := newStage(t, kvstore.Options{Namespaces: both()})
	s.put("", "a")
	flush := func(local net.Addr, change func(*http.Request)) int {
		r := httptest.NewRequest("POST", "/v1/kv/flush?namespace=open", nil)
		r.Host = "localhost:6880"
		change(r)
		w := httptest.NewRecorder()
		s.http.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
		return w.Code
	}
	here, network := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, c := range []struct {
		what   string
		local  net.Addr
		change func(*http.Request)
		want   int
	}{
		{"another machine", network, func(*http.Request) {}, 403},
		{"a proxy", here, func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.2") }, 403},
		{"a page", here, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		{"a page whose name leads here", here, func(r *http.Request) {
			r.Host = "pages.example:6880"
			r.Header.Set("Origin", "http://pages.example:6880")
		}, 403},
		{"a token that is none", network, func(r *http.Request) { r.Header.Set("Authorization", "Digest x") }, 401},
		{"an empty token", network, func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		{"a user without a password", network, func(r *http.Request) { r.SetBasicAuth("default", "") }, 403},
		{"a token of another namespace", network, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }, 400},
		{"no address", nil, func(*http.Request) {}, 403},
		{"here", here, func(*http.Request) {}, 200},
		{"here by address", here, func(r *http.Request) { r.Host = "[::1]" }, 200},
	} {
		if got := flush(c.local, c.change); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

func TestReady(t *testing.T) {
	s := newStage(t, kvstore.Options{})
	s.put("", "a") // it serves
	s.want("GET", "/readyz", "", "", 200, `{"status":"ready"}`)
	if err := s.store.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("GET", "/readyz", "", "", 503, "not serving")
	s.want("GET", "/healthz", "", "", 200, "ok")
}

func TestMetrics(t *testing.T) {
	s := newStage(t, kvstore.Options{Namespaces: both(), Lease: -1, PinBudget: 0.25})
	s.put("secret", "a", "b", "a")
	s.want("POST", "/v1/kv/pins", "secret", `{"key":"a","ttl_ms":60000}`, 200, "")
	s.send("secret", []string{"GET", "a"}, []string{"GET", "none"})
	s.want("POST", "/v1/kv/prefetch", "secret", `{"keys":["a","none"],"timeout_ms":1000}`, 200, `{"requested":2,"already":1,"loaded":0,"failed":0,"missing":1,"loaded_bytes":0}`)
	s.want("POST", "/v1/kv/prefetch", "secret", `{"keys":[]}`, 400, "0 keys")
	s.want("POST", "/v1/kv/prefetch", "secret", `{"keys":["a"],"timeout_ms":-1}`, 400, "timeout_ms")
	s.want("GET", "/v1/kv/keys/a", "secret", "", 200, `"tiers":["memory"]`)
	page := s.ask("GET", "/metrics", "", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page.body))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string, labels ...string) float64 {
		f := families[name]
		if f == nil {
			t.Errorf("no %s", name)
			return 0
		}
	next:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetName()+"="+l.GetValue() != labels[i] {
					continue next
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		t.Errorf("no %s with %v", name, labels)
		return 0
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"kvbm_allocations_total", []string{"pool=host"}, 3},
		{"kvbm_evictions_total", []string{"pool=host"}, 0},
		{"kvbm_offload_blocks_h2d", nil, 0},
		{"kvbm_host_cache_hit_rate", nil, 0.5},
		{"kvbm_disk_cache_hit_rate", nil, 0},
		{"dynago_kvstore_pool_hits_total", []string{"pool=host"}, 1},
		{"kvbm_registrations_total", []string{"pool=host"}, 2},
		{"kvbm_duplicate_blocks_total", []string{"pool=host"}, 1},
		{"kvbm_inactive_pool_size", []string{"pool=host"}, 2},
		{"dynago_kv_evictions_total", []string{"class=plain", "pool=host"}, 0},
		{"dynago_kv_pin_requests_total", []string{"outcome=full"}, 1},
		{"dynago_kv_pinned_blocks", []string{"kind=soft", "pool=host"}, 1},
		{"dynago_kv_pinned_blocks", []string{"kind=hard", "pool=host"}, 0},
		{"dynago_kv_session_blocks", []string{"state=idle"}, 0},
		{"dynago_kv_retention_expired_total", nil, 0},
		{"dynago_kv_prefetch_blocks_total", []string{"outcome=already", "tier=host"}, 1},
		{"dynago_kv_prefetch_blocks_total", []string{"outcome=missing", "tier=none"}, 1},
		{"dynago_kv_prefetch_wasted_blocks_total", nil, 0},
		{"dynago_kvstore_commands_total", []string{"command=SET"}, 3},
		{"dynago_kvstore_commands_failed_total", []string{"command=SET"}, 0},
		{"dynago_kvstore_keys", []string{"namespace=closed"}, 2},
		{"dynago_kvstore_pinned_bytes", []string{"namespace=closed"}, 1000},
	} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s%v: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if strings.Contains(page.body, "secret") {
		t.Error("the page shows a token")
	}
}

func Example() {
	driver, err := memory.New(memory.Options{Capacity: 1 << 20})
	if err != nil {
		panic(err)
	}
	defer driver.Close()
	store, err := kvstore.New(kvstore.Options{Driver: driver})
	if err != nil {
		panic(err)
	}
	side, err := admin.New(admin.Options{Store: store})
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	side.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 503 {"status":"not serving"}
}
