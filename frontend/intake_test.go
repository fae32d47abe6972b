package frontend_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/dynago/dynago/frontend"
)

func compressed(t testing.TB, encoding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "deflate":
		w = zlib.NewWriter(&b)
	case "bare deflate":
		w, err = flate.NewWriter(&b, 5)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

func TestContentType(t *testing.T) {
	s := start(t, newFake())
	for contentType, want := range map[string]int{
		"": 200, "application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200,
		"application/vnd.api+json": 200,
		"text/plain":               415, "application/jsonx": 415, "text/x+json": 415, ";": 415, "application/x-www-form-urlencoded": 415,
	} {
		a := s.do("POST", "/v1/chat/completions", ask, "Content-Type", contentType)
		if a.status != want {
			t.Errorf("%q: %d %s, want %d", contentType, a.status, a.body, want)
		}
		if want == 415 && !strings.Contains(a.body, "Expected request with Content-Type application/json") {
			t.Errorf("%q: %s", contentType, a.body)
		}
	}
}

func TestContentEncoding(t *testing.T) {
	s := start(t, newFake())
	for _, c := range []struct {
		header, body string
		status       int
	}{
		{"gzip", compressed(t, "gzip", ask), 200},
		{"GZIP", compressed(t, "gzip", ask), 200},
		{"zstd", compressed(t, "zstd", ask), 200},
		{"deflate", compressed(t, "deflate", ask), 200},
		{"deflate", compressed(t, "bare deflate", ask), 200},
		{"identity", ask, 200},
		{"br", ask, 415},
		{"gzip, zstd", ask, 415},
		{"gzip", ask, 400},
		{"zstd", ask, 400},
		{"deflate", ask, 400},
		{"deflate", "", 400},
		{"gzip", compressed(t, "gzip", ask)[:40], 400},
		{"zstd", compressed(t, "zstd", ask)[:30], 400},
		{"zstd", compressed(t, "zstd", ask) + "trailing", 400},
	} {
		a := s.do("POST", "/v1/chat/completions", c.body, "Content-Encoding", c.header)
		if a.status != c.status {
			t.Errorf("%s of %.20q: %d %s, want %d", c.header, c.body, a.status, a.body, c.status)
		}
	}
}

// The limit holds for what arrives and for what it becomes, on every route that
// takes a body, and small bombs do not get large.
func TestBodyLimit(t *testing.T) {
	backend := newFake()
	s := start(t, backend, func(c *frontend.Config) { c.BodyLimit = 1 << 20 })
	fits := strings.Replace(ask, "secret", strings.Repeat("x", 1<<20-len(ask)+len("secret")), 1)
	bombs := map[string]string{}
	for _, encoding := range []string{"gzip", "zstd", "deflate"} {
		bombs[encoding] = compressed(t, encoding, strings.Repeat("x", 16<<20))
	}
	large := strings.Replace(ask, "secret", strings.Repeat("x", 1<<20), 1)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"} {
		for _, encoding := range []string{"", "gzip", "zstd", "deflate"} {
			body := large
			if encoding != "" {
				body = bombs[encoding]
			}
			a := s.do("POST", path, body, "Content-Encoding", encoding)
			if a.status != 413 || !strings.Contains(a.body, "limit of 1 MB set by DYN_HTTP_BODY_LIMIT_MB") {
				t.Errorf("%s %q: %d %s", path, encoding, a.status, a.body)
			}
		}
	}
	w := s.wire()
	w.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n")
	if a := w.answer(); a.status != 413 {
		t.Errorf("a body that says that it is too large: %d %s", a.status, a.body)
	}
	if a := s.do("POST", "/v1/chat/completions", fits); a.status != 200 {
		t.Errorf("a body of exactly the limit: %d %s", a.status, a.body)
	}
	if n := len(backend.requests()); n != 1 {
		t.Errorf("%d requests came through", n)
	}
}

func TestBadBodies(t *testing.T) {
	s := start(t, newFake())
	for body, param := range map[string]string{
		"": "", "{": "", "null": "", "[]": "", "{}x": "",
		`{"model":"demo"}`: "messages",
		`{"model":5,"messages":[{"role":"user","content":"x"}]}`:                          "model",
		`{"model":"demo","messages":"x"}`:                                                 "messages",
		`{"model":"demo","messages":[{"role":"user","content":"x"}],"temperature":9}`:     "temperature",
		`{"model":"demo","messages":[{"role":"user","content":"x"}],"stream":"yes"}`:      "stream",
		`{"model":"demo","messages":[{"role":"user","content":"x"}],"max_tokens":"many"}`: "max_tokens",
	} {
		a := s.do("POST", "/v1/chat/completions", body)
		var got struct {
			Error struct{ Message, Type, Param string }
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 400 || got.Error.Type != "invalid_request_error" || got.Error.Param != param {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, body := range []string{
		"{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"raw\nnewline\"}]}",
		"{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
		`{"model":"demo","messages":[{"role":"user","content":"\ud800 lone \u0000"}]}`,
	} {
		if a := s.do("POST", "/v1/chat/completions", body); a.status != 200 {
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
	}
	if strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Errorf("log:\n%s", s.log)
	}
}

func TestUnknownModel(t *testing.T) {
	s := start(t, newFake())
	for _, stream := range []string{"true", "false"} {
		a := s.do("POST", "/v1/chat/completions", `{"model":"nobody","stream":`+stream+`,"messages":[{"role":"user","content":"x"}]}`)
		if a.status != 404 || !strings.Contains(a.body, `"code":"model_not_found"`) || !strings.Contains(a.body, `"param":"model"`) {
			t.Errorf("stream %s: %d %s", stream, a.status, a.body)
		}
	}
}

// A body that trickles in, or never ends, costs a connection for a while and
// no more.
func TestSlowBody(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.ReadTimeout = 50 * time.Millisecond })
	for name, head := range map[string]string{
		"inference": "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"mod",
		"other":     "GET /live HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
	} {
		conn := raw(t, s, head)
		answer, err := io.ReadAll(conn)
		conn.Close()
		want := "HTTP/1.1 408 "
		if name == "other" {
			want = "HTTP/1.1 200 "
		}
		if err != nil || !strings.HasPrefix(string(answer), want) {
			t.Errorf("%s: %q %v", name, answer, err)
		}
	}
}

// A header that never ends is cut, one that is too large is refused.
func TestBadHeaders(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.HeaderTimeout = 50 * time.Millisecond })
	conn := raw(t, s, "GET /live HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	defer conn.Close()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("slow header: %v", err)
	}
	conn = raw(t, s, "GET /live HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 80<<10)+"\r\n\r\n")
	defer conn.Close()
	answer, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
		t.Errorf("large header: %q", answer)
	}
}

func TestTruncatedBody(t *testing.T) {
	s := start(t, newFake())
	conn := raw(t, s, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(ask), ask[:20]))
	defer conn.Close()
	conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "Failed to read request body") {
		t.Errorf("%q", answer)
	}
}

// A body that is not what its header says is told so.
func TestLyingEncoding(t *testing.T) {
	s := start(t, newFake())
	for _, encoding := range []string{"gzip", "zstd", "deflate"} {
		answer := s.do("POST", "/v1/chat/completions", ask, "Content-Encoding", encoding)
		if answer.status != 400 || !strings.Contains(answer.body, "it is not "+encoding) {
			t.Errorf("%s: %d %s", encoding, answer.status, answer.body)
		}
	}
}

func raw(t *testing.T, s *server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestTokenize(t *testing.T) {
	s := start(t, newFake())
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/tokenize", `{"model":"demo","prompt":"x"}`, 200, `{"tokens":[1,2,3],"count":3,"max_model_len":4096}`},
		{"/v1/tokenize", `{"model":"demo","messages":[{"role":"user","content":"x"}]}`, 200, `{"tokens":[1,2,3],"count":3,"max_model_len":4096}`},
		{"/detokenize", `{"model":"demo","tokens":[1,2]}`, 200, `{"prompt":"xx"}`},
		{"/v1/detokenize", `{"model":"demo","tokens":[]}`, 200, `{"prompt":""}`},
		{"/tokenize", `{"model":"nobody","prompt":"x"}`, 404, ""},
		{"/tokenize", `{"model":"demo"}`, 400, ""},
		{"/detokenize", `{"model":"demo","tokens":"x"}`, 400, ""},
	} {
		a := s.do("POST", c.path, c.body)
		if a.status != c.status || c.want != "" && a.body != c.want {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
	}
}

// FuzzBody sends arbitrary bodies in every encoding: nothing panics, and what a
// client sends is never a fault of the server.
func FuzzBody(f *testing.F) {
	f.Add([]byte(ask), byte(0))
	f.Add([]byte(askStream), byte(0))
	f.Add([]byte(`{"model":"demo","prompt":[[1,2],[3]],"n":2,"logprobs":1}`), byte(8))
	f.Add([]byte(`{"model":"demo","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}]}`), byte(0))
	for i, encoding := range []string{"gzip", "zstd", "deflate", "bare deflate"} {
		f.Add([]byte(compressed(f, encoding, ask)), byte(i+1))
	}
	backend := newFake()
	s, err := frontend.New(frontend.Config{Backend: backend, BodyLimit: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	encodings := []string{"", "gzip", "zstd", "deflate", "deflate", "br", "identity", ","}
	paths := []string{"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}
	f.Fuzz(func(t *testing.T, body []byte, how byte) {
		r, err := http.NewRequest("POST", "http://x"+paths[how/8%4], bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Encoding", encodings[how%8])
		w := &recorder{header: http.Header{}}
		s.Handler().ServeHTTP(w, r)
		backend.mu.Lock()
		backend.seen = nil
		backend.mu.Unlock()
		if w.status < 200 || w.status >= 500 && w.status != 501 {
			t.Errorf("%d %s", w.status, w.body.String())
		}
		if strings.Contains(w.body.String(), `"status":5`) {
			t.Errorf("a failing stream: %s", w.body.String())
		}
	})
}

// recorder is a ResponseWriter without a connection.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(200)
	return r.body.Write(b)
}

func (r *recorder) FlushError() error { return nil }
