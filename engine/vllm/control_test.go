package vllm_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

func TestControls(t *testing.T) {
	s := serve(t, fake.Config{Dev: true, LoRA: true, Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	tell := func(name, args string, kind engine.ErrorKind) {
		t.Helper()
		_, err := s.Control(t.Context(), name, []byte(args))
		if err == nil && kind != "" || err != nil && engine.KindOf(err) != kind {
			t.Errorf("%s %s: %v, want %q", name, args, err, kind)
		}
	}
	tell(engine.ControlReset, "", "")
	if s.server.Resets() != 1 {
		t.Error("the server did not hear of the reset")
	}
	for range 2 {
		tell(engine.ControlLoadLoRA, `{"lora_name":"sql","lora_path":"/sql"}`, "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st := range s.Card(ctx) {
		if slices.Equal(st.Card.Adapters, []string{"sql"}) {
			break
		}
	}
	r := ask()
	r.KV.Namespace.LoRA = "sql"
	if _, _, err := s.run(t, r); err != nil {
		t.Errorf("a request for the adapter: %v", err)
	}
	for range 2 {
		tell(engine.ControlUnloadLoRA, `{"lora_name":"sql"}`, "")
	}
	if _, _, err := s.run(t, r); engine.KindOf(err) != engine.NotFound {
		t.Errorf("a request for an adapter that is gone: %v, want not_found", err)
	}
	tell(engine.ControlLoadLoRA, `{}`, engine.InvalidArgument)
	tell(engine.ControlLoadLoRA, `[`, engine.InvalidArgument)
	tell("abdicate", "", engine.Unsupported)
}

// What is said with a control goes to its route, and what no route takes is refused.
func TestControlArguments(t *testing.T) {
	s := serve(t, fake.Config{Dev: true, Mock: mock.Config{Args: args()}}, nil)
	s.ready(t)
	for _, tt := range []struct{ name, args, want string }{
		{engine.ControlReset, ``, "/reset_prefix_cache"},
		{engine.ControlReset, `{"reset_running_requests":true,"reset_external":false}`, "/reset_prefix_cache?reset_external=false&reset_running_requests=true"},
		{engine.ControlSleep, ``, "/sleep?level=1"},
		{engine.ControlSleep, `{"level":2,"mode":"wait"}`, "/sleep?level=2&mode=wait"},
		{engine.ControlWake, `{"tags":["weights","kv_cache"]}`, "/wake_up?tags=weights&tags=kv_cache"},
		{engine.ControlPause, `{"mode":"keep","clear_cache":false}`, "/pause?clear_cache=false&mode=keep"},
		{engine.ControlResume, ``, "/resume"},
		{"reset_mm", ``, "/reset_mm_cache"},
		{"reset_encoder", ``, "/reset_encoder_cache"},
	} {
		if _, err := s.Control(t.Context(), tt.name, []byte(tt.args)); err != nil {
			t.Errorf("%s %s: %v", tt.name, tt.args, err)
		}
		if told := s.server.Told(); len(told) == 0 || told[len(told)-1] != tt.want {
			t.Errorf("%s %s: the server was told %v, want %s last", tt.name, tt.args, told, tt.want)
		}
	}
	for _, tt := range []struct{ name, args, says string }{
		{engine.ControlReset, `{"level":1}`, "reset_running_requests reset_external"},
		{engine.ControlWake, `{"tags":[1]}`, "tags"},
		{engine.ControlSleep, `{"level":{}}`, "level"},
		{engine.ControlResume, `[]`, "no JSON object"},
	} {
		if _, err := s.Control(t.Context(), tt.name, []byte(tt.args)); engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %s: %v", tt.name, tt.args, err)
		}
	}
}

// A cache that cannot be forgotten, since blocks are in use, is not said to be
// forgotten.
func TestResetThatFails(t *testing.T) {
	s := serve(t, fake.Config{Dev: true, Mock: mock.Config{Args: slowArgs()}}, nil)
	s.ready(t)
	r := ask()
	r.Stop = engine.Stop{MaxTokens: 4000}
	for range s.Generate(t.Context(), r) {
		if _, err := s.Control(t.Context(), engine.ControlReset, nil); engine.KindOf(err) != engine.Unavailable {
			t.Errorf("%v, want unavailable", err)
		}
		break
	}
}

// A server that rests takes requests and lets them hang: it is out of use at once
// when it is told to rest, at the next look when somebody else told it, and in use
// again when it does not rest any more.
func TestQuirk37RestingEnginesTakeNothing(t *testing.T) {
	for _, blind := range []bool{false, true} {
		s := serve(t, fake.Config{Dev: true, NoSleepMetric: blind, NoDocs: blind, Mock: mock.Config{Args: args()}}, nil)
		s.ready(t)
		for begin, end := range map[string]string{engine.ControlSleep: engine.ControlWake, engine.ControlPause: engine.ControlResume} {
			if _, err := s.Control(t.Context(), begin, nil); err != nil {
				t.Fatalf("%s: %v", begin, err)
			}
			if _, _, err := s.run(t, ask()); engine.KindOf(err) != engine.Unavailable {
				t.Errorf("after %s: %v, want unavailable", begin, err)
			}
			s.await(t, engine.Draining)
			if _, err := s.Control(t.Context(), end, nil); err != nil {
				t.Fatalf("%s: %v", end, err)
			}
			if _, _, err := s.run(t, ask()); err != nil {
				t.Errorf("after %s: %v", end, err)
			}
		}
		s.server.Sleep()
		s.await(t, engine.Draining)
		s.server.Wake()
		s.await(t, engine.Ready)
	}
}

// Where nothing describes the routes, they are found without being used.
func TestRoutesAreFoundWithoutADescription(t *testing.T) {
	c := fake.Config{Dev: true, LoRA: true, TokensOnly: true, NoDocs: true, Mock: mock.Config{Args: args()}}
	blind := serve(t, c, nil)
	card := blind.ready(t)
	c.NoDocs = false
	if want := serve(t, c, nil).ready(t).Controls; !slices.Equal(card.Controls, want) || len(want) != 9 {
		t.Errorf("controls %v, want %v", card.Controls, want)
	}
	if told := blind.server.Told(); len(told) != 0 {
		t.Errorf("the server was told %v by looking", told)
	}
}
