package remote_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"iter"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

func request(n int) *engine.Request {
	return &engine.Request{ID: "1-0", TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: n}}
}

// begin runs a request until its first token, and returns how it ends.
func begin(t *testing.T, e engine.Engine, n int) (end func() (tokens int, err error)) {
	t.Helper()
	first, last := make(chan struct{}), make(chan error, 1)
	tokens := 0
	go func() {
		var once sync.Once
		var err error
		for d, e := range e.Generate(context.Background(), request(n)) {
			once.Do(func() { close(first) })
			tokens += len(d.TokenIDs)
			err = e
		}
		last <- err
	}()
	select {
	case <-first:
	case <-time.After(10 * time.Second):
		t.Fatal("no token came")
	}
	return func() (int, error) { err := <-last; return tokens, err }
}

// A drain lets newcomers in for a while, then what runs end, and cuts what is left.
func TestDrain(t *testing.T) {
	a := slowArgs()
	a.MaxNumSeqs = 8
	s := serve(t, a, remote.ServerConfig{})
	stay, cancel := context.WithCancel(t.Context())
	defer cancel()
	draining, gone := make(chan struct{}), make(chan struct{})
	go func() {
		last := engine.Loading
		for st := range s.Card(stay) {
			switch {
			case st.State == engine.Draining && last != engine.Draining:
				close(draining)
			case st.State == engine.Dead:
				close(gone)
				return
			}
			last = st.State
		}
	}()
	short, long := begin(t, s, 150), begin(t, s, 4000)
	ctx, stop := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- s.server.Drain(ctx, 100*time.Millisecond) }()
	<-draining
	if n, err := begin(t, s, 5)(); n != 5 || err != nil {
		t.Errorf("a newcomer within the grace: %d tokens, %v", n, err)
	}
	if n, err := short(); n != 150 || err != nil {
		t.Errorf("a short stream: %d tokens, %v", n, err)
	}
	if _, _, err := answerOf(t, s, nil); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a newcomer after the grace: %v, want unavailable", err)
	}
	// It is told that the engine shuts down, unless the end of the worker is seen first.
	if n, err := long(); n == 0 || engine.KindOf(err) != engine.EngineShutdown && engine.KindOf(err) != engine.Disconnected {
		t.Errorf("a long stream: %d tokens, %v, want engine_shutdown", n, err)
	}
	if err := <-drained; err == nil {
		t.Error("nobody was told that a request was cut")
	}
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the end of the worker was not seen")
	}
}

// Beyond its limits a worker takes nothing, and has them again afterwards.
func TestAdmission(t *testing.T) {
	a := slowArgs()
	a.MaxNumSeqs = 8
	s := serve(t, a, remote.ServerConfig{Requests: 2, Queue: 1})
	begin(t, s, 8000)
	two := begin(t, s, 4)
	waiting := make(chan error, 1)
	go func() {
		var end error
		for _, err := range s.Generate(t.Context(), request(3)) {
			end = err
		}
		waiting <- end
	}()
	if n, err := two(); n != 4 || err != nil { // whose place the waiting one takes
		t.Errorf("%d tokens, %v", n, err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the one that waited: %v", err)
	}
	begin(t, s, 8000)
	ctx, cancel := context.WithCancelCause(t.Context())
	queued := make(chan error, 1)
	go func() {
		var end error
		for end == nil || engine.KindOf(end) == engine.WorkerOverloaded { // somebody else may have come first
			for _, err := range s.Generate(ctx, request(3)) {
				end = err
			}
		}
		queued <- end
	}()
	soon := func() engine.ErrorKind {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var end error
		for _, err := range s.Generate(ctx, request(3)) {
			end = err
		}
		return engine.KindOf(end)
	}
	for soon() != engine.WorkerOverloaded { // until the third waits
	}
	cancel(engine.ErrClientGone)
	if err := <-queued; engine.KindOf(err) != engine.Cancelled {
		t.Errorf("cancelled in the queue: %v", err)
	}
	for soon() != engine.DeadlineExceeded { // it has left room: who comes now may wait
	}
}

// What is meant for another life starts nothing.
func TestStale(t *testing.T) {
	s := serve(t, args(), remote.ServerConfig{})
	epoch := await(t, s, inState(engine.Ready)).Epoch
	for _, tt := range []struct {
		epoch uint64
		kind  engine.ErrorKind
	}{{epoch, ""}, {0, ""}, {epoch + 1, engine.Stale}, {1, engine.Stale}} {
		_, _, err := answerOf(t, s, func(r *engine.Request) { r.Epoch = tt.epoch })
		if tt.kind == "" && err != nil || tt.kind != "" && engine.KindOf(err) != tt.kind {
			t.Errorf("epoch %d: %v, want %q", tt.epoch, err, tt.kind)
		}
	}
}

func TestKeys(t *testing.T) {
	m, err := mock.New(mock.Config{Model: "m", Args: args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	_, address := listen(t, remote.ServerConfig{Engine: m, Authorize: func(key string) bool { return key == "secret" }})
	e := dial(t, remote.Config{URL: address, Key: "secret"})
	await(t, e, inState(engine.Ready))
	if _, _, err := answerOf(t, e, nil); err != nil {
		t.Error(err)
	}
	for _, key := range []string{"", "wrong"} {
		e := dial(t, remote.Config{URL: address, Key: key})
		if s := await(t, e, inState(engine.Failed)); !strings.Contains(s.Reason, "bearer token") {
			t.Errorf("key %q: %+v", key, s)
		}
		if _, _, err := answerOf(t, e, nil); engine.KindOf(err) != engine.Denied {
			t.Errorf("key %q: %v, want denied", key, err)
		}
		if _, err := e.Control(t.Context(), "reset", nil); engine.KindOf(err) != engine.Denied {
			t.Errorf("key %q: control: %v, want denied", key, err)
		}
	}
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []string{"", workerpb.Worker_ServiceDesc.ServiceName} {
		got, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q without a key: %v %v", service, got, err)
		}
	}
}

// certificate makes one for this machine, which signs itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "worker"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// With certificates on both sides, only those who have one are let in.
func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	m, err := mock.New(mock.Config{Model: "m", Args: args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	_, address := listen(t, remote.ServerConfig{Engine: m, TLS: &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	address = strings.Replace(address, "grpc:", "grpcs:", 1)
	e := dial(t, remote.Config{URL: address, Key: "k", TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}})
	await(t, e, inState(engine.Ready))
	for name, c := range map[string]*tls.Config{"no certificate": {RootCAs: pool}, "unknown authority": {Certificates: []tls.Certificate{cert}}} {
		e := dial(t, remote.Config{URL: address, TLS: c})
		if s := await(t, e, func(s engine.Status) bool { return !strings.Contains(s.Reason, "not answered") }); s.State != engine.Loading {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		c    remote.Config
		says string
	}{
		{remote.Config{URL: "http://h:1"}, "want grpc://"},
		{remote.Config{URL: "grpc://"}, "want grpc://"},
		{remote.Config{URL: "grpc://h:1/path"}, "nothing behind the port"},
		{remote.Config{URL: "grpc://u:p@h:1"}, "no user"},
		{remote.Config{URL: "grpc://h:1", Key: "k"}, "plain text"},
		{remote.Config{URL: "grpc://h:1", TLS: &tls.Config{}}, "want grpcs://h:1"},
	} {
		if e, err := remote.New(tt.c); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v %v, want %q", tt.c, e, err, tt.says)
		}
	}
	for _, c := range []remote.Config{{URL: "grpc://127.0.0.1:1", Key: "k"}, {URL: "grpc://h", Key: "k", Insecure: true}, {URL: "grpcs://h:1", Key: "k"}} {
		e, err := remote.New(c)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		e.Close()
	}
}

// Files of a model are sent, and nothing else that lies beside them.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("vocabulary ", 300_000) // several pieces
	for name, text := range map[string]string{
		"tokenizer.json": large, "config.json": "{}", "chat_template.jinja": "", "model.safetensors": "weights", "secret.txt": "no",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := mock.New(mock.Config{Model: "m", Args: args(), Files: []engine.File{{Kind: "tokenizer", URI: "file://" + dir}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	_, address := listen(t, remote.ServerConfig{Engine: m})
	cache := t.TempDir()
	for range 2 { // the second time they are there
		e := dial(t, remote.Config{URL: address, Cache: cache})
		card := await(t, e, inState(engine.Ready)).Card
		var kinds []string
		for _, f := range card.Files {
			kinds = append(kinds, f.Kind)
			if f.URI != card.Files[0].URI || !strings.HasPrefix(f.URI, cache) {
				t.Errorf("%+v", f)
			}
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []string{"chat_template", "config", "tokenizer"}) {
			t.Errorf("files %v", kinds)
		}
		got, err := os.ReadFile(filepath.Join(card.Files[0].URI, "tokenizer.json"))
		if err != nil || string(got) != large {
			t.Errorf("%d bytes of %d, %v", len(got), len(large), err)
		}
		if left, err := os.ReadDir(card.Files[0].URI); err != nil || len(left) != 3 {
			t.Errorf("%v in the cache, %v", left, err)
		}
		// A file that has become another one is fetched again.
		if err := os.WriteFile(filepath.Join(card.Files[0].URI, "tokenizer.json"), []byte("spoilt"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"model.safetensors", "secret.txt", "../secret.txt", "", filepath.Join(dir, "config.json")} {
		stream, err := workerpb.NewWorkerClient(conn).File(t.Context(), &workerpb.FileRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err == nil {
			t.Errorf("%q was sent: %q", name, m.Data)
		}
	}
}

// A card says where files lie on this machine only within what the operator has named.
func TestFolders(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	say := ready()
	say.Card.Files = []*workerpb.FileRef{
		{Kind: "tokenizer", Uri: "file://" + dir},
		{Kind: "config", Uri: other},
		{Kind: "config", Uri: dir + "/../" + filepath.Base(other)},
		{Kind: "chat_template", Uri: "builtin:demo"},
	}
	address := "grpc://" + host(t, &rogue{describe: func(s workerpb.Worker_DescribeServer) error {
		if err := s.Send(say); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}})
	for _, tt := range []struct {
		folders []string
		want    []string
	}{{nil, []string{"builtin:demo"}}, {[]string{dir}, []string{dir, "builtin:demo"}}} {
		var got []string
		for _, f := range await(t, dial(t, remote.Config{URL: address, Folders: tt.folders}), inState(engine.Ready)).Card.Files {
			got = append(got, f.URI)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("folders %v: files %v, want %v", tt.folders, got, tt.want)
		}
	}
}

// versatile is an engine that can be told all that there is to tell.
type versatile struct {
	*mock.Engine
	mu   sync.Mutex
	told []string
}

func (v *versatile) tell(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = append(v.told, fmt.Sprintf(format, args...))
}

func (v *versatile) said() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.told)
}

func (v *versatile) OpenSession(_ context.Context, key kv.SessionKey, o engine.SessionOptions) (bool, error) {
	v.tell("open %+v %v %d %v %d", key, o.Timeout, o.Capacity, o.Ephemeral, *o.Rank)
	return true, nil
}

func (v *versatile) CloseSession(_ context.Context, key kv.SessionKey) (bool, error) {
	v.tell("close %+v", key)
	return false, nil
}

func (v *versatile) Prepare(_ context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	v.tell("prepare %+v", q)
	return engine.Handoff{ID: "h", Concurrent: true, Prefill: json.RawMessage(`{"room":9223372036854775807}`), Decode: json.RawMessage(`{ "a" : 1 }`)}, nil
}

func (v *versatile) Release(_ context.Context, id string) error {
	v.tell("release %s", id)
	return engine.Errorf(engine.NotFound, "no hand-off %s", id)
}

func (v *versatile) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	v.tell("control %s %s", name, args)
	if name == "wait" {
		<-ctx.Done()
		return nil, engine.CauseOf(ctx, ctx.Err())
	}
	return json.RawMessage(`{"done":true}`), nil
}

func (v *versatile) Chat(_ context.Context, r *engine.Request) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		for _, e := range []chat.Event{
			{Kind: chat.Start},
			{Kind: chat.BlockStart, BlockKind: chat.Text},
			{Kind: chat.TextDelta, Text: r.Chat.Turns[0].Blocks[0].Text},
			{Kind: chat.BlockStop},
			{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStop}},
		} {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (v *versatile) Infer(ctx context.Context, r *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return echoes{}.Infer(ctx, r)
}

func newVersatile(t *testing.T) (*versatile, *remote.Client, string) {
	t.Helper()
	m, err := mock.New(mock.Config{Model: "m", Args: args()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	v := &versatile{Engine: m}
	_, address := listen(t, remote.ServerConfig{Engine: v})
	return v, dial(t, remote.Config{URL: address}), address
}

// What an engine can be told goes over the wire as it is, and comes back so.
func TestControls(t *testing.T) {
	v, e, _ := newVersatile(t)
	rank := uint32(2)
	key := kv.SessionKey{Model: "m", Salt: "s", ID: "i"}
	if known, err := e.OpenSession(t.Context(), key, engine.SessionOptions{Timeout: time.Minute, Capacity: 1 << 24, Ephemeral: true, Rank: &rank}); !known || err != nil {
		t.Errorf("open: %v %v", known, err)
	}
	if known, err := e.CloseSession(t.Context(), key); known || err != nil {
		t.Errorf("close: %v %v", known, err)
	}
	h, err := e.Prepare(t.Context(), engine.HandoffQuery{Request: "r", Rank: 1, Decode: kv.Target{Worker: 1<<53 - 1, Rank: 3}, DecodeLayout: "l"})
	want := engine.Handoff{ID: "h", Concurrent: true, Prefill: json.RawMessage(`{"room":9223372036854775807}`), Decode: json.RawMessage(`{ "a" : 1 }`)}
	if diff := different(h, want); diff != "" || err != nil {
		t.Errorf("prepare: %v\n%s", err, diff)
	}
	if err := e.Release(t.Context(), "h"); engine.KindOf(err) != engine.NotFound || !strings.Contains(err.Error(), "no hand-off h") {
		t.Errorf("release: %v", err)
	}
	if out, err := e.Control(t.Context(), "reset", json.RawMessage(`{"a":1}`)); string(out) != `{"done":true}` || err != nil {
		t.Errorf("control: %s %v", out, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(engine.ErrClientGone) })
	if _, err := e.Control(ctx, "wait", nil); engine.KindOf(err) != engine.Cancelled {
		t.Errorf("a control that is left: %v", err)
	}
	said := strings.Join(v.said(), "\n")
	const all = `open {Model:m Salt:s ID:i} 1m0s 16777216 true 2
close {Model:m Salt:s ID:i}
prepare {Request:r Rank:1 Decode:9007199254740991/3 DecodeLayout:l}
release h
control reset {"a":1}
control wait `
	if diff := different(said, all); diff != "" {
		t.Error(diff)
	}
	// An engine without the ability says so.
	bare := args()
	bare.EnablePrefixCaching = false
	plain := serve(t, bare, remote.ServerConfig{})
	if _, err := plain.OpenSession(t.Context(), key, engine.SessionOptions{}); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("sessions of an engine that has none: %v", err)
	}
	for _, err := range plain.Infer(t.Context(), &engine.TensorRequest{}) {
		if engine.KindOf(err) != engine.Unsupported {
			t.Errorf("tensors to an engine that takes none: %v", err)
		}
	}
	for _, err := range plain.Chat(t.Context(), &engine.Request{Chat: &chat.Request{}}) {
		if engine.KindOf(err) != engine.Unsupported {
			t.Errorf("a conversation with an engine that has none: %v", err)
		}
	}
}

// What was meant for an earlier life of the worker is told to nobody.
func TestControlsStale(t *testing.T) {
	v, e, _ := newVersatile(t)
	await(t, e, inState(engine.Ready))
	v.Restart()
	for known := true; known; { // until the worker has heard of its engine's new life
		_, err := e.CloseSession(t.Context(), kv.SessionKey{ID: "old"})
		known = engine.KindOf(err) != engine.Stale
	}
	before := len(v.said())
	if _, err := e.OpenSession(t.Context(), kv.SessionKey{}, engine.SessionOptions{}); engine.KindOf(err) != engine.Stale {
		t.Errorf("%v, want stale", err)
	}
	if now := v.said(); len(now) != before {
		t.Errorf("it was told: %v", now[before:])
	}
	await(t, e, inState(engine.Ready))
	rank := uint32(0)
	if _, err := e.OpenSession(t.Context(), kv.SessionKey{}, engine.SessionOptions{Rank: &rank}); err != nil {
		t.Error(err)
	}
}

func TestChat(t *testing.T) {
	_, e, _ := newVersatile(t)
	text := ""
	r := &engine.Request{Chat: &chat.Request{Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "hello"}}}}}}
	seq := e.Chat(t.Context(), r)
	for ev, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		text += ev.Text
	}
	if text != "hello" {
		t.Errorf("%q", text)
	}
	for _, err := range seq {
		if engine.KindOf(err) != engine.Internal {
			t.Errorf("a second loop: %v", err)
		}
	}
}

func TestTensorsOnOneStream(t *testing.T) {
	_, _, address := newVersatile(t)
	// Many calls on one stream, as frontends of others may send them.
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := workerpb.NewWorkerClient(conn).TensorInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	yes := &workerpb.Parameter{Value: &workerpb.Parameter_BoolParam{BoolParam: true}}
	send := func(m *workerpb.TensorCall) {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(100) {
		r := &workerpb.TensorRequest{Id: fmt.Sprint(n)}
		switch {
		case n%10 == 3:
			r.Parameters = map[string]*workerpb.Parameter{"raise_exception": yes}
		case n%10 == 7:
			r.Parameters = map[string]*workerpb.Parameter{"hang": yes}
		}
		send(&workerpb.TensorCall{Call: n, What: &workerpb.TensorCall_Request{Request: r}})
	}
	for n := uint64(7); n < 100; n += 10 {
		send(&workerpb.TensorCall{Call: n, What: &workerpb.TensorCall_Cancel{Cancel: true}})
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answers, ends := map[uint64]string{}, map[uint64]string{}
	for {
		m, err := stream.Recv()
		if err != nil {
			if err.Error() != "EOF" {
				t.Error(err)
			}
			break
		}
		if r := m.GetResponse(); r != nil {
			answers[m.Call] += r.Id
			continue
		}
		if _, twice := ends[m.Call]; twice {
			t.Errorf("call %d ended twice", m.Call)
		}
		ends[m.Call] = m.GetEnd().GetKind()
	}
	for n := range uint64(100) {
		answer, end := answers[n], ends[n]
		switch {
		case n%10 == 3 && (answer != "" || end != "internal"),
			n%10 == 7 && answer != "",
			n%10 != 3 && n%10 != 7 && (answer != fmt.Sprint(n) || end != ""):
			t.Errorf("call %d: answer %q, end %q", n, answer, end)
		}
	}
}

// faulty is an engine that panics.
type faulty struct{ echoes }

func (faulty) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		if yield(engine.Delta{TokenIDs: []uint32{1}}, nil) {
			panic("injected")
		}
	}
}

func (faulty) Infer(context.Context, *engine.TensorRequest) iter.Seq2[*engine.TensorResponse, error] {
	return func(func(*engine.TensorResponse, error) bool) { panic("injected") }
}

func (faulty) Prepare(context.Context, engine.HandoffQuery) (engine.Handoff, error) {
	panic("injected")
}

func (faulty) Release(context.Context, string) error { return nil }

// A fault at one call ends that call, and nothing else that runs on the worker.
func TestPanicsEndOneCall(t *testing.T) {
	_, address := listen(t, remote.ServerConfig{Engine: faulty{}, Requests: 1})
	e := dial(t, remote.Config{URL: address})
	if err := e.Release(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and gives its place back
		ids, _, err := answerOf(t, e, nil)
		if len(ids) != 1 || engine.KindOf(err) != engine.Internal || strings.Contains(err.Error(), "injected") {
			t.Errorf("%v, %v", ids, err)
		}
		for r, err := range e.Infer(t.Context(), &engine.TensorRequest{ID: "1"}) {
			if engine.KindOf(err) != engine.Internal {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if _, err := e.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != engine.Internal {
			t.Error(err)
		}
	}
}

// A number that is taken ends the stream: its replies could not be told apart.
func TestTensorsTwice(t *testing.T) {
	_, _, address := newVersatile(t)
	conn, err := grpc.NewClient(strings.TrimPrefix(address, "grpc://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := workerpb.NewWorkerClient(conn).TensorInfer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hang := &workerpb.TensorRequest{Parameters: map[string]*workerpb.Parameter{"hang": {Value: &workerpb.Parameter_BoolParam{BoolParam: true}}}}
	for range 2 {
		if err := stream.Send(&workerpb.TensorCall{Call: 1, What: &workerpb.TensorCall_Request{Request: hang}}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if !strings.Contains(err.Error(), "used once") {
				t.Error(err)
			}
			return
		}
		if m.GetEnd().GetKind() != "cancelled" { // of the one that was open
			t.Errorf("%v", m)
		}
	}
}
