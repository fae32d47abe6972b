package sglang_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/kv"
)

var talk = kv.SessionKey{Model: "m", ID: "s"}

// within asks for a turn of the session.
func within(prompt []uint32, n int) *engine.Request {
	return &engine.Request{
		ID: "r-1", TokenIDs: prompt, Stop: engine.Stop{MaxTokens: n, MinTokens: n},
		Sampling: engine.Sampling{Temperature: ptr(0.0)}, KV: kv.Directives{Session: kv.Session{ID: talk.ID}},
	}
}

func opened(t *testing.T, e engine.Sessioner, key kv.SessionKey) {
	t.Helper()
	if _, err := e.OpenSession(t.Context(), key, engine.SessionOptions{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// awaitSessions waits until these are open on the server, and no others.
func awaitSessions(t interface {
	Helper()
	Context() context.Context
	Fatalf(string, ...any)
}, s *fake.Server, want ...string,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !slices.Equal(s.Sessions(), want) {
		select {
		case <-ctx.Done():
			t.Fatalf("sessions %q, want %q", s.Sessions(), want)
		case <-time.After(time.Millisecond):
		}
	}
}

// Whichever turns a conversation takes, a streaming session changes none of its
// answers: it is used as long as prompts grow at their end, and given up then.
func TestStreamingSessions(t *testing.T) {
	alone := attach(t, fake.Config{})
	status(t, alone, engine.Ready)
	rapid.Check(t, func(rt *rapid.T) {
		e := attach(t, fake.Config{Streaming: true, Incremental: rapid.Bool().Draw(rt, "incremental"), TrimStop: rapid.Bool().Draw(rt, "trim")})
		defer e.close()
		status(t, e, engine.Ready)
		opened(t, e, talk)
		ids := rapid.SliceOfN(rapid.Uint32Range(100, 899), 1, 30)
		prompt, held := []uint32{1}, true
		for i := range rapid.IntRange(1, 5).Draw(rt, "turns") {
			more := ids.Draw(rt, "more")
			if i > 0 && rapid.IntRange(0, 3).Draw(rt, "edit") == 0 {
				prompt[len(prompt)/2]++ // the conversation is another one from here on
				held = false
			}
			prompt = append(prompt, more...)
			r := within(slices.Clone(prompt), rapid.IntRange(1, 20).Draw(rt, "answer"))
			got, last, err := collect(t.Context(), e, r)
			if err != nil {
				rt.Fatal(err)
			}
			want, _, err := collect(t.Context(), alone, r)
			if err != nil || !slices.Equal(got, want) {
				rt.Fatalf("turn %d: %v, %v; without a session %v", i, got, err, want)
			}
			if last.Usage.Prompt != len(prompt) {
				rt.Fatalf("usage %+v of a prompt of %d", last.Usage, len(prompt))
			}
			prompt = append(prompt, got...)
		}
		if held {
			awaitSessions(rt, e.fake, talk.ID)
		} else {
			awaitSessions(rt, e.fake)
		}
	})
}

// A turn sends what is new behind what the session holds.
func TestStreamingTurnsSendWhatIsNew(t *testing.T) {
	server := described(`{"enable_streaming_session":true}`)
	bodies := make(chan string, 1)
	server["/open_session"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		bodies <- string(text)
	}
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		bodies <- string(text)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+chunk([]uint32{7, 8}, 2, length)+"\n\n")
	}
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	opened(t, e, talk)
	if got := <-bodies; !strings.Contains(got, `"streaming":true`) || !strings.Contains(got, `"capacity_of_str_len":16777216`) {
		t.Errorf("opened with %s", got)
	}
	type turn struct {
		prompt []uint32
		want   string
	}
	for _, tc := range []turn{
		{[]uint32{1, 2, 3}, `"input_ids":[1,2,3]`},
		{[]uint32{1, 2, 3, 7, 8, 4}, `"input_ids":[4]`},
		{[]uint32{1, 2, 3, 7, 8, 4, 7, 8, 5, 6}, `"input_ids":[5,6]`},
	} {
		if _, _, err := collect(t.Context(), e, within(tc.prompt, 2)); err != nil {
			t.Fatal(err)
		}
		if got := <-bodies; !strings.Contains(got, tc.want) || !strings.Contains(got, `"session_params":{"id":"s"}`) {
			t.Errorf("%v: sent %s", tc.prompt, got)
		}
	}
	// An id that begins a text would be taken off, and a prompt that adds nothing
	// has nothing to send.
	for _, more := range [][]uint32{{1, 9}, {}} {
		opened(t, e, talk)
		<-bodies
		for _, tc := range []turn{
			{[]uint32{1, 2}, `"session_params":{"id":"s"}`},
			{append([]uint32{1, 2, 7, 8}, more...), `{"input_ids":[1,2,7,8`},
		} {
			if _, _, err := collect(t.Context(), e, within(tc.prompt, 2)); err != nil {
				t.Fatal(err)
			}
			if got := <-bodies; !strings.Contains(got, tc.want) || strings.HasPrefix(tc.want, "{") && strings.Contains(got, "session") {
				t.Errorf("%v: sent %s", tc.prompt, got)
			}
		}
	}
}

// A second turn at once is answered beside the session, and does it no harm; so is
// one that wants to know of the whole prompt. A turn that is cut short ends it.
func TestStreamingSessionsOneAtATime(t *testing.T) {
	args := mock.DefaultArgs()
	args.TimingModel, args.PrefillMS, args.DecodeMS = "constant", 1, 1
	e := attach(t, fake.Config{Streaming: true, Mock: mock.Config{Args: args}})
	status(t, e, engine.Ready)
	opened(t, e, talk)
	beside := func(prompt []uint32, logprobs *int) {
		t.Helper()
		r := within(prompt, 5)
		r.ID, r.PromptLogprobs = "r-2", logprobs
		n := 0
		for d, err := range e.Generate(t.Context(), r) {
			if err != nil {
				t.Errorf("beside the session: %v", err)
				return
			}
			n += len(d.PromptLogprobs)
		}
		if logprobs != nil && n != len(prompt) {
			t.Errorf("log probabilities of %d ids of %d", n, len(prompt))
		}
		if got := e.fake.Refused(); got > 0 {
			t.Errorf("the server has refused %d turns", got)
		}
	}
	prompt := []uint32{1, 2}
	var answer []uint32
	for d, err := range e.Generate(t.Context(), within(prompt, 30)) {
		if err != nil {
			t.Fatal(err)
		}
		if answer = append(answer, d.TokenIDs...); len(answer) == 1 {
			beside(prompt, nil)
		}
	}
	prompt = append(append(prompt, answer...), 3)
	beside(prompt, ptr(0))
	awaitSessions(t, e.fake, talk.ID)
	for _, err := range e.Generate(t.Context(), within(prompt, 500)) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	awaitSessions(t, e.fake)
	if _, _, err := collect(t.Context(), e, within([]uint32{1, 2, 3}, 5)); err != nil {
		t.Errorf("after a turn that was cut short: %v", err)
	}
}

// A session that is being closed is not named any more, and one that the server
// refuses a turn of is given up there, too.
func TestSessionsThatAreGivenUp(t *testing.T) {
	server := described(`{"enable_session_radix_cache":true}`)
	asked, closed := make(chan bool, 1), make(chan struct{}, 1)
	hold := make(chan struct{})
	var refuse atomic.Bool
	server["/open_session"] = func(http.ResponseWriter, *http.Request) {}
	server["/close_session"] = func(http.ResponseWriter, *http.Request) { closed <- struct{}{} }
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		named := strings.Contains(string(text), `"session_id":"s"`)
		asked <- named
		if named && refuse.Load() {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"error":{"message":"Invalid request: session id s does not exist"}}`+"\n\ndata: [DONE]\n\n")
			return
		}
		if named {
			<-hold
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+chunk([]uint32{7}, 1, length)+"\n\n")
	}
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	opened(t, e, talk)
	ran := make(chan error, 1)
	go func() {
		_, _, err := collect(t.Context(), e, within([]uint32{1}, 1))
		ran <- err
	}()
	if !<-asked {
		t.Error("the first turn does not name the session")
	}
	if known, err := e.CloseSession(t.Context(), talk); !known || err != nil {
		t.Error(known, err)
	}
	_, _, err := collect(t.Context(), e, within([]uint32{1}, 1))
	if <-asked || err != nil {
		t.Errorf("a turn names a session that is being closed, %v", err)
	}
	close(hold)
	if err := <-ran; err != nil {
		t.Error(err)
	}
	<-closed

	refuse.Store(true)
	opened(t, e, talk)
	go func() {
		_, _, err := collect(t.Context(), e, within([]uint32{1}, 1))
		ran <- err
	}()
	if first, second := <-asked, <-asked; !first || second {
		t.Errorf("named %v and then %v", first, second)
	}
	<-closed
	if err := <-ran; err != nil {
		t.Errorf("a refused session: %v", err)
	}
}

// A session that ended on the server costs its next turn nothing, and one that is
// closed while a turn runs ends with it.
func TestSessionsEndUnderTheirTurns(t *testing.T) {
	for name, habits := range map[string]fake.Config{"radix": {Sessions: true, OldNames: true}, "streaming": {Streaming: true}} {
		t.Run(name, func(t *testing.T) {
			habits.Mock.Args = mock.DefaultArgs()
			habits.Mock.Args.TimingModel, habits.Mock.Args.PrefillMS, habits.Mock.Args.DecodeMS = "constant", 1, 1
			e := attach(t, habits)
			status(t, e, engine.Ready)
			opened(t, e, talk)
			e.fake.ExpireSessions()
			if ids, _, err := collect(t.Context(), e, within([]uint32{1, 2}, 5)); err != nil || len(ids) != 5 {
				t.Errorf("of a session that has expired: %v, %v", ids, err)
			}
			opened(t, e, talk)
			n := 0
			for _, err := range e.Generate(t.Context(), within([]uint32{1, 2}, 20)) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n > 1 {
					continue
				}
				if known, err := e.CloseSession(t.Context(), talk); !known || err != nil {
					t.Errorf("closed under a turn: %v, %v", known, err)
				}
				if known, err := e.CloseSession(t.Context(), talk); known || err != nil {
					t.Errorf("closed twice: %v, %v", known, err)
				}
				if got := e.fake.Sessions(); !slices.Equal(got, []string{talk.ID}) {
					t.Errorf("sessions %q while a turn of it runs", got)
				}
			}
			awaitSessions(t, e.fake)
			if n < 2 {
				t.Errorf("%d deltas", n)
			}
		})
	}
}

// Only "it is open already" is success where one cannot be opened.
func TestOpenSessionRefused(t *testing.T) {
	for answer, known := range map[string]bool{
		``: true,
		`{"error":{"message":"Failed to open the session. Check if a session with the same id is still open."}}`: true,
		`{"error":{"message":"session s already exists"}}`:                                                       true,
		`{"error":{"message":"capacity is too large"}}`:                                                          false,
	} {
		server := described(`{"enable_session_radix_cache":true}`)
		server["/open_session"] = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, answer)
		}
		e := server.serve(t, sglang.Config{})
		status(t, e, engine.Ready)
		got, err := e.OpenSession(t.Context(), talk, engine.SessionOptions{})
		if got != known || (err == nil) != known {
			t.Errorf("%q: %v, %v", answer, got, err)
		}
	}
}

// What another frontend's streaming session holds is not known here.
func TestStreamingSessionOfOthers(t *testing.T) {
	e := attach(t, fake.Config{Streaming: true})
	status(t, e, engine.Ready)
	other, err := sglang.New(sglang.Config{HTTP: e.at, Every: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	status(t, other, engine.Ready)
	opened(t, other, talk)
	if _, err := e.OpenSession(t.Context(), talk, engine.SessionOptions{}); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("%v, want unavailable", err)
	}
	if ids, _, err := collect(t.Context(), e, within([]uint32{1}, 3)); err != nil || len(ids) != 3 {
		t.Errorf("%v, %v", ids, err)
	}
}

// A session that has been idle for longer than the server keeps it is not named any
// more, and is unknown.
func TestIdleSessions(t *testing.T) {
	var named []bool
	server := described(`{"enable_session_radix_cache":true}`)
	server["/open_session"] = func(http.ResponseWriter, *http.Request) {}
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		named = append(named, body["session_id"] != nil)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+chunk([]uint32{7}, 1, length)+"\n\n")
	}
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	for _, timeout := range []time.Duration{time.Hour, 1} {
		if _, err := e.OpenSession(t.Context(), talk, engine.SessionOptions{Timeout: timeout}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := collect(t.Context(), e, within([]uint32{1}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(named, []bool{true, false}) {
		t.Errorf("named %v", named)
	}
	if known, err := e.CloseSession(t.Context(), talk); known || err != nil {
		t.Errorf("closed: %v, %v", known, err)
	}
}
