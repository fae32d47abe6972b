//go:build e2e

package zmtp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// libzmq is a process that has sockets of libzmq.
type libzmq struct {
	t     *testing.T
	pid   *os.Process
	stdin io.Writer
	lines *bufio.Scanner
}

// say is a command, or an answer.
type say = map[string]any

func start(t *testing.T) *libzmq {
	t.Helper()
	python, scripts := os.Getenv("E2E_PYTHON"), os.Getenv("E2E_ZMQ")
	if python == "" || scripts == "" {
		t.Fatal("E2E_PYTHON or E2E_ZMQ is not set; start the suites with make zmq")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, python, filepath.Join(scripts, "peer.py"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return &libzmq{t: t, pid: cmd.Process, stdin: stdin, lines: bufio.NewScanner(stdout)}
}

// do gives a command and waits for its answer.
func (l *libzmq) do(what, name string, more say) say {
	l.t.Helper()
	return l.answer(l.order(what, name, more))
}

// order gives a command, whose answer is to be waited for.
func (l *libzmq) order(what, name string, more say) string {
	l.t.Helper()
	command := say{"do": what, "name": name}
	for k, v := range more {
		command[k] = v
	}
	line, err := json.Marshal(command)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(l.stdin, "%s\n", line); err != nil {
		l.t.Fatal(err)
	}
	return string(line)
}

func (l *libzmq) answer(command string) say {
	l.t.Helper()
	if !l.lines.Scan() {
		l.t.Fatalf("%s: the process of libzmq has ended", command)
	}
	var got say
	if err := json.Unmarshal(l.lines.Bytes(), &got); err != nil {
		l.t.Fatal(err)
	}
	if got["error"] != nil {
		l.t.Fatalf("%s: %v", command, got["error"])
	}
	return got
}

// open makes a socket that is bound or connected.
func (l *libzmq) open(name, kind, how, endpoint string, options say) (at string) {
	l.t.Helper()
	l.do("open", name, say{"type": kind, "options": options})
	at, _ = l.do(how, name, say{"endpoint": endpoint})["endpoint"].(string)
	return at
}

// frames are the frames of a message as the process takes and gives them.
func frames(parts ...string) []any {
	list := []any{}
	for _, p := range parts {
		if len(p) > 1024 {
			list = append(list, []any{float64(len(p)), hex.EncodeToString([]byte(p[len(p)-8:]))})
			continue
		}
		list = append(list, hex.EncodeToString([]byte(p)))
	}
	return list
}

// repeated is a frame of one byte, many times.
func repeated(n int, b byte) []any { return []any{n, hex.EncodeToString([]byte{b})} }

func (l *libzmq) wantRecv(name string, parts ...string) {
	l.t.Helper()
	got := l.do("recv", name, say{"ms": 5000})["frames"]
	if want := any(frames(parts...)); !reflect.DeepEqual(got, want) {
		l.t.Fatalf("libzmq received %v, want %v", got, want)
	}
}

// waitFor waits until something is so, while libzmq looks at its connections: it
// does so only when it is called.
func (l *libzmq) waitFor(name string, so func() bool) {
	l.t.Helper()
	waitFor(l.t, func() bool { return l.do("recv", name, say{"ms": 0})["frames"] == nil && so() })
}

// binds says which side binds.
var binds = []struct{ name, ours, theirs string }{
	{"we connect", "connect", "bind"},
	{"we bind", "bind", "connect"},
}

// join joins a socket of ours with one of libzmq's.
func join(t *testing.T, l *libzmq, ours socket, weBind bool, network, kind string, options say) {
	t.Helper()
	endpoint := "tcp://127.0.0.1:*"
	if network == "ipc" {
		endpoint = "ipc://" + filepath.Join(t.TempDir(), "s")
	}
	if weBind {
		l.open("peer", kind, "connect", bind(t, ours, endpoint), options)
		return
	}
	connect(t, ours, l.open("peer", kind, "bind", endpoint, options))
}

func TestLibzmqPublishes(t *testing.T) {
	for _, b := range binds {
		for _, network := range []string{"tcp", "ipc"} {
			t.Run(b.name+" "+network, func(t *testing.T) {
				l := start(t)
				sub := newSub(t, zmtp.Options{}, "kv")
				r := read(t, sub)
				join(t, l, sub, b.ours == "bind", network, "PUB", nil)
				r.want(zmtp.Connected)
				r.want(zmtp.Subscribed)
				large := 64 << 20
				for _, sent := range [][]any{
					frames("kv", "12345678", "payload"),
					frames("other"),
					frames("kv.more", "", ""),
					frames("kv"),
					frames("kv", strings.Repeat("a", 255), strings.Repeat("b", 256)),
				} {
					l.do("send", "peer", say{"frames": sent})
				}
				l.do("send", "peer", say{"frames": []any{hex.EncodeToString([]byte("kv")), repeated(large, 'z')}})
				r.wantParts("kv", "12345678", "payload")
				r.wantParts("kv.more", "", "")
				r.wantParts("kv")
				r.wantParts("kv", strings.Repeat("a", 255), strings.Repeat("b", 256))
				m := r.next()
				if len(m.Parts) != 2 || len(m.Parts[1]) != large || bytes.Count(m.Parts[1], []byte("z")) != large {
					t.Fatalf("a large message came as %d parts", len(m.Parts))
				}
			})
		}
	}
}

func TestLibzmqPublishesMany(t *testing.T) {
	const count, size = 100_000, 200
	for _, b := range binds {
		t.Run(b.name, func(t *testing.T) {
			l := start(t)
			sub := newSub(t, zmtp.Options{}, "")
			r := read(t, sub)
			join(t, l, sub, b.ours == "bind", "tcp", "PUB", say{"SNDHWM": 0})
			r.want(zmtp.Connected)
			r.want(zmtp.Subscribed)
			command := l.order("flood", "peer", say{"count": count, "size": size, "topic": "kv"})
			for n := range count {
				m := r.next()
				if len(m.Parts) != 3 || sequence(m.Parts[1]) != uint64(n) || len(m.Parts[2]) != size {
					t.Fatalf("message %d: %d parts, number % x", n, len(m.Parts), m.Parts[1])
				}
			}
			l.answer(command)
			if got := sub.Stats(); got.Received != count {
				t.Errorf("%d messages were counted", got.Received)
			}
		})
	}
}

// What libzmq drops because we do not read is missing in one piece or several,
// and nothing else changes: what comes is whole and in order, to the end.
func TestLibzmqDropsForUs(t *testing.T) {
	const count, size = 5000, 16 << 10
	l := start(t)
	sub := newSub(t, zmtp.Options{}, "")
	r := read(t, sub)
	connect(t, sub, l.open("peer", "PUB", "bind", "tcp://127.0.0.1:*", say{"SNDHWM": 10}))
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)
	l.do("flood", "peer", say{"count": count, "size": size, "topic": "kv"}) // all of it, before we read
	var ending sync.WaitGroup
	defer ending.Wait()
	ended := make(chan struct{})
	defer close(ended)
	ending.Go(func() { // again and again, until there is room for it
		for {
			l.do("send", "peer", say{"frames": frames("last")})
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	came, next := 0, uint64(0)
	for {
		m := r.want(zmtp.Data)
		if len(m.Parts) == 1 {
			break
		}
		if n := sequence(m.Parts[1]); n < next || len(m.Parts[2]) != size || bytes.Count(m.Parts[2], []byte("x")) != size {
			t.Fatalf("message %d of %d bytes after %d", n, len(m.Parts[2]), next)
		} else {
			next = n + 1
		}
		came++
	}
	if came == 0 || came >= count {
		t.Errorf("%d of %d messages came; some, but not all, fit into the buffers", came, count)
	}
}

// A publisher that goes and comes back is found again, and its subscriptions
// with it; each life is a connection of its own.
func TestLibzmqPublisherRestarts(t *testing.T) {
	l := start(t)
	sub := newSub(t, zmtp.Options{}, "kv")
	r := read(t, sub)
	at := l.open("one", "PUB", "bind", "tcp://127.0.0.1:*", nil)
	connect(t, sub, at)
	for life, name := range []string{"one", "two", "three"} {
		if life > 0 {
			l.open(name, "PUB", "bind", at, nil)
		}
		if c := r.past(zmtp.Failed, zmtp.Connected); c.Peer.Epoch() != uint64(life+1) {
			t.Errorf("life %d has epoch %d", life, c.Peer.Epoch())
		}
		r.want(zmtp.Subscribed)
		l.do("send", name, say{"frames": frames("kv", name)})
		r.wantParts("kv", name)
		l.do("close", name, nil)
		if lost := r.want(zmtp.Lost); lost.Err == nil {
			t.Error("a connection was lost for no reason")
		}
	}
}

// The first message after a change of subscriptions comes, or does not, as the
// confirmation of it said.
func TestLibzmqSubscriptionsChange(t *testing.T) {
	l := start(t)
	sub := newSub(t, zmtp.Options{}, "a")
	r := read(t, sub)
	connect(t, sub, l.open("peer", "PUB", "bind", "tcp://127.0.0.1:*", nil))
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)
	send := func(topics ...string) {
		for _, topic := range topics {
			l.do("send", "peer", say{"frames": frames(topic, topic)})
		}
	}
	change := func(f func(string) error, prefix string) {
		t.Helper()
		if err := f(prefix); err != nil {
			t.Fatal(err)
		}
		r.want(zmtp.Subscribed)
	}
	send("a1", "b1", "a2")
	r.wantParts("a1", "a1")
	r.wantParts("a2", "a2")
	change(sub.Subscribe, "b")
	send("b3", "c3", "a3")
	r.wantParts("b3", "b3")
	r.wantParts("a3", "a3")
	change(sub.Unsubscribe, "a")
	send("a4", "b4")
	r.wantParts("b4", "b4")
	// Two subscriptions of one prefix need two cancellations.
	change(sub.Subscribe, "b")
	change(sub.Unsubscribe, "b")
	send("b5")
	r.wantParts("b5", "b5")
}

func TestLibzmqSubscribes(t *testing.T) {
	for _, b := range binds {
		for _, network := range []string{"tcp", "ipc"} {
			t.Run(b.name+" "+network, func(t *testing.T) {
				l := start(t)
				pub := newPub(t, zmtp.Options{})
				join(t, l, pub, b.ours == "bind", network, "SUB", nil)
				l.do("subscribe", "peer", say{"prefix": "kv"})
				l.waitFor("peer", func() bool { return pub.Subscribers([]byte("kv")) == 1 })
				large := strings.Repeat("z", 64<<20)
				for _, m := range [][]string{{"kv", "12345678", "x"}, {"no"}, {"kv.more", "", ""}, {"kv"}, {"kv", large}} {
					send(t, pub, m...)
				}
				l.wantRecv("peer", "kv", "12345678", "x")
				l.wantRecv("peer", "kv.more", "", "")
				l.wantRecv("peer", "kv")
				l.wantRecv("peer", "kv", large)
				l.do("unsubscribe", "peer", say{"prefix": "kv"})
				waitFor(t, func() bool { return pub.Subscribers([]byte("kv")) == 0 })
			})
		}
	}
}

func TestLibzmqSubscribesToMany(t *testing.T) {
	const count = 100_000
	l := start(t)
	pub := newPub(t, zmtp.Options{HighWater: count})
	join(t, l, pub, true, "tcp", "SUB", say{"RCVHWM": 0})
	l.do("subscribe", "peer", say{"prefix": ""})
	waitFor(t, func() bool { return pub.Subscribers(nil) == 1 })
	for n := range count {
		send(t, pub, "kv", number(n), strings.Repeat("x", 200))
	}
	got := l.do("drain", "peer", say{"count": count, "ms": 5000})
	if got["count"] != float64(count) || got["bytes"] != float64(count*210) {
		t.Errorf("libzmq received %v messages of %v bytes", got["count"], got["bytes"])
	}
	if s := pub.Stats(); s.Dropped != 0 || s.Sent != count {
		t.Errorf("%+v", s)
	}
}

// A subscriber that does not read loses the newest messages, and only it.
func TestLibzmqSubscriberIsSlow(t *testing.T) {
	const count, size = 5000, 16 << 10 // far beyond the buffers of TCP
	l := start(t)
	pub := newPub(t, zmtp.Options{HighWater: 100})
	at := bind(t, pub, "tcp://127.0.0.1:*")
	l.open("slow", "SUB", "connect", at, say{"RCVHWM": 1, "RCVBUF": 4096})
	l.do("subscribe", "slow", say{"prefix": ""})
	quick := newSub(t, zmtp.Options{}, "")
	connect(t, quick, at)
	r := read(t, quick)
	r.want(zmtp.Connected)
	waitFor(t, func() bool { return pub.Subscribers(nil) == 2 })
	body := strings.Repeat("x", size)
	for n := range count {
		send(t, pub, number(n), body)
		if m := r.past(zmtp.Subscribed, zmtp.Data); sequence(m.Parts[0]) != uint64(n) {
			t.Fatalf("the quick subscriber got %d for %d", sequence(m.Parts[0]), n)
		}
	}
	dropped := pub.Stats().Dropped
	if dropped == 0 {
		t.Fatal("nothing was dropped")
	}
	got := l.do("drain", "slow", say{"count": count, "ms": 1000})
	if got["count"] != float64(count-int(dropped)) {
		t.Errorf("libzmq received %v of %d, of which %d were dropped", got["count"], count, dropped)
	}
}

func TestLibzmqSubscriberRestarts(t *testing.T) {
	for _, b := range binds {
		t.Run(b.name, func(t *testing.T) {
			l := start(t)
			pub := newPub(t, zmtp.Options{})
			at := ""
			if b.ours == "bind" {
				at = bind(t, pub, "tcp://127.0.0.1:*")
			} else {
				at = l.open("first", "SUB", "bind", "tcp://127.0.0.1:*", nil)
				connect(t, pub, at)
				l.do("close", "first", nil)
			}
			for life := range 3 {
				name := strconv.Itoa(life)
				l.open(name, "SUB", b.theirs, at, nil)
				l.do("subscribe", name, say{"prefix": "kv"})
				l.waitFor(name, func() bool { return pub.Subscribers([]byte("kv")) == 1 })
				send(t, pub, "kv", name)
				l.wantRecv(name, "kv", name)
				l.do("close", name, nil)
				waitFor(t, func() bool { return pub.Stats().Peers == 0 })
			}
		})
	}
}

func TestLibzmqRouter(t *testing.T) {
	for _, b := range binds {
		t.Run(b.name, func(t *testing.T) {
			l := start(t)
			dealer := newDealer(t, zmtp.Options{Identity: []byte("me")})
			r := read(t, dealer)
			join(t, l, dealer, b.ours == "bind", "tcp", "ROUTER", nil)
			r.want(zmtp.Connected)
			send(t, dealer, "", number(7))
			got := l.do("recv", "peer", say{"ms": 5000})["frames"]
			if want := any(frames("me", "", number(7))); !reflect.DeepEqual(got, want) {
				t.Fatalf("libzmq received %v, want %v", got, want)
			}
			for n := range 3 { // many answers to one question
				l.do("send", "peer", say{"frames": frames("me", "", number(n), "payload")})
				r.wantParts("", number(n), "payload")
			}
		})
	}
}

func TestLibzmqDealer(t *testing.T) {
	for _, kind := range []string{"DEALER", "REQ"} {
		for _, b := range binds {
			t.Run(kind+" "+b.name, func(t *testing.T) {
				l := start(t)
				router := newRouter(t, zmtp.Options{})
				r := read(t, router)
				join(t, l, router, b.ours == "bind", "tcp", kind, say{"IDENTITY": "them"})
				c := r.want(zmtp.Connected)
				if got := string(c.Peer.Identity()); got != "them" || c.Peer.SocketType() != kind {
					t.Errorf("the peer is %s %q", c.Peer.SocketType(), got)
				}
				// REQ adds and takes the empty part itself.
				question, answer := []string{"", "question"}, []string{"", "answer"}
				if kind == "REQ" {
					question, answer = question[1:], answer[1:]
				}
				l.do("send", "peer", say{"frames": frames(question...)})
				r.wantParts("", "question")
				send(t, to{router, c.Peer}, "", "answer")
				l.wantRecv("peer", answer...)
			})
		}
	}
}

func TestLibzmqDealerSendsMuch(t *testing.T) {
	const count = 20_000
	l := start(t)
	dealer := newDealer(t, zmtp.Options{HighWater: 10})
	join(t, l, dealer, true, "tcp", "DEALER", nil)
	r := read(t, dealer)
	r.want(zmtp.Connected)
	command := l.order("echo", "peer", say{"count": count})
	failed := make(chan error, 1)
	go func() {
		for n := range count {
			if err := dealer.Send(t.Context(), []byte(number(n)), nil); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for n := range count {
		r.wantParts(number(n), "")
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
	l.answer(command)
}

// libzmq asks whether we are there, and is content with the answers.
func TestLibzmqHeartbeats(t *testing.T) {
	l := start(t)
	sub := newSub(t, zmtp.Options{Heartbeat: 20 * time.Millisecond}, "")
	r := read(t, sub)
	connect(t, sub, l.open("peer", "PUB", "bind", "tcp://127.0.0.1:*", say{"HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 500, "HEARTBEAT_TTL": 500}))
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)
	// A second of silence is 50 heartbeats.
	l.open("idle", "PULL", "bind", "tcp://127.0.0.1:*", nil)
	l.do("recv", "idle", say{"ms": 1000})
	l.do("send", "peer", say{"frames": frames("still here")})
	r.wantParts("still here")
}

// A process that no longer runs, though its connections stand, is noticed; when
// it runs again, so do its sockets.
func TestLibzmqFreezes(t *testing.T) {
	l := start(t)
	sub := newSub(t, zmtp.Options{Heartbeat: 50 * time.Millisecond}, "")
	r := read(t, sub)
	connect(t, sub, l.open("peer", "PUB", "bind", "tcp://127.0.0.1:*", nil))
	r.want(zmtp.Connected)
	r.want(zmtp.Subscribed)
	if err := l.pid.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if lost := r.want(zmtp.Lost); !strings.Contains(lost.Err.Error(), "silent") {
		t.Errorf("lost because %v", lost.Err)
	}
	if err := l.pid.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if c := r.past(zmtp.Failed, zmtp.Connected); c.Peer.Epoch() != 2 {
		t.Errorf("epoch %d", c.Peer.Epoch())
	}
	r.want(zmtp.Subscribed)
	l.do("send", "peer", say{"frames": frames("again")})
	r.wantParts("again")
}

// Many push at once, and all that they push comes.
func TestLibzmqPushes(t *testing.T) {
	for _, b := range binds {
		for _, network := range []string{"tcp", "ipc"} {
			t.Run(b.name+" "+network, func(t *testing.T) {
				l := start(t)
				pull := newPull(t, zmtp.Options{})
				r := read(t, pull)
				join(t, l, pull, b.ours == "bind", network, "PUSH", nil)
				if c := r.want(zmtp.Connected); c.Peer.SocketType() != "PUSH" {
					t.Errorf("the peer is a %s", c.Peer.SocketType())
				}
				l.do("send", "peer", say{"frames": frames("topic", number(1), "event")})
				r.wantParts("topic", number(1), "event")
				const count = 20_000
				command := l.order("flood", "peer", say{"count": count, "size": 200, "topic": "topic"})
				for n := range count {
					if m := r.next(); len(m.Parts) != 3 || sequence(m.Parts[1]) != uint64(n) || len(m.Parts[2]) != 200 {
						t.Fatalf("message %d: %d parts, number % x", n, len(m.Parts), m.Parts[1])
					}
				}
				l.answer(command)
			})
		}
	}
	t.Run("two", func(t *testing.T) {
		l := start(t)
		pull := newPull(t, zmtp.Options{})
		r := read(t, pull)
		at := bind(t, pull, "tcp://127.0.0.1:*")
		for _, name := range []string{"one", "two"} {
			l.open(name, "PUSH", "connect", at, nil)
			r.want(zmtp.Connected)
			l.do("send", name, say{"frames": frames(name)})
			r.wantParts(name)
		}
		if s := pull.Stats(); s.Peers != 2 || s.Received != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Sockets that do not fit each other say so, and go on trying.
func TestLibzmqWrongSocket(t *testing.T) {
	for _, kind := range []string{"PULL", "ROUTER", "SUB"} {
		t.Run(kind, func(t *testing.T) {
			l := start(t)
			sub := newSub(t, zmtp.Options{}, "")
			r := read(t, sub)
			at := l.open("wrong", kind, "bind", "tcp://127.0.0.1:*", nil)
			connect(t, sub, at)
			r.want(zmtp.Failed)
			r.want(zmtp.Failed)
			l.do("close", "wrong", nil)
			l.open("right", "PUB", "bind", at, nil)
			r.past(zmtp.Failed, zmtp.Connected)
		})
	}
}

// A publisher that wants a password hangs up; what that may mean is said.
func TestLibzmqWrongMechanism(t *testing.T) {
	l := start(t)
	sub := newSub(t, zmtp.Options{}, "")
	r := read(t, sub)
	l.do("open", "peer", say{"type": "PUB", "options": say{"PLAIN_SERVER": 1}})
	connect(t, sub, l.do("bind", "peer", say{"endpoint": "tcp://127.0.0.1:*"})["endpoint"].(string))
	failed := r.want(zmtp.Failed)
	if !strings.Contains(failed.Err.Error(), "mechanism") {
		t.Errorf("%v does not speak of mechanisms", failed.Err)
	}
}
