package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

func client(t *testing.T, h http.HandlerFunc) *httpapi.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := httpapi.New(httpapi.Config{URL: s.URL + "/base/", Key: "secret", Header: http.Header{"X-Extra": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRequests(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), r.Header.Get("X-Extra"), r.Header.Get("Content-Type"), body)
	})
	for _, tc := range []struct {
		got  func() ([]byte, error)
		want string
	}{
		{func() ([]byte, error) { return c.Get(t.Context(), "/v1/models?x=1") }, "GET /base/v1/models?x=1 Bearer secret 1  "},
		{func() ([]byte, error) {
			return c.Post(t.Context(), "/generate", http.Header{"X-Extra": {"2"}}, []byte(`{}`))
		}, "POST /base/generate Bearer secret 2 application/json {}"},
	} {
		got, err := tc.got()
		if err != nil || string(got) != tc.want {
			t.Errorf("got %q, %v; want %q", got, err, tc.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"http://h:8000": true, "https://h/x": true, "http://[::1]:8000": true,
		"h:8000": false, "ftp://h": false, "http://": false, "http://h?x=1": false, "http://h#x": false, "": false,
	} {
		if _, err := httpapi.New(httpapi.Config{URL: address}); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	for _, c := range []struct {
		status  int
		body    string
		kind    engine.ErrorKind
		message string
	}{
		{400, `{"error":{"message":"bad temperature","param":"temperature"}}`, engine.InvalidArgument, "bad temperature"},
		{400, `{"object":"error","message":"too long","code":400}`, engine.InvalidArgument, "too long"},
		{422, `{"detail":[{"loc":["body","prompt"],"msg":"missing"}]}`, engine.InvalidArgument, `[{"loc":["body","prompt"],"msg":"missing"}]`},
		{400, `{"error":{"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, engine.InvalidArgument, "the request exceeds the available context size, try increasing it"},
		{413, ``, engine.InvalidArgument, ""},
		{401, `{"error":"Unauthorized"}`, engine.Denied, "Unauthorized"},
		{404, `{"error":{"message":"The model x does not exist"}}`, engine.NotFound, "The model x does not exist"},
		{404, `{"detail":"Not Found"}`, engine.Unsupported, "Not Found"},
		{405, ``, engine.Unsupported, ""},
		{429, `{"error":{"message":"slow down"}}`, engine.WorkerOverloaded, "slow down"},
		{503, `{"error":{"message":"Request queue is full"}}`, engine.WorkerOverloaded, "Request queue is full"},
		{503, `{"error":{"message":"Loading model","code":503}}`, engine.Unavailable, "Loading model"},
		{502, `<html>`, engine.Unavailable, ""},
		{500, `{"error":{"message":"CUDA"}}`, engine.Internal, "CUDA"},
		{301, ``, engine.Internal, ""},
	} {
		client := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		_, err := client.Get(t.Context(), "/")
		e, ok := errors.AsType[*engine.Error](err)
		if !ok || e.Kind != c.kind || e.Message != c.message || !e.FromEngine || e.Status != c.status || e.RetryAfter != 7*time.Second {
			t.Errorf("%d %s: got %+v, want %s %q", c.status, c.body, e, c.kind, c.message)
			continue
		}
		// Where the engine has no word for it, what was asked and the status stand there.
		if asked := fmt.Sprintf("GET /: status %d: ", c.status); strings.HasPrefix(e.Error(), asked) != (c.message == "") {
			t.Errorf("%d %s: %q", c.status, c.body, e.Error())
		}
	}
}

// A prompt that is too long is told by each engine in words of its own.
func TestTooLong(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"This model's maximum context length is 8 tokens. However, you requested 9."}}`:                              "context_length_exceeded",
		`{"error":{"message":"The decoder prompt (length 9) is longer than the maximum model length of 8."}}`:                             "context_length_exceeded",
		`{"error":{"message":"The input (9 tokens) is longer than the model's context length (8 tokens)."}}`:                              "context_length_exceeded",
		`{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (8)","type":"exceed_context_size_error"}}`: "context_length_exceeded",
		`{"object":"error","message":"The sum of prompt length (9) and max_tokens (1) should not exceed max_seq_len (8)"}`:                "context_length_exceeded",
		`{"error":{"message":"temperature must be at least 0"}}`:                                                                          "",
	} {
		if e := httpapi.ErrorOf(400, nil, []byte(body)); e.Code != want {
			t.Errorf("%s: code %q, want %q", body, e.Code, want)
		}
	}
}

// What cannot be reached is told apart from what hangs up.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c, err := httpapi.New(httpapi.Config{URL: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "/"); engine.KindOf(err) != engine.CannotConnect {
		t.Errorf("nobody listens: %v", err)
	}
	hangs := client(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := hangs.Get(t.Context(), "/"); engine.KindOf(err) != engine.Disconnected {
		t.Errorf("it hangs up: %v", err)
	}
	plain := client(t, func(http.ResponseWriter, *http.Request) {})
	secret, err := httpapi.New(httpapi.Config{URL: strings.Replace(plain.URL(), "http:", "https:", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secret.Get(t.Context(), "/"); engine.KindOf(err) != engine.CannotConnect {
		t.Errorf("it speaks plainly: %v", err)
	}
}

func TestStreams(t *testing.T) {
	for name, c := range map[string]struct {
		kind string
		body string
		want []string
		err  engine.ErrorKind
	}{
		"events":       {"text/event-stream; charset=utf-8", "data: 1\n\ndata: 2\n\ndata: [DONE]\n\ndata: 3\n\n", []string{"1", "2"}, ""},
		"cut":          {"text/event-stream", "data: 1\n\ndata: 2", []string{"1", "2"}, ""},
		"a page":       {"text/html", "<html>", nil, engine.Internal},
		"error in 200": {"application/json", `{"error":{"message":"no"}}`, nil, engine.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			client := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				io.WriteString(w, c.body)
			})
			var got []string
			var failed error
			for data, err := range client.Stream(t.Context(), "/", nil, []byte(`{}`)) {
				if err != nil {
					failed = err
					break
				}
				got = append(got, string(data))
			}
			if !slices.Equal(got, c.want) || c.err == "" && failed != nil || c.err != "" && engine.KindOf(failed) != c.err {
				t.Errorf("got %q, %v", got, failed)
			}
		})
	}
}

// Leaving the loop, and the end of the context, close the connection.
func TestCancellation(t *testing.T) {
	gone := make(chan struct{}, 2)
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for range c.Stream(t.Context(), "/", nil, []byte(`{}`)) {
		break
	}
	<-gone
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var err error
	for _, e := range c.Stream(ctx, "/", nil, []byte(`{}`)) {
		cancel(engine.ErrFirstItem)
		err = e
	}
	<-gone
	if engine.KindOf(err) != engine.ResponseTimeout {
		t.Errorf("got %v, want the cause of the context", err)
	}
}

// Events are the same however they are cut into packets, whatever stands between
// them, and whichever line endings they have.
func TestEventsAnyCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end")
		var doc strings.Builder
		var want []string
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			lines := rapid.SliceOfN(rapid.StringMatching(`[a-z{}: ]{0,12}`), 1, 3).Draw(t, "lines")
			for i, line := range lines {
				if line != "" && line[0] == ' ' {
					lines[i] = "x" + line
				}
				if rapid.Bool().Draw(t, "comment") {
					doc.WriteString(": ping" + end)
				}
				if rapid.Bool().Draw(t, "field") {
					doc.WriteString("event: x" + end + "id: 7" + end)
				}
				doc.WriteString(rapid.SampledFrom([]string{"data:", "data: "}).Draw(t, "blank") + lines[i] + end)
			}
			doc.WriteString(end)
			want = append(want, strings.Join(lines, "\n"))
		}
		if rapid.Bool().Draw(t, "done") {
			doc.WriteString("data: [DONE]" + end + end + "data: more" + end + end)
		}
		for _, r := range []io.Reader{strings.NewReader(doc.String()), iotest.OneByteReader(strings.NewReader(doc.String())), iotest.DataErrReader(strings.NewReader(doc.String()))} {
			var got []string
			for data, err := range httpapi.Events(r) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(data))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%q: got %q, want %q", doc.String(), got, want)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: 1\r\n\r\n: x\ndata:2\ndata: 3\n\ndata: [DONE]\n\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var once, again []string
		for data, err := range httpapi.Events(strings.NewReader(string(doc))) {
			if err != nil {
				t.Fatal(err)
			}
			once = append(once, string(data))
		}
		for data, err := range httpapi.Events(iotest.OneByteReader(strings.NewReader(string(doc)))) {
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, string(data))
		}
		if !slices.Equal(once, again) {
			t.Fatalf("%q: %q, and in single bytes %q", doc, once, again)
		}
	})
}

func FuzzTold(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"x","code":5}}`))
	f.Add([]byte(`{"object":"error","message":"x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if told := httpapi.Told(body); len(told.Message) > 2100 {
			t.Fatalf("a message of %d bytes", len(told.Message))
		}
	})
}

func TestAppendIDs(t *testing.T) {
	if got := string(httpapi.AppendIDs(nil, []uint32{0, 7, 1<<32 - 1})); got != "[0,7,4294967295]" {
		t.Error(got)
	}
	if got := string(httpapi.AppendIDs(nil, nil)); got != "[]" {
		t.Error(got)
	}
}

func BenchmarkEvents(b *testing.B) {
	doc := strings.Repeat("data: {\"choices\":[{\"token_ids\":[123],\"text\":\"abc\"}]}\n\n", 1000)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range httpapi.Events(strings.NewReader(doc)) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func ExampleEvents() {
	for data := range httpapi.Events(strings.NewReader("data: {\"n\":1}\n\n: ping\n\ndata: [DONE]\n\n")) {
		fmt.Printf("%s\n", data)
	}
	// Output: {"n":1}
}
