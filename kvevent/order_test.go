package kvevent_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// Many long lives, in which everything that can happen must have happened.
func TestOrderLong(t *testing.T) {
	var exact, partial int
	var sum kvevent.OrderStats
	for seed := range uint64(400) {
		draw := rand.New(rand.NewPCG(seed, 7)).IntN
		w, err := drive(draw, 400)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if w.state == "exact" {
			exact++
		} else {
			partial++
		}
		sum.Add(w.order.Stats())
	}
	if exact < 100 || partial < 20 {
		t.Errorf("%d exact and %d partial: the lives are too much alike", exact, partial)
	}
	for outcome, n := range sum.Replays {
		if n == 0 && kvevent.ReplayOutcome(outcome) != kvevent.ReplayEmpty {
			t.Errorf("no replay was ever %v", kvevent.ReplayOutcome(outcome))
		}
	}
	if sum.Gaps == 0 || sum.Spilled == 0 || sum.Duplicates == 0 || sum.Mixed == 0 || sum.Malformed == 0 {
		t.Errorf("something never happened: %+v", sum)
	}
}

// script is a recorder of effects, for orders that are led by hand.
type script struct{ did []string }

func (s *script) Apply(m kvevent.Message) (bool, error) {
	s.did = append(s.did, fmt.Sprint("apply ", m.Seq))
	if strings.HasSuffix(string(m.Payload), "?") {
		return false, kvevent.ErrMalformed
	}
	return strings.HasSuffix(string(m.Payload), "!"), nil
}
func (s *script) Clear(r kv.GapReason) { s.did = append(s.did, "clear "+string(r)) }
func (s *script) Rebuild()             { s.did = append(s.did, "rebuild") }
func (s *script) Complete()            { s.did = append(s.did, "complete") }
func (s *script) Replay(from uint64)   { s.did = append(s.did, fmt.Sprint("replay ", from)) }
func (s *script) Stop()                { s.did = append(s.did, "stop") }

// run leads an order through commands, divided by semicolons:
//
//	connect, disconnect the connection stands, again, or no longer
//	live 4 b            message 4 of the life b is published; without b, of a
//	replayed 4          message 4 comes again; 4? cannot be read, 4! clears
//	end, fail, restart  of the replay; of the engine, says its health
//	wait 30s            time passes
//
// and returns what it did.
func run(t *testing.T, c kvevent.OrderConfig, commands string) (*kvevent.Order, string) {
	s := &script{}
	o, now := kvevent.NewOrder(c, s), time.Unix(1e9, 0)
	for command := range strings.SplitSeq(commands, ";") {
		words := strings.Fields(command)
		var m kvevent.Message
		if len(words) > 1 {
			life := "a"
			if len(words) > 2 {
				life = words[2]
			}
			n, _ := strconv.ParseUint(strings.TrimRight(words[1], "?!"), 10, 64)
			m = kvevent.Message{Seq: n, Payload: []byte(life + words[1])}
		}
		switch words[0] {
		case "connect":
			o.Connected(now)
		case "live":
			o.Live(now, m)
		case "replayed":
			o.Replayed(now, m)
		case "end":
			o.ReplayEnded(now)
		case "fail":
			o.ReplayFailed(now)
		case "disconnect":
			o.Disconnected(now)
		case "restart":
			o.Restarted(now)
		case "wait":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
			o.Tick(now)
		default:
			t.Fatalf("unknown command %q", command)
		}
	}
	return o, strings.Join(s.did, "; ")
}

func TestOrder(t *testing.T) {
	replays := kvevent.OrderConfig{Replays: true}
	for _, c := range []struct {
		name     string
		config   kvevent.OrderConfig
		commands string
		want     string
		partial  bool
	}{
		// The first message.
		{"from the beginning", kvevent.OrderConfig{}, "connect; live 0; live 1", "complete; apply 0; apply 1", false},
		{"too late, and no replay", kvevent.OrderConfig{}, "connect; live 7; live 8", "apply 7; apply 8", true},
		{"nothing is published yet", replays, "connect; end; live 0; live 1", "replay 0; complete; apply 0; apply 1", false},
		{
			"too late", replays, "connect; live 2; replayed 0; replayed 1; replayed 2; end; live 3",
			"replay 0; rebuild; apply 0; apply 1; apply 2; complete; apply 3", false,
		},
		{"the engine keeps too little", replays, "connect; replayed 5; replayed 6; end", "replay 0; apply 5; apply 6", true},
		{
			// The first live message after a replay that it was not in may be of
			// another life.
			"first live after a replay", replays, "connect; replayed 0; end; live 1; replayed 0; replayed 1; end; live 2",
			"replay 0; rebuild; apply 0; complete; replay 0; apply 1; apply 2", false,
		},
		{
			"the live one is of another life", replays, "connect; replayed 0; end; live 1 b; replayed 0 b",
			"replay 0; rebuild; apply 0; complete; replay 0; clear restart; replay 0", true,
		},

		// Gaps.
		{"a gap, and no replay", kvevent.OrderConfig{}, "connect; live 0; live 2; live 3", "complete; apply 0; clear lost; apply 2; apply 3", true},
		{
			"a gap", replays, "connect; end; live 0; live 3; live 4; replayed 0; replayed 1; replayed 2; replayed 3; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2; apply 3; apply 4", false,
		},
		{
			"a gap among messages held", replays,
			"connect; end; live 0; live 2; live 4; replayed 0; replayed 1; replayed 2; end; live 5; replayed 2; replayed 3; replayed 4; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2; replay 2; apply 3; apply 4; apply 5", false,
		},
		{
			"too many wait",
			kvevent.OrderConfig{Replays: true, HeldMessages: 1},
			"connect; end; live 0; live 2; live 3; replayed 0; replayed 1; replayed 2; end; replayed 2; replayed 3; end; live 4; replayed 3; replayed 4; end; live 5",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2; replay 2; apply 3; replay 3; apply 4; apply 5", false,
		},
		{
			"too many wait, and some are missing among the others",
			kvevent.OrderConfig{Replays: true, HeldMessages: 3},
			"connect; end; live 0; live 2; live 3; live 5; live 6; replayed 0; replayed 1; replayed 2; end; replayed 3; replayed 4; replayed 5; end; replayed 5; replayed 6; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2; apply 3; replay 3; apply 4; apply 5; replay 5; apply 6", false,
		},
		{
			"the engine no longer has it", replays, "connect; end; live 0; live 9; replayed 5; replayed 6; replayed 7; replayed 8; replayed 9; end; live 10",
			"replay 0; complete; apply 0; replay 0; clear lost; apply 5; apply 6; apply 7; apply 8; apply 9; apply 10", true,
		},
		{
			// That message 1 is of the life of message 0 cannot be known.
			"late by one", replays, "connect; end; live 0; live 2; replayed 1; replayed 2; end",
			"replay 0; complete; apply 0; replay 0; clear lost; apply 1; apply 2", true,
		},
		{
			"a hole in the replay", replays, "connect; end; live 0; live 4; replayed 0; replayed 1; replayed 3; replayed 4; end",
			"replay 0; complete; apply 0; replay 0; apply 1; clear lost; apply 3; apply 4", true,
		},
		{
			"the replay ends too early", replays, "connect; end; live 0; live 4; replayed 0; replayed 1; end; live 5",
			"replay 0; complete; apply 0; replay 0; apply 1; clear lost; apply 4; apply 5", true,
		},
		{"the replay is empty", replays, "connect; live 4; end; end; live 5", "replay 0; replay 0; apply 4; apply 5", true},
		{
			"a message that cannot be read", replays, "connect; end; live 0; live 1?; live 2",
			"replay 0; complete; apply 0; apply 1; clear lost; apply 2", true,
		},
		{
			"exact again by a clear", replays, "connect; end; live 0; live 1?; live 2!; live 3",
			"replay 0; complete; apply 0; apply 1; clear lost; apply 2; apply 3", false,
		},

		// Replays that fail.
		{
			"no answer", replays, "connect; live 3; fail; wait 99ms; wait 1ms; fail; wait 100ms; fail; live 4",
			"replay 0; replay 0; replay 0; apply 3; apply 4", true,
		},
		{
			"broken off, and on from there", replays, "connect; replayed 0; replayed 1; fail; wait 100ms; replayed 1; replayed 2; end",
			"replay 0; rebuild; apply 0; apply 1; replay 1; apply 2; complete", false,
		},
		{
			"progress counts attempts anew", replays,
			"connect; fail; wait 1s; fail; wait 1s; replayed 0; fail; wait 100ms; fail; wait 100ms; replayed 0; replayed 1; end",
			"replay 0; replay 0; replay 0; rebuild; apply 0; replay 0; replay 0; apply 1; complete", false,
		},
		{
			"left alone for a while", replays, "connect; live 3; fail; wait 1s; fail; wait 1s; fail; live 5; wait 29s; wait 1s; replayed 0",
			"replay 0; replay 0; replay 0; apply 3; clear lost; apply 5; replay 0; clear lost; rebuild; apply 0", false,
		},
		{
			"what is there stays until there is better", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; wait 30s; live 4; fail; wait 1s; fail; wait 1s; fail; live 5; wait 59s; live 6; wait 1s",
			"replay 0; replay 0; replay 0; apply 3; replay 0; apply 4; replay 0; replay 0; apply 5; apply 6; replay 0", true,
		},

		{
			// What was lost while no replay could be had comes back as well.
			"lost while left alone", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; live 4!; live 6; wait 30s; replayed 0",
			"replay 0; replay 0; replay 0; apply 3; apply 4; clear lost; apply 6; replay 0; clear lost; rebuild; apply 0", false,
		},
		{
			"connected again while left alone", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; live 4!; connect; live 5; wait 30s; replayed 0",
			"replay 0; replay 0; replay 0; apply 3; apply 4; clear lost; apply 5; replay 0; clear lost; rebuild; apply 0", false,
		},
		{
			"left alone again, no longer than at first", replays,
			"connect; fail; wait 1s; fail; wait 1s; fail; wait 30s; end; connect; fail; wait 100ms; fail; wait 100ms; fail; wait 30s",
			"replay 0; replay 0; replay 0; replay 0; complete; replay 0; replay 0; replay 0; clear lost; replay 0", true,
		},
		{
			// What has come live from the beginning needs no replay to be believed.
			"from the beginning while left alone", replays, "connect; fail; wait 1s; fail; wait 1s; fail; live 0; wait 30s; live 1",
			"replay 0; replay 0; replay 0; complete; apply 0; apply 1", false,
		},
		{
			"from a clear while left alone", replays, "connect; fail; wait 1s; fail; wait 1s; fail; live 5!; wait 30s; live 6",
			"replay 0; replay 0; replay 0; apply 5; apply 6", false,
		},
		{
			"nothing there, says the replay after all", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; wait 30s; end",
			"replay 0; replay 0; replay 0; apply 3; replay 0; clear restart; complete", false,
		},
		{
			"better, and broken off", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; wait 30s; replayed 0; replayed 1; fail; wait 100ms; replayed 1; replayed 2; end",
			"replay 0; replay 0; replay 0; apply 3; replay 0; clear lost; rebuild; apply 0; apply 1; replay 1; apply 2; complete", false,
		},
		{
			"better, and then not", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; wait 30s; live 4; replayed 0; replayed 1; end; replayed 1; end; live 5",
			"replay 0; replay 0; replay 0; apply 3; replay 0; apply 4; clear lost; rebuild; apply 0; apply 1; replay 1; clear lost; apply 4; apply 5", true,
		},

		// What is believed while a replay runs, or nothing is connected.
		{
			"void after a while", replays, "connect; end; live 0; live 2; wait 499ms; live 3; wait 1ms; live 4; replayed 0; replayed 1; replayed 2; replayed 3; replayed 4; end; live 5",
			"replay 0; complete; apply 0; replay 0; clear lost; replay 0; apply 2; apply 3; apply 4; clear lost; rebuild; apply 0; apply 1; apply 2; apply 3; apply 4; complete; apply 5", false,
		},
		{
			"each message of a replay gives it time", replays, "connect; end; live 0; live 3; wait 400ms; replayed 0; wait 400ms; replayed 1; wait 400ms; replayed 2; wait 499ms; replayed 3; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2; apply 3", false,
		},
		{
			"void between two attempts", replays, "connect; end; live 0; live 2; wait 450ms; fail; wait 50ms; live 3; wait 50ms; fail; wait 100ms; fail; live 4",
			"replay 0; complete; apply 0; replay 0; clear lost; apply 2; apply 3; replay 0; replay 0; apply 4", true,
		},
		{
			"nothing is void where nothing was told", replays, "connect; live 2; wait 1s; replayed 0; replayed 1; replayed 2; end",
			"replay 0; rebuild; apply 0; apply 1; apply 2; complete", false,
		},
		{
			"gone for a moment", replays, "connect; end; live 0; disconnect; wait 1999ms; connect; replayed 0; end",
			"replay 0; complete; apply 0; replay 0", false,
		},
		{
			"gone for too long", replays, "connect; end; live 0; disconnect; wait 2s; connect; replayed 0; end",
			"replay 0; complete; apply 0; clear lost; replay 0; rebuild; apply 0; complete", false,
		},
		{
			"connected, and no replay comes", replays, "connect; end; live 0; disconnect; wait 1s; connect; wait 500ms; live 1",
			"replay 0; complete; apply 0; replay 0; clear lost; replay 0; apply 1", true,
		},
		{
			// What the first one brings is shown to be all that there will be.
			"void at once where too little is kept", replays,
			"connect; end; live 0; live 9; replayed 7; replayed 8; replayed 9; end; live 13; replayed 11; replayed 12; replayed 13; end; live 15; replayed 13; replayed 14; replayed 15; end",
			"replay 0; complete; apply 0; replay 0; clear lost; apply 7; apply 8; apply 9; clear lost; replay 0; apply 11; apply 12; apply 13; replay 13; apply 14; apply 15", true,
		},
		{
			"too many waited, and there is no replay after all",
			kvevent.OrderConfig{Replays: true, HeldMessages: 1},
			"connect; live 3; live 4; fail; wait 1s; fail; wait 1s; fail",
			"replay 0; replay 0; replay 0; apply 3; clear lost", true,
		},
		{
			"an empty replay of what goes on", replays, "connect; live 3; fail; wait 1s; fail; wait 1s; fail; wait 30s; live 4; end; live 5",
			"replay 0; replay 0; replay 0; apply 3; replay 0; apply 4; apply 5", true,
		},
		{
			"another life, of which all may be kept", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; live 4; wait 30s; replayed 4; live 4 b; wait 1m; replayed 0 b",
			"replay 0; replay 0; replay 0; apply 3; apply 4; replay 0; stop; clear restart; apply 4; replay 0; clear lost; rebuild; apply 0", false,
		},
		{
			"better than what a replay would bring", replays,
			"connect; live 3; fail; wait 1s; fail; wait 1s; fail; live 4; live 5; wait 30s; replayed 4; replayed 5; end; live 6; wait 1h",
			"replay 0; replay 0; replay 0; apply 3; apply 4; apply 5; replay 0; stop; apply 6", true,
		},

		// Connections.
		{"connected again, and no replay", kvevent.OrderConfig{}, "connect; live 0; connect; live 1", "complete; apply 0; clear lost; apply 1", true},
		{
			"connected again", replays, "connect; end; live 0; connect; live 2; replayed 0; replayed 1; replayed 2; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2", false,
		},
		{
			"connected again while replaying", replays, "connect; live 1; connect; replayed 0; replayed 1; end",
			"replay 0; stop; replay 0; rebuild; apply 0; apply 1; complete", false,
		},
		{
			"restarted, and silent", replays, "connect; end; live 0; connect; end; end; live 0 b",
			"replay 0; complete; apply 0; replay 0; clear restart; replay 0; complete; apply 0", false,
		},
		{
			"restarted, and as far already", replays, "connect; end; live 0; connect; replayed 0 b; replayed 0 b; replayed 1 b; end",
			"replay 0; complete; apply 0; replay 0; clear restart; replay 0; rebuild; apply 0; apply 1; complete", false,
		},
		{
			"replay and live messages of two lives", replays, "connect; live 1; replayed 0 b; replayed 1 b; wait 100ms; replayed 0; replayed 1; end",
			"replay 0; rebuild; apply 0; stop; clear restart; replay 0; rebuild; apply 0; apply 1; complete", false,
		},

		// Numbers that go back.
		{"a duplicate", kvevent.OrderConfig{}, "connect; live 0; live 1; live 0; live 1; live 2", "complete; apply 0; apply 1; apply 2", false},
		{"another life, from 0", kvevent.OrderConfig{}, "connect; live 0; live 1; live 0 b; live 1 b", "complete; apply 0; apply 1; clear restart; complete; apply 0; apply 1", false},
		{"another life, seen late", kvevent.OrderConfig{}, "connect; live 0; live 1; live 1 b", "complete; apply 0; apply 1; clear restart; apply 1", true},
		{"from before what is known", kvevent.OrderConfig{}, "connect; live 7; live 6", "apply 7", true},
		{"too far back", kvevent.OrderConfig{Window: 5}, "connect; live 7; live 2; live 1", "apply 7; clear restart; apply 1", true},
		{"0 before what is known", kvevent.OrderConfig{}, "connect; live 7; live 0", "apply 7; clear restart; complete; apply 0", false},
		{
			"another life among those held", replays, "connect; live 5; live 2 b; wait 100ms; replayed 0 b; replayed 1 b; replayed 2 b; end",
			"replay 0; stop; replay 0; rebuild; apply 0; apply 1; apply 2; complete", false,
		},
		{
			"another life than what is replayed", replays, "connect; replayed 0; replayed 1; live 1 b; wait 100ms; replayed 0 b; replayed 1 b; end",
			"replay 0; rebuild; apply 0; apply 1; stop; clear restart; replay 0; rebuild; apply 0; apply 1; complete", false,
		},
		{
			"duplicates while replaying", replays, "connect; end; live 0; live 2; live 0; live 2; replayed 0; replayed 1; replayed 2; live 1; end",
			"replay 0; complete; apply 0; replay 0; apply 1; apply 2", false,
		},
		{"no number at all", kvevent.OrderConfig{}, "connect; live 0; live 18446744073709551615", "complete; apply 0", false},
		{"more replayed than was asked for", replays, "connect; end; live 0; live 1; connect; replayed 0; replayed 1; replayed 2; end", "replay 0; complete; apply 0; apply 1; replay 1; apply 2", false},
		{"replayed twice", replays, "connect; replayed 0; replayed 1; replayed 0; replayed 2; end", "replay 0; rebuild; apply 0; apply 1; apply 2; complete", false},

		// What the engine's health says.
		{
			"restarted, says its health", replays, "connect; end; live 0; restart; live 1; connect; replayed 0 b; end",
			"replay 0; complete; apply 0; clear restart; replay 0; rebuild; apply 0; complete", false,
		},
		{"restarted while replaying", replays, "connect; live 3; restart; replayed 0; end; fail; live 4", "replay 0; stop", true},
		{
			"disconnected while replaying", replays, "connect; live 2; disconnect; live 3; replayed 0; connect; replayed 0; end",
			"replay 0; stop; replay 0; rebuild; apply 0; complete", false,
		},
		{"not connected", replays, "live 0; replayed 0; end; fail; wait 1h", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, did := run(t, c.config, c.commands)
			if did != c.want {
				t.Errorf("%s\n  did  %s\n  want %s", c.commands, did, c.want)
			}
			if o.Partial() != c.partial {
				t.Errorf("partial is %t", o.Partial())
			}
		})
	}
}

func TestOrderMissed(t *testing.T) {
	replays := kvevent.OrderConfig{Replays: true}
	for _, c := range []struct {
		config   kvevent.OrderConfig
		commands string
		want     uint64
	}{
		{kvevent.OrderConfig{}, "connect; live 7; live 8", 0}, // what was before is not missed
		{kvevent.OrderConfig{}, "connect; live 0; live 3; live 5", 3},
		{replays, "connect; end; live 0; live 3; replayed 0; replayed 1; replayed 2; replayed 3; end", 0},
		{replays, "connect; end; live 0; live 5; replayed 3; replayed 4; replayed 5; end", 2},
		{replays, "connect; end; live 0; live 5; replayed 0; replayed 1; replayed 4; replayed 5; end", 2},
		{replays, "connect; end; live 0; live 5; replayed 0; replayed 1; end", 3},
		{replays, "connect; end; live 0; live 5; fail; wait 1s; fail; wait 1s; fail; live 6", 4},
	} {
		if o, _ := run(t, c.config, c.commands); o.Stats().Missed != c.want {
			t.Errorf("%s: %d missed, want %d", c.commands, o.Stats().Missed, c.want)
		}
	}
}

// Digests are of the newest messages alone: of an older one only its number is
// known.
func TestOrderOldDuplicate(t *testing.T) {
	s := &script{}
	o, now := kvevent.NewOrder(kvevent.OrderConfig{}, s), time.Unix(1e9, 0)
	o.Connected(now)
	for seq := range uint64(2000) {
		o.Live(now, kvevent.Message{Seq: seq, Payload: []byte("a")})
	}
	o.Live(now, kvevent.Message{Seq: 500, Payload: []byte("b")})
	if got := o.Stats(); got.Duplicates != 1 || got.Restarts != 0 {
		t.Errorf("counted %+v", got)
	}
	o.Live(now, kvevent.Message{Seq: 1500, Payload: []byte("b")})
	if got := o.Stats(); got.Duplicates != 1 || got.Restarts != 1 {
		t.Errorf("counted %+v", got)
	}
}

// A replay endpoint that is another engine's never ends in a loop.
func TestOrderForeignReplay(t *testing.T) {
	commands := "connect; live 1"
	for range 3 {
		commands += "; replayed 0 b; replayed 1 b; wait 100ms"
	}
	o, did := run(t, kvevent.OrderConfig{Replays: true}, commands+"; live 2; live 3")
	if !strings.HasSuffix(did, "clear restart; apply 1; apply 2; apply 3") || !o.Partial() {
		t.Errorf("did %s", did)
	}
	if s := o.Stats(); s.Mixed != 3 || s.Replays[kvevent.ReplayFailed] != 1 {
		t.Errorf("counted %+v", s)
	}
}

// What waits for a replay is bounded by bytes as well, and is a copy.
func TestOrderHeldBytes(t *testing.T) {
	s := &script{}
	o, now := kvevent.NewOrder(kvevent.OrderConfig{Replays: true, HeldBytes: 10}, s), time.Unix(1e9, 0)
	o.Connected(now)
	lent := []byte("0123456789ab") // one has room always
	o.Live(now, kvevent.Message{Seq: 1, Payload: lent})
	o.Live(now, kvevent.Message{Seq: 2, Payload: []byte("b")})
	copy(lent, "............")
	o.Replayed(now, kvevent.Message{Seq: 0, Payload: []byte("a")})
	o.Replayed(now, kvevent.Message{Seq: 1, Payload: []byte("0123456789ab")})
	o.ReplayEnded(now)
	if got, want := strings.Join(s.did, "; "), "replay 0; rebuild; apply 0; apply 1; complete; replay 1"; got != want {
		t.Errorf("did %s, want %s", got, want)
	}
	if got := o.Stats(); got.Spilled != 1 || got.Mixed != 0 {
		t.Errorf("counted %+v", got)
	}
}

// What goes on while a replay is tried is not told again when that has failed.
func TestOrderTellsOnce(t *testing.T) {
	o, did := run(t, kvevent.OrderConfig{Replays: true},
		"connect; end; live 0; live 2; wait 500ms; live 3; fail; wait 1s; live 4; fail; wait 1s; fail; live 5")
	if !strings.HasSuffix(did, "apply 2; apply 3; replay 0; apply 4; replay 0; apply 5") {
		t.Errorf("did %s", did)
	}
	if s := o.Stats(); s.Duplicates != 0 || s.Voided != 1 || s.Missed != 1 {
		t.Errorf("counted %+v", s)
	}
}
