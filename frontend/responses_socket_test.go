package frontend_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	errs "github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses/store"
	"github.com/dynago/dynago/pipeline"
)

// talker is a client on a WebSocket.
type talker struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
}

// told is what tests look at in a message.
type told struct {
	Type     string
	Sequence int `json:"sequence_number"`
	Delta    string
	Response response
	Status   int
	Error    struct{ Type, Code, Message, Param string }
}

func (s *server) talk(header ...string) *talker {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	s.t.Cleanup(cancel)
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	conn, _, err := websocket.Dial(ctx, s.url+"/v1/responses", &websocket.DialOptions{HTTPHeader: h}) //nolint:bodyclose // there is none
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	s.t.Cleanup(func() { conn.CloseNow() })
	return &talker{s.t, conn, ctx}
}

func (c *talker) send(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *talker) next() told {
	c.t.Helper()
	_, b, err := c.conn.Read(c.ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	var m told
	if err := json.Unmarshal(b, &m); err != nil {
		c.t.Fatalf("%v: %s", err, b)
	}
	return m
}

// ask sends a request and reads to the end of its answer.
func (c *talker) ask(members string) told {
	c.t.Helper()
	c.send(`{"type":"response.create","model":"demo",` + members + `}`)
	for n := 0; ; n++ {
		m := c.next()
		switch m.Type {
		case "error":
			return m
		case "response.completed", "response.incomplete", "response.failed":
			if m.Sequence != n {
				c.t.Fatalf("message %d has the number %d", n, m.Sequence)
			}
			return m
		}
		if m.Sequence != n {
			c.t.Fatalf("message %d has the number %d", n, m.Sequence)
		}
	}
}

// fails wants an error of a code.
func (m told) fails(t *testing.T, status int, code string) {
	t.Helper()
	if m.Type != "error" || m.Status != status || m.Error.Code != code || m.Error.Type != "invalid_request_error" || m.Error.Message == "" {
		t.Fatalf("message: %+v, want the error %s", m, code)
	}
}

func TestSocketSendsTheEventsOfStreams(t *testing.T) {
	s := start(t, newFake())
	c := s.talk()
	c.send(`{"type":"response.create","model":"demo","input":"one","stream":false,"stream_options":null}`)
	live := s.do("POST", "/v1/responses", `{"model":"demo","stream":true,"input":"one"}`).body
	for frame := range strings.SplitSeq(strings.TrimSuffix(live, "data: [DONE]\n\n"), "\n\n") {
		if frame == "" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(frame, "event: "), "\n")
		if m := c.next(); m.Type != name {
			t.Fatalf("message %s, want %s", m.Type, name)
		}
	}
	// Nothing stands behind the end.
	if m := c.ask(`"input":"two"`); m.Response.text() != "Hello world" || m.Response.Status != "completed" {
		t.Fatalf("second: %+v", m)
	}
}

func TestSocketRemembersItsLastResponse(t *testing.T) {
	f := newFake()
	s := start(t, f)
	c := s.talk()
	first := c.ask(`"store":false,"input":"one"`)
	second := c.ask(`"store":false,"previous_response_id":"` + first.Response.ID + `","input":"two"`)
	third := c.ask(`"store":false,"previous_response_id":"` + second.Response.ID + `","input":"three"`)
	if got := f.lastSaid(); got != "user: one\nassistant: Hello world\nuser: two\nassistant: Hello world\nuser: three\n" {
		t.Fatalf("the model sees\n%s", got)
	}
	// Only the last one.
	c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	// And not after a failure.
	c.ask(`"store":false,"previous_response_id":"`+third.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	// A new chain begins as ever.
	if m := c.ask(`"store":false,"input":"one"`); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
}

func TestSocketForgetsWithItsConnection(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	first := s.talk().ask(`"store":false,"input":"one"`)
	c := s.talk()
	c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	if m := c.ask(`"store":false,"input":"again"`); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
	// What is stored can be continued anywhere.
	stored := s.talk().ask(`"input":"one"`)
	if m := c.ask(`"previous_response_id":"` + stored.Response.ID + `","input":"two"`); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
	parse[response](t, s.do("GET", "/v1/responses/"+stored.Response.ID, ""))
}

func TestSocketFailedContinuationForgets(t *testing.T) {
	f := newFake()
	s := start(t, f)
	fail := false
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		if fail {
			return then(beginning(), func(yield func(chat.Event, error) bool) {
				yield(chat.Event{}, &engine.Error{Kind: engine.Internal})
			})
		}
		return hello(1)
	}
	t.Run("unknown call", func(t *testing.T) {
		c := s.talk()
		first := c.ask(`"store":false,"input":"one"`)
		c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":[{"type":"function_call_output","call_id":"call_x","output":"?"}]`).fails(t, 400, "invalid_value")
		c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	})
	t.Run("malformed", func(t *testing.T) {
		c := s.talk()
		first := c.ask(`"store":false,"input":"one"`)
		c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":7`).fails(t, 400, "invalid_value")
		c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	})
	t.Run("in the middle", func(t *testing.T) {
		c := s.talk()
		first := c.ask(`"store":false,"input":"one"`)
		fail = true
		failed := c.ask(`"store":false,"previous_response_id":"` + first.Response.ID + `","input":"two"`)
		if failed.Type != "response.failed" {
			t.Fatalf("%+v", failed)
		}
		fail = false
		c.ask(`"store":false,"previous_response_id":"`+failed.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
		c.ask(`"store":false,"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	})
}

// TestSocketForgetsWhatEndsTooEarly looks at an answer without an end.
func TestSocketForgetsWhatEndsTooEarly(t *testing.T) {
	f := newFake()
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return then(beginning(), func(func(chat.Event, error) bool) {})
	}
	c := start(t, f).talk()
	failed := c.ask(`"store":false,"input":"one"`)
	if failed.Type != "response.failed" {
		t.Fatalf("%+v", failed)
	}
	c.ask(`"store":false,"previous_response_id":"`+failed.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
}

func TestSocketKnowsTheCallsItMade(t *testing.T) {
	f := newFake()
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return func(yield func(chat.Event, error) bool) {
			for _, e := range []chat.Event{
				{Kind: chat.Start},
				{Kind: chat.BlockStart, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "call_1", Name: "ls"}},
				{Kind: chat.ArgsDelta, Text: "{}"},
				{Kind: chat.BlockStop},
				{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}},
			} {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	c := start(t, f).talk()
	const tools = `"store":false,"tools":[{"type":"function","name":"ls","parameters":{}}]`
	first := c.ask(tools + `,"input":"list"`)
	c.ask(tools + `,"previous_response_id":"` + first.Response.ID + `","input":[{"type":"function_call_output","call_id":"call_1","output":"a.txt"}]`)
	if got := f.lastSaid(); got != "user: list\nassistant: call ls({})\ntool: result a.txt\n" {
		t.Fatalf("the model sees\n%s", got)
	}
}

func TestSocketBeginsWithACompaction(t *testing.T) {
	f := newFake()
	s := start(t, f)
	made := parse[compaction](t, s.do("POST", "/v1/responses/compact", `{"model":"demo","input":"one"}`))
	item, _ := json.Marshal(map[string]string{"type": "compaction", "id": made.Output[0].ID, "encrypted_content": made.Output[0].EncryptedContent})
	if m := s.talk().ask(`"store":false,"tools":[],"input":[` + string(item) + `,{"type":"message","role":"user","content":"go on"}]`); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
	if got := f.lastSaid(); !strings.Contains(got, "Hello world\nuser: go on\n") {
		t.Fatalf("the model sees\n%s", got)
	}
}

func TestSocketWarmsUpWithoutAnAnswer(t *testing.T) {
	f := newFake()
	c := start(t, f).talk()
	warm := c.ask(`"store":false,"generate":false,"instructions":"be terse","input":[]`)
	if warm.Type != "response.completed" || len(warm.Response.Output) != 0 || len(f.requests()) != 0 {
		t.Fatalf("%+v, %d requests", warm, len(f.requests()))
	}
	said := c.ask(`"store":false,"generate":false,"previous_response_id":"` + warm.Response.ID + `","input":"one"`)
	c.ask(`"store":false,"previous_response_id":"` + said.Response.ID + `","input":"two"`)
	if got := f.lastSaid(); got != "user: one\nuser: two\n" {
		t.Fatalf("the model sees\n%s", got)
	}
	c.send(`{"type":"response.create","model":"other","generate":false,"input":[]}`)
	c.next().fails(t, 404, "model_not_found")
	c.ask(`"input":[]`).fails(t, 400, "invalid_value")
}

func TestSocketRefusesWhatItDoesNotSpeak(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	c := s.talk()
	for text, code := range map[string]string{
		`{"type":"session.update"}`:                "invalid_value",
		`{"model":"demo","input":"one"}`:           "invalid_value",
		`{"type":7}`:                               "invalid_value",
		`[1]`:                                      "invalid_value",
		`{"type":"response.create"`:                "invalid_value",
		`{"type":"response.create"} {}`:            "invalid_value",
		`{"type":"response.create","input":"one"}`: "missing_required_parameter",
		`{"type":"response.create","model":"demo","input":"one","background":true}`: "unsupported_parameter",
	} {
		c.send(text)
		c.next().fails(t, 400, code)
	}
	c.send(`{"type":"response.create","model":"other","input":"one"}`)
	c.next().fails(t, 404, "model_not_found")
	if err := c.conn.Write(c.ctx, websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	c.next().fails(t, 400, "invalid_value")
	// A raw line end in a string is mended, as on every route.
	if m := c.ask("\"input\":\"one\ntwo\""); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
	// Without an upgrade the route says what it wants.
	if got := s.do("GET", "/v1/responses", ""); got.status != http.StatusUpgradeRequired || got.header.Get("Upgrade") != "websocket" {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

func TestSocketMakesOneResponseAtATime(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	c := start(t, f).talk()
	c.send(`{"type":"response.create","model":"demo","input":"one"}`)
	within(t, g.reached)
	c.send(`{"type":"response.create","model":"demo","input":"two"}`)
	failed := false
	for !failed {
		if m := c.next(); m.Type == "error" {
			m.fails(t, 400, "response_in_flight")
			failed = true
		}
	}
	close(g.open)
	for c.next().Type != "response.completed" {
	}
	if m := c.ask(`"input":"three"`); m.Type != "response.completed" {
		t.Fatalf("%+v", m)
	}
}

func TestSocketThatClosesEndsItsResponse(t *testing.T) {
	g := newGate()
	f := newFake()
	ended := make(chan error, 1)
	f.run = func(ctx context.Context, r []*pipeline.Request) iter.Seq2[chat.Event, error] {
		context.AfterFunc(ctx, func() { ended <- context.Cause(ctx) })
		return g.run(ctx, r)
	}
	c := start(t, f).talk()
	c.send(`{"type":"response.create","model":"demo","input":"one"}`)
	within(t, g.reached)
	c.conn.CloseNow()
	select {
	case err := <-ended:
		if err != engine.ErrClientGone {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
}

func TestSocketOfATenant(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}), withKeys(t, "ka a\nkb b\n"))
	first := s.talk("Authorization", "Bearer ka").ask(`"input":"one"`)
	b := s.talk("Authorization", "Bearer kb")
	b.ask(`"previous_response_id":"`+first.Response.ID+`","input":"x"`).fails(t, 400, "previous_response_not_found")
	_, resp, err := websocket.Dial(b.ctx, s.url+"/v1/responses", nil)
	if err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Fatalf("without a key: %v", err)
	}
}

func TestSocketOfAnotherOrigin(t *testing.T) {
	s := start(t, newFake())
	_, resp, err := websocket.Dial(t.Context(), s.url+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}})
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("a page of another origin may talk: %v", err)
	}
}

func TestSocketTakesNoMoreThanABody(t *testing.T) {
	s := start(t, newFake(), func(c *frontend.Config) { c.BodyLimit = 1 << 10 })
	c := s.talk()
	c.send(`{"type":"response.create","model":"demo","input":"` + strings.Repeat("x", 2000) + `"}`)
	_, _, err := c.conn.Read(c.ctx)
	if websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Fatal(err)
	}
}

func TestSocketThatIsIdleIsClosed(t *testing.T) {
	s := start(t, newFake(), quickly(time.Minute, 5*time.Millisecond, time.Minute), func(c *frontend.Config) { c.SocketIdle = 50 * time.Millisecond })
	c := s.talk()
	_, _, err := c.conn.Read(c.ctx)
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Fatal(err)
	}
}

// TestSocketOfADeadClientIsClosed answers no pings.
func TestSocketOfADeadClientIsClosed(t *testing.T) {
	s := start(t, newFake(), quickly(time.Minute, 5*time.Millisecond, 50*time.Millisecond))
	ctx := t.Context()
	pinged := make(chan struct{}, 100)
	conn, _, err := websocket.Dial(ctx, s.url+"/v1/responses", &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool { //nolint:bodyclose // there is none
		pinged <- struct{}{}
		return false
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, _, err := conn.Read(ctx); err == nil {
		t.Fatal("a message comes from nowhere")
	}
	within(t, pinged)
}

func TestDrainEndsSockets(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f)
	idle, busy := s.talk(), s.talk()
	busy.send(`{"type":"response.create","model":"demo","input":"one"}`)
	within(t, g.reached)
	cut := make(chan int)
	go func() { cut <- s.Drain(context.Background()) }()
	if _, _, err := idle.conn.Read(idle.ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Fatalf("idle: %v", err)
	}
	close(g.open)
	for {
		_, b, err := busy.conn.Read(busy.ctx)
		if err != nil {
			t.Fatalf("busy: %v before the end of its response", err)
		}
		if strings.Contains(string(b), "response.completed") {
			break
		}
	}
	if _, _, err := busy.conn.Read(busy.ctx); err == nil {
		t.Fatal("busy: it stays open")
	}
	if n := <-cut; n != 0 {
		t.Fatalf("%d were cut", n)
	}
}

func TestSocketLongConversation(t *testing.T) {
	f := newFake()
	c := start(t, f).talk()
	previous := ""
	for i := range 50 {
		m := c.ask(fmt.Sprintf(`"store":false,"previous_response_id":%q,"input":"turn %d"`, previous, i))
		previous = m.Response.ID
	}
	if got := strings.Count(f.lastSaid(), "\n"); got != 99 {
		t.Fatalf("%d turns", got)
	}
}

// FuzzCreateBody reads any message. What is taken must be an object that holds
// what the message holds, but for what only a connection needs.
func FuzzCreateBody(f *testing.F) {
	f.Add([]byte(`{"type":"response.create","model":"m","input":[{"role":"user","content":"\u00e9\ud800"}],"generate":false,"stream":true}`))
	f.Add([]byte("{\"type\":\"response.create\",\"input\":\"a\nb\"}"))
	f.Add([]byte(`{"type":7}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, generate, err := frontend.CreateBody(b)
		if err != nil {
			if errs.ErrorOf(err, 0).Status != http.StatusBadRequest {
				t.Fatalf("%v is no fault of the client", err)
			}
			return
		}
		var got, sent map[string]json.RawMessage
		if json.Unmarshal(b, &sent) != nil {
			return // it was mended
		}
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%q became %q: %v", b, body, err)
		}
		if v, ok := sent["generate"]; generate == (ok && string(v) == "false") {
			t.Fatalf("generate: %v for %q", generate, b)
		}
		for _, name := range []string{"type", "generate", "stream", "stream_options"} {
			delete(sent, name)
		}
		if len(got) != len(sent) {
			t.Fatalf("%q became %q", b, body)
		}
		for name, value := range sent {
			if string(got[name]) != string(value) {
				t.Fatalf("%s: %q became %q", name, value, got[name])
			}
		}
	})
}
