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

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/openai/responses/store"
	"github.com/dynago/dynago/pipeline"
)

// storing gives a server a store in memory.
func storing(t *testing.T, o store.Options) func(*frontend.Config) {
	t.Helper()
	s, err := store.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *frontend.Config) { c.ResponsesStore = s }
}

// response is what tests look at in a response object.
type response struct {
	ID, Object, Status string
	Background         bool
	Output             []struct {
		ID, Type, Status string
		Content          []struct{ Text string }
	}
	Error *struct{ Code, Message string }
	Usage *struct {
		InputTokens int `json:"input_tokens"`
	}
}

func (r response) text() string {
	var b strings.Builder
	for _, item := range r.Output {
		for _, part := range item.Content {
			b.WriteString(part.Text)
		}
	}
	return b.String()
}

func parse[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// create posts a response.
func (s *server) create(body string, header ...string) response {
	s.t.Helper()
	return parse[response](s.t, s.do("POST", "/v1/responses", body, header...))
}

// refused wants an error of a status and a code.
func refused(t *testing.T, a answer, status int, code string) {
	t.Helper()
	var body struct {
		Error struct{ Code, Param, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.status != status || body.Error.Code != code {
		t.Fatalf("%d %s, want %d %s", a.status, a.body, status, code)
	}
}

// said renders the turns that reached the backend.
func said(turns []chat.Turn) string {
	var b strings.Builder
	for _, turn := range turns {
		fmt.Fprintf(&b, "%s:", turn.Role)
		for _, block := range turn.Blocks {
			switch {
			case block.Use != nil:
				fmt.Fprintf(&b, " call %s(%s)", block.Use.Name, block.Use.Args)
			case block.Result != nil:
				fmt.Fprintf(&b, " result %s", block.Result.Blocks[0].Text)
			default:
				fmt.Fprintf(&b, " %s", block.Text)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (f *fake) lastSaid() string {
	all := f.requests()
	return said(all[len(all)-1].Chat.Turns)
}

func TestResponsesGoOn(t *testing.T) {
	f := newFake()
	s := start(t, f, storing(t, store.Options{}))
	first := s.create(`{"model":"demo","instructions":"be terse","input":"one","temperature":0.5}`)
	second := s.create(`{"model":"demo","previous_response_id":"` + first.ID + `","input":[{"role":"user","content":"two"}]}`)
	s.create(`{"model":"demo","previous_response_id":"` + second.ID + `","input":"three"}`)
	const want = "user: one\nassistant: Hello world\nuser: two\nassistant: Hello world\nuser: three\n"
	if got := f.lastSaid(); got != want {
		t.Fatalf("the model sees\n%swant\n%s", got, want)
	}
	last := f.requests()[2].Chat
	if len(last.System) != 0 || last.Sampling.Temperature != nil {
		t.Fatalf("instructions or sampling are inherited: %+v", last)
	}
	// The same response can be continued twice.
	s.create(`{"model":"demo","previous_response_id":"` + first.ID + `","input":"other"}`)
	if got := f.lastSaid(); got != "user: one\nassistant: Hello world\nuser: other\n" {
		t.Fatalf("the model sees\n%s", got)
	}
	// What is deleted cannot be continued, but what has continued it can.
	s.do("DELETE", "/v1/responses/"+first.ID, "")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+first.ID+`","input":"x"}`), 400, "previous_response_not_found")
	s.create(`{"model":"demo","previous_response_id":"` + second.ID + `","input":"three"}`)
	if got := f.lastSaid(); got != want {
		t.Fatalf("the model sees\n%swant\n%s", got, want)
	}
}

func TestStreamedResponsesGoOnAtOnce(t *testing.T) {
	f := newFake()
	s := start(t, f, storing(t, store.Options{Dir: t.TempDir()}))
	previous := ""
	for range 5 {
		body := s.do("POST", "/v1/responses", `{"model":"demo","stream":true,"previous_response_id":"`+previous+`","input":"next"}`).body
		_, rest, _ := strings.Cut(body, `"id":"resp_`)
		id, _, _ := strings.Cut(rest, `"`)
		previous = "resp_" + id
	}
	if got := strings.Count(f.lastSaid(), "assistant: Hello world\n"); got != 4 {
		t.Fatalf("%d earlier answers", got)
	}
}

func TestItemsCanBeReferredTo(t *testing.T) {
	f := newFake()
	s := start(t, f, storing(t, store.Options{}))
	first := s.create(`{"model":"demo","input":"one"}`)
	item := first.Output[0].ID
	second := s.create(`{"model":"demo","input":[{"role":"user","content":"one"},{"type":"item_reference","id":"` + item + `"},{"role":"user","content":"two"}]}`)
	if got := f.lastSaid(); got != "user: one\nassistant: Hello world\nuser: two\n" {
		t.Fatalf("the model sees\n%s", got)
	}
	// The item outlives the response that it came from, in the one that refers to it.
	s.do("DELETE", "/v1/responses/"+first.ID, "")
	s.create(`{"model":"demo","input":[{"id":"` + item + `"},{"role":"user","content":"two"}]}`)
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","input":[{"type":"item_reference","id":"msg_x"},{"role":"user","content":"two"}]}`), 404, "item_not_found")
	_ = second
}

func TestResponseIsShownAsItWasAnswered(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	made := s.do("POST", "/v1/responses", `{"model":"demo","input":"one","metadata":{"a":"b"}}`)
	id := parse[response](t, made).ID
	if got := s.do("GET", "/v1/responses/"+id, ""); got.body != made.body {
		t.Fatalf("shown: %s\nmade: %s", got.body, made.body)
	}
	refused(t, s.do("GET", "/v1/responses/resp_00000000000000000000000000000000", ""), 404, "response_not_found")
	const gone = `","object":"response","deleted":true}`
	if got := s.do("DELETE", "/v1/responses/"+id, ""); got.body != `{"id":"`+id+gone {
		t.Fatalf("deleted: %s", got.body)
	}
	refused(t, s.do("DELETE", "/v1/responses/"+id, ""), 404, "response_not_found")
	refused(t, s.do("GET", "/v1/responses/"+id, ""), 404, "response_not_found")
	refused(t, s.do("GET", "/v1/responses/"+id+"/input_items", ""), 404, "response_not_found")
	refused(t, s.do("POST", "/v1/responses/"+id+"/cancel", ""), 404, "response_not_found")
}

func TestWhatIsNotToBeStoredIsNot(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	r := s.create(`{"model":"demo","input":"one","store":false}`)
	refused(t, s.do("GET", "/v1/responses/"+r.ID, ""), 404, "response_not_found")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+r.ID+`","input":"x"}`), 400, "previous_response_not_found")
}

func TestWithoutAStore(t *testing.T) {
	s := start(t, newFake())
	made := s.do("POST", "/v1/responses", `{"model":"demo","input":"one","store":true}`)
	if !strings.Contains(made.body, `"store":false`) {
		t.Fatalf("the answer does not say that it is not stored: %s", made.body)
	}
	id := parse[response](t, made).ID
	refused(t, s.do("GET", "/v1/responses/"+id, ""), 404, "response_not_found")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+id+`","input":"x"}`), 400, "previous_response_not_found")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","background":true,"input":"x"}`), 400, "unsupported_parameter")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","input":[{"type":"item_reference","id":"msg_1"}]}`), 404, "item_not_found")
}

// TestTenantsOfResponses wants a tenant to learn nothing of what another has
// stored, not even that it is there.
func TestTenantsOfResponses(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}), withKeys(t, "ka a\nkb b\n"))
	a, b := []string{"Authorization", "Bearer ka"}, []string{"Authorization", "Bearer kb"}
	r := s.create(`{"model":"demo","input":"one"}`, a...)
	path := "/v1/responses/" + r.ID
	refused(t, s.do("GET", path, "", b...), 404, "response_not_found")
	refused(t, s.do("DELETE", path, "", b...), 404, "response_not_found")
	refused(t, s.do("GET", path+"/input_items", "", b...), 404, "response_not_found")
	refused(t, s.do("POST", path+"/cancel", "", b...), 404, "response_not_found")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+r.ID+`","input":"x"}`, b...), 400, "previous_response_not_found")
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","input":[{"type":"item_reference","id":"`+r.Output[0].ID+`"}]}`, b...), 404, "item_not_found")
	parse[response](t, s.do("GET", path, "", a...))
}

func TestInputItems(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	first := s.create(`{"model":"demo","input":[{"role":"developer","content":"zero"},{"id":"msg_mine","role":"user","content":"one"}]}`)
	second := s.create(`{"model":"demo","previous_response_id":"` + first.ID + `","input":"two"}`)
	type list struct {
		Object string
		Data   []struct {
			ID, Type, Role, Status string
			Content                []struct{ Type, Text string }
		}
		FirstID string `json:"first_id"`
		LastID  string `json:"last_id"`
		HasMore bool   `json:"has_more"`
	}
	get := func(query string) list {
		t.Helper()
		return parse[list](t, s.do("GET", "/v1/responses/"+second.ID+"/input_items"+query, ""))
	}
	all := get("?order=asc")
	var texts []string
	for _, item := range all.Data {
		if item.ID == "" || item.Type != "message" || item.Status != "completed" || len(item.Content) != 1 {
			t.Fatalf("item: %+v", item)
		}
		texts = append(texts, item.Role+" "+item.Content[0].Text)
	}
	if got := strings.Join(texts, ", "); got != "developer zero, user one, assistant Hello world, user two" || all.HasMore || all.Object != "list" {
		t.Fatalf("items: %s", got)
	}
	if all.Data[1].ID != "msg_mine" || all.FirstID != all.Data[0].ID || all.LastID != all.Data[3].ID {
		t.Fatalf("ids: %+v", all)
	}
	// Page by page, in both orders.
	for _, order := range []string{"asc", "desc"} {
		after, n := "", 0
		for {
			page := get("?limit=3&order=" + order + after)
			for _, item := range page.Data {
				want := n
				if order == "desc" {
					want = 3 - n
				}
				if item.ID != all.Data[want].ID {
					t.Fatalf("%s %d: %s", order, n, item.ID)
				}
				n++
			}
			if !page.HasMore {
				break
			}
			after = "&after=" + page.LastID
		}
		if n != 4 {
			t.Fatalf("%s: %d items", order, n)
		}
	}
	if first := get(""); first.Data[0].ID != all.Data[3].ID {
		t.Fatal("the newest item is not the first")
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=msg_x", "?before=msg_x"} {
		refused(t, s.do("GET", "/v1/responses/"+second.ID+"/input_items"+query, ""), 400, "invalid_value")
	}
}

// TestInputItemsAreListedOnce pages through items of which two have one id, which
// would lead a client in circles.
func TestInputItemsAreListedOnce(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	r := s.create(`{"model":"demo","input":[{"id":"msg_a","role":"user","content":"1"},{"id":"msg_b","role":"user","content":"2"},{"id":"msg_a","role":"user","content":"3"}]}`)
	got := s.do("GET", "/v1/responses/"+r.ID+"/input_items?order=asc", "").body
	if strings.Count(got, `"msg_a","role"`) != 1 || !strings.Contains(got, `"last_id":"msg_b"`) {
		t.Fatal(got)
	}
}

// TestOverflowIsStored fetches a stream that failed because it was too long.
func TestOverflowIsStored(t *testing.T) {
	f := newFake()
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return failing(&engine.Error{Kind: engine.InvalidArgument, Code: "context_length_exceeded", Message: "too long"})
	}
	s := start(t, f, storing(t, store.Options{}))
	live := s.do("POST", "/v1/responses", `{"model":"demo","stream":true,"input":"one"}`).body
	_, rest, _ := strings.Cut(live, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if r := parse[response](t, s.do("GET", "/v1/responses/"+id, "")); r.Status != "failed" || r.Error.Code != "context_length_exceeded" {
		t.Fatalf("%+v", r)
	}
	if got := s.do("GET", "/v1/responses/"+id+"?stream=true", "").body; got != live || !strings.Contains(live, "response.failed") {
		t.Fatalf("live: %s\nreplayed: %s", live, got)
	}
	// What is refused outright is not stored: nobody knows its id.
	s.do("POST", "/v1/responses", `{"model":"demo","input":"one"}`)
	s.metric("dynago_responses_store_entries 1")
	s.metric("dynago_responses_in_flight 0")
}

// TestReplay wants the events that were sent, from any of them on.
func TestReplay(t *testing.T) {
	s := start(t, newFake(), storing(t, store.Options{}))
	live := s.do("POST", "/v1/responses", `{"model":"demo","stream":true,"input":"one"}`).body
	frames := strings.SplitAfter(live, "\n\n")
	_, rest, _ := strings.Cut(live, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	for n := -1; n < len(frames)-2; n++ {
		query := "?stream=true"
		if n >= 0 {
			query += fmt.Sprint("&starting_after=", n)
		}
		got := s.do("GET", "/v1/responses/"+id+query, "")
		if want := strings.Join(frames[n+1:], ""); got.body != want || got.header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("after %d: %s\nwant %s", n, got.body, want)
		}
	}
	if got := s.do("GET", "/v1/responses/"+id+"?stream=true&starting_after=1000", ""); got.body != "data: [DONE]\n\n" {
		t.Fatalf("after the end: %s", got.body)
	}
	for _, query := range []string{"?starting_after=1", "?stream=true&starting_after=x", "?stream=true&starting_after=-1"} {
		refused(t, s.do("GET", "/v1/responses/"+id+query, ""), 400, "invalid_value")
	}
	refused(t, s.do("GET", "/v1/responses/"+id+"?stream=maybe", ""), 400, "invalid_value")
	// An answer that was not streamed has events all the same.
	unary := s.create(`{"model":"demo","input":"one"}`)
	if got := s.do("GET", "/v1/responses/"+unary.ID+"?stream=true", "").body; strings.Count(got, "event: ") != strings.Count(live, "event: ") {
		t.Fatalf("events of a unary answer: %s", got)
	}
}

// gate is a backend answer that waits in its middle.
type gate struct {
	reached chan struct{}
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 100), make(chan struct{})} }

func (g *gate) run(ctx context.Context, _ []*pipeline.Request) iter.Seq2[chat.Event, error] {
	return then(beginning(), func(yield func(chat.Event, error) bool) {
		g.reached <- struct{}{}
		select {
		case <-g.open:
		case <-ctx.Done():
			yield(chat.Event{}, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		for _, e := range helloEvents()[3:] {
			if !yield(e, nil) {
				return
			}
		}
	})
}

func within(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not happen")
	}
}

func TestBackground(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}))
	r := s.create(`{"model":"demo","background":true,"input":"one"}`)
	if r.Status != "queued" || !r.Background || len(r.Output) != 0 {
		t.Fatalf("at first: %+v", r)
	}
	within(t, g.reached)
	path := "/v1/responses/" + r.ID
	if r := parse[response](t, s.do("GET", path, "")); r.Status != "in_progress" || r.text() != "Hello" {
		t.Fatalf("in between: %+v", r)
	}
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+r.ID+`","input":"x"}`), 400, "previous_response_not_found")
	if got := s.do("GET", path+"/input_items", "").body; strings.Count(got, `"text":"one"`) != 1 {
		t.Fatalf("input items in between: %s", got)
	}
	// Who follows sees what was and what comes.
	follower := s.open("GET", path+"?stream=true", http.NoBody)
	defer follower.Body.Close()
	begun := make([]byte, len("event: response.created"))
	if _, err := follower.Body.Read(begun); err != nil || string(begun) != "event: response.created" {
		t.Fatalf("%q %v", begun, err)
	}
	close(g.open)
	rest := new(strings.Builder)
	if _, err := fmt.Fprint(rest, readAll(t, follower)); err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"response.queued", "response.in_progress", "response.output_text.delta", "response.completed"} {
		if !strings.Contains(rest.String(), "event: "+event+"\n") {
			t.Errorf("no %s in %s", event, rest)
		}
	}
	if !strings.HasSuffix(rest.String(), "data: [DONE]\n\n") {
		t.Errorf("no end: %s", rest)
	}
	if r := parse[response](t, s.do("GET", path, "")); r.Status != "completed" || r.text() != "Hello world" || r.Usage == nil {
		t.Fatalf("at the end: %+v", r)
	}
	if got := s.do("GET", path+"?stream=true", "").body; got != string(begun)+rest.String() {
		t.Fatalf("replayed: %s", got)
	}
}

// TestBackgroundOutlivesItsClient leaves at once.
func TestBackgroundOutlivesItsClient(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}))
	resp := s.open("POST", "/v1/responses", strings.NewReader(`{"model":"demo","background":true,"stream":true,"input":"one"}`))
	var b [4096]byte
	n, _ := resp.Body.Read(b[:])
	_, rest, _ := strings.Cut(string(b[:n]), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	within(t, g.reached)
	resp.Body.Close()
	close(g.open)
	var r response
	eventually(t, func() bool {
		r = parse[response](t, s.do("GET", "/v1/responses/"+id, ""))
		return r.Status == "completed"
	}, func() string { return fmt.Sprintf("%+v", r) })
}

func TestBackgroundFails(t *testing.T) {
	f := newFake()
	f.run = func(context.Context, []*pipeline.Request) iter.Seq2[chat.Event, error] {
		return failing(&engine.Error{Kind: engine.Unavailable})
	}
	s := start(t, f, storing(t, store.Options{}))
	id := s.create(`{"model":"demo","background":true,"input":"one"}`).ID
	var r response
	eventually(t, func() bool {
		r = parse[response](t, s.do("GET", "/v1/responses/"+id, ""))
		return r.Status == "failed"
	}, func() string { return fmt.Sprintf("%+v", r) })
	if r.Error == nil || r.Error.Code != "overloaded" {
		t.Fatalf("error: %+v", r.Error)
	}
	refused(t, s.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+id+`","input":"x"}`), 400, "previous_response_not_found")
	if got := s.do("GET", "/v1/responses/"+id+"?stream=true", "").body; !strings.Contains(got, "event: response.failed\n") {
		t.Fatalf("events: %s", got)
	}
}

func TestBackgroundIsBounded(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}), func(c *frontend.Config) { c.MaxBackground = 2 })
	body := `{"model":"demo","background":true,"input":"one"}`
	first := s.create(body)
	s.create(body)
	third := s.do("POST", "/v1/responses", body)
	refused(t, third, 429, "rate_limit_exceeded")
	if third.header.Get("Retry-After") == "" {
		t.Error("it does not say when to come back")
	}
	s.do("POST", "/v1/responses/"+first.ID+"/cancel", "")
	s.create(body)
	close(g.open)
}

func TestCancel(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}))
	t.Run("background", func(t *testing.T) {
		id := s.create(`{"model":"demo","background":true,"input":"one"}`).ID
		within(t, g.reached)
		for range 2 { // the second finds it stored
			r := parse[response](t, s.do("POST", "/v1/responses/"+id+"/cancel", ""))
			if r.Status != "cancelled" || r.text() != "Hello" || r.Output[0].Status != "incomplete" {
				t.Fatalf("cancelled: %+v", r)
			}
		}
		if r := parse[response](t, s.do("GET", "/v1/responses/"+id, "")); r.Status != "cancelled" {
			t.Fatalf("later: %+v", r)
		}
	})
	t.Run("stream", func(t *testing.T) {
		resp := s.open("POST", "/v1/responses", strings.NewReader(`{"model":"demo","stream":true,"input":"one"}`))
		defer resp.Body.Close()
		within(t, g.reached)
		var b [8192]byte
		n, _ := resp.Body.Read(b[:])
		_, rest, _ := strings.Cut(string(b[:n]), `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		if r := parse[response](t, s.do("POST", "/v1/responses/"+id+"/cancel", "")); r.Status != "cancelled" {
			t.Fatalf("cancelled: %+v", r)
		}
		if end := readAll(t, resp); !strings.HasSuffix(end, "data: [DONE]\n\n") || strings.Contains(end, "response.failed") {
			t.Fatalf("the stream ends with %s", end)
		}
	})
	t.Run("not stored", func(t *testing.T) {
		resp := s.open("POST", "/v1/responses", strings.NewReader(`{"model":"demo","stream":true,"store":false,"input":"one"}`))
		defer resp.Body.Close()
		within(t, g.reached)
		var b [8192]byte
		n, _ := resp.Body.Read(b[:])
		_, rest, _ := strings.Cut(string(b[:n]), `"id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		refused(t, s.do("GET", "/v1/responses/"+id+"?stream=true", ""), 400, "invalid_value")
		refused(t, s.do("GET", "/v1/responses/"+id+"/input_items", ""), 404, "response_not_found")
		if r := parse[response](t, s.do("POST", "/v1/responses/"+id+"/cancel", "")); r.Status != "cancelled" || r.text() != "Hello" {
			t.Fatalf("cancelled: %+v", r)
		}
		if end := readAll(t, resp); !strings.HasSuffix(end, "data: [DONE]\n\n") {
			t.Fatalf("the stream ends with %s", end)
		}
		refused(t, s.do("GET", "/v1/responses/"+id, ""), 404, "response_not_found")
	})
	t.Run("deleted", func(t *testing.T) {
		id := s.create(`{"model":"demo","background":true,"input":"one"}`).ID
		within(t, g.reached)
		if got := s.do("DELETE", "/v1/responses/"+id, ""); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		refused(t, s.do("GET", "/v1/responses/"+id, ""), 404, "response_not_found")
	})
	t.Run("finished", func(t *testing.T) {
		close(g.open)
		id := s.create(`{"model":"demo","input":"one"}`).ID
		if r := parse[response](t, s.do("POST", "/v1/responses/"+id+"/cancel", "")); r.Status != "completed" {
			t.Fatalf("cancelled: %+v", r)
		}
	})
}

// TestClientThatLeavesCancels looks at what is stored of a stream that nobody
// has read to its end.
func TestClientThatLeavesCancels(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}))
	resp := s.open("POST", "/v1/responses", strings.NewReader(`{"model":"demo","stream":true,"input":"one"}`))
	within(t, g.reached)
	var b [8192]byte
	n, _ := resp.Body.Read(b[:])
	_, rest, _ := strings.Cut(string(b[:n]), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	resp.Body.Close()
	var r response
	eventually(t, func() bool {
		r = parse[response](t, s.do("GET", "/v1/responses/"+id, ""))
		return r.Status == "cancelled"
	}, func() string { return fmt.Sprintf("%+v", r) })
}

func TestDrainWaitsForBackground(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	s := start(t, f, storing(t, store.Options{}))
	s.create(`{"model":"demo","background":true,"input":"one"}`)
	within(t, g.reached)
	cut := make(chan int)
	go func() { cut <- s.Drain(t.Context()) }()
	eventually(t, func() bool { return s.do("GET", "/health", "").status != 200 }, func() string { return "it does not drain" })
	select {
	case <-cut:
		t.Fatal("it does not wait")
	default:
	}
	close(g.open)
	if n := <-cut; n != 0 {
		t.Fatalf("%d were cut", n)
	}
}

func TestDrainCutsBackground(t *testing.T) {
	g := newGate()
	f := newFake()
	f.run = g.run
	kept, err := store.New(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, f, func(c *frontend.Config) { c.ResponsesStore = kept })
	id := s.create(`{"model":"demo","background":true,"input":"one"}`).ID
	within(t, g.reached)
	s.Close()
	r, ok := kept.Get("", id)
	if !ok || r.Status != "failed" {
		t.Fatalf("stored: %v %+v", ok, r)
	}
}

// TestServersShareADirectory polls a server for what another makes.
func TestServersShareADirectory(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	clock := func() time.Time { return now }
	g := newGate()
	f := newFake()
	f.run = g.run
	one := start(t, f, storing(t, store.Options{Dir: dir}))
	id := one.create(`{"model":"demo","background":true,"input":"one"}`).ID
	within(t, g.reached)
	path := "/v1/responses/" + id

	two := start(t, newFake(), storing(t, store.Options{Dir: dir, Now: clock}))
	if r := parse[response](t, two.do("GET", path, "")); r.Status != "queued" {
		t.Fatalf("%+v", r)
	}
	refused(t, two.do("GET", path+"?stream=true", ""), 409, "response_in_progress")
	refused(t, two.do("POST", path+"/cancel", ""), 409, "response_in_progress")
	refused(t, two.do("DELETE", path, ""), 409, "response_in_progress")
	refused(t, two.do("POST", "/v1/responses", `{"model":"demo","previous_response_id":"`+id+`","input":"x"}`), 400, "previous_response_not_found")
	// A server that does not show that it is there has ended.
	now = now.Add(10 * time.Minute)
	if r := parse[response](t, two.do("GET", path, "")); r.Status != "failed" || r.Error.Code != "server_error" {
		t.Fatalf("%+v", r)
	}
	now = now.Add(-10 * time.Minute)
	close(g.open)
	eventually(t, func() bool { return parse[response](t, one.do("GET", path, "")).Status == "completed" }, func() string { return "it does not end" })
	if r := parse[response](t, two.do("GET", path, "")); r.Status != "completed" || r.text() != "Hello world" {
		t.Fatalf("%+v", r)
	}
	if a, b := one.do("GET", path+"?stream=true", "").body, two.do("GET", path+"?stream=true", "").body; a != b || !strings.Contains(a, "response.completed") {
		t.Fatalf("%s\n%s", a, b)
	}
	two.create(`{"model":"demo","previous_response_id":"` + id + `","input":"x"}`)
}

func TestMetricsOfResponses(t *testing.T) {
	g := newGate()
	f := newFake()
	s := start(t, f, storing(t, store.Options{Bytes: 20_000}))
	first := s.create(`{"model":"demo","input":"one"}`)
	s.do("GET", "/v1/responses/"+first.ID, "")
	s.do("GET", "/v1/responses/resp_x", "")
	s.create(`{"model":"demo","input":"` + strings.Repeat("x", 30_000) + `"}`)
	f.run = g.run
	s.create(`{"model":"demo","background":true,"input":"one"}`)
	within(t, g.reached)
	s.talk()
	for _, line := range []string{
		"store_entries 1", "store_hits_total 1", "store_misses_total 1", `store_evictions_total{reason="size"} 1`,
		`store_evictions_total{reason="room"} 0`, "store_failed_writes_total 0", "in_flight 1", "background 1", "sockets 1",
	} {
		s.metric("dynago_responses_" + line)
	}
	close(g.open)
	s.metric("dynago_responses_background 0")
	s.metric("dynago_responses_store_entries 2")
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	var b strings.Builder
	var buf [4096]byte
	for {
		n, err := resp.Body.Read(buf[:])
		b.Write(buf[:n])
		if err != nil {
			return b.String()
		}
	}
}
