package vllm_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/vllm"
	fake "github.com/dynago/dynago/internal/fake/vllm"
)

func TestPrepare(t *testing.T) {
	two := args()
	two.DPSize = 2
	s := serve(t, fake.Config{Mock: mock.Config{Args: two}, Transfer: fake.Transfer{Connector: "MooncakeConnector"}}, func(v *vllm.Config) {
		v.Role, v.Disagg.Style = engine.Prefill, vllm.StyleMooncake
		port, _ := strconv.Atoi(portOf(t, v.URL))
		v.Disagg.Port = uint16(port)
	})
	if _, err := s.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("before the first look: %v", err)
	}
	card := s.ready(t)
	if card.Disagg.Host != "127.0.0.1" || card.Disagg.Port == 0 || card.Role != engine.Prefill {
		t.Errorf("card %+v", card)
	}
	if _, err := s.Prepare(t.Context(), engine.HandoffQuery{Rank: 2}); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("a rank that is not there: %v", err)
	}
	names := map[string]bool{}
	for rank := range uint32(2) {
		for range 2 {
			h, err := s.Prepare(t.Context(), engine.HandoffQuery{Rank: rank})
			if err != nil {
				t.Fatal(err)
			}
			_, name, _ := strings.Cut(string(h.Decode), `"remote_engine_id":`)
			names[name] = true
		}
	}
	if len(names) != 2 {
		t.Errorf("engines %v, want one for each rank", names)
	}
	// Another life has other names.
	first := s.await(t, engine.Ready).Epoch
	s.server.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st := range s.Card(ctx) {
		if st.Epoch != first {
			break
		}
	}
	h, err := s.Prepare(t.Context(), engine.HandoffQuery{})
	if _, name, _ := strings.Cut(string(h.Decode), `"remote_engine_id":`); err != nil || names[name] {
		t.Errorf("%s, %v: a name of the life before", h.Decode, err)
	}
	if err := s.Release(t.Context(), "unknown"); err != nil {
		t.Error(err)
	}
}

// A bootstrap server that does not answer, or not for this rank, is no prefill
// server that can be used.
func TestBootstrapServerFails(t *testing.T) {
	for body, kind := range map[string]engine.ErrorKind{
		`{"3":{"engine_id":"x"}}`: engine.Unavailable,
		`<html>`:                  engine.Internal,
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		defer h.Close()
		s := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, func(v *vllm.Config) {
			v.Role, v.Disagg.Style = engine.Prefill, vllm.StyleMooncake
			port, _ := strconv.Atoi(portOf(t, h.URL))
			v.Disagg.Port = uint16(port)
		})
		s.ready(t)
		if _, err := s.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != kind {
			t.Errorf("%s: %v, want %s", body, err, kind)
		}
	}
}

// What a server tells of its connector is its role and style; the operator knows
// better.
func TestTransferOfCards(t *testing.T) {
	for _, tt := range []struct {
		name    string
		told    fake.Transfer
		set     vllm.Config
		role    engine.Role
		style   string
		handoff bool
	}{
		{"no connector", fake.Transfer{}, vllm.Config{}, engine.Aggregated, "", false},
		{"both", fake.Transfer{Connector: nixl}, vllm.Config{}, engine.Aggregated, vllm.StyleNIXL, true},
		{"producer", fake.Transfer{Connector: nixl, Role: "kv_producer"}, vllm.Config{}, engine.Prefill, vllm.StyleNIXL, true},
		{"consumer", fake.Transfer{Connector: nixl, Role: "kv_consumer"}, vllm.Config{}, engine.Decode, vllm.StyleNIXL, false},
		{"mooncake", fake.Transfer{Connector: "MooncakeConnector", Role: "kv_producer"}, vllm.Config{}, engine.Prefill, vllm.StyleMooncake, true},
		{"a store of Mooncake", fake.Transfer{Connector: "MooncakeStoreConnector"}, vllm.Config{}, engine.Aggregated, "", false},
		{"a cache below", fake.Transfer{Connector: "LMCacheConnectorV1"}, vllm.Config{}, engine.Aggregated, "", false},
		{"a shared one", fake.Transfer{Connector: "LMCacheConnectorV1", Role: "kv_producer"}, vllm.Config{}, engine.Prefill, vllm.StyleShared, true},
		{"one of several", fake.Transfer{Connector: "MultiConnector", Inner: []string{"OffloadingConnector", nixl}}, vllm.Config{}, engine.Aggregated, vllm.StyleNIXL, true},
		{"both, for one leg", fake.Transfer{Connector: nixl}, vllm.Config{Role: engine.Decode}, engine.Decode, vllm.StyleNIXL, false},
		{"not told", fake.Transfer{}, vllm.Config{Role: engine.Prefill}, engine.Prefill, vllm.StyleNIXL, true},
		{"declared", fake.Transfer{}, vllm.Config{Disagg: vllm.Disagg{Style: vllm.StyleOffload}}, engine.Aggregated, vllm.StyleOffload, true},
	} {
		s := serve(t, fake.Config{Dev: true, Mock: mock.Config{Args: args()}, Transfer: tt.told}, func(v *vllm.Config) {
			v.Role, v.Disagg = tt.set.Role, tt.set.Disagg
		})
		c := s.ready(t)
		if c.Role != tt.role || c.Disagg.Style != tt.style || c.Features.Has(engine.FeatureHandoff) != tt.handoff {
			t.Errorf("%s: role %q, style %q, features %v", tt.name, c.Role, c.Disagg.Style, c.Features)
		}
	}
	for _, c := range []vllm.Config{{Role: engine.Encode}, {Disagg: vllm.Disagg{Style: "pigeon"}}} {
		c.URL = "http://gpu7:8000"
		if _, err := vllm.New(c); err == nil {
			t.Errorf("%+v is no error", c)
		}
	}
}

// A leg that the server would take for a request of its own is refused before.
func TestLegsRefused(t *testing.T) {
	plain := serve(t, fake.Config{Mock: mock.Config{Args: args()}}, nil)
	plain.ready(t)
	s := newPair(t, fake.Config{}, "")
	for _, tt := range []struct {
		name string
		to   *served
		leg  engine.Disagg
		kind engine.ErrorKind
	}{
		{"a prefill leg to nobody's server", plain, engine.Disagg{Phase: engine.PhasePrefill}, engine.Unsupported},
		{"a decode leg to nobody's server", plain, engine.Disagg{Phase: engine.PhaseDecode}, engine.Unsupported},
		{"a prefill leg to a decode server", s.d, engine.Disagg{Phase: engine.PhasePrefill}, engine.Unsupported},
		{"another leg", s.p, engine.Disagg{Phase: "encode"}, engine.Unsupported},
		{"a hand-off that is none", s.d, engine.Disagg{Phase: engine.PhaseDecode, Handoff: []byte(`[1]`)}, engine.InvalidArgument},
	} {
		r := long()
		r.Disagg = tt.leg
		if _, _, err := tt.to.run(t, r); engine.KindOf(err) != tt.kind {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.kind)
		}
	}
}

// An address that only its own machine knows is told of, once.
func TestQuirk09SideChannelAddressIsTold(t *testing.T) {
	var log logged
	c := fake.Config{Mock: mock.Config{Args: args()}, Transfer: fake.Transfer{Connector: nixl, Host: "localhost", Port: 5600}}
	s := serve(t, c, func(v *vllm.Config) {
		v.Role, v.Log, v.Disagg.Host = engine.Prefill, log.logger(), "gpu7"
	})
	s.ready(t)
	for range 2 {
		prefill, _, _ := pair{p: s}.legs(t, long())
		if _, _, err := s.run(t, prefill); err != nil {
			t.Fatal(err)
		}
	}
	want := net.JoinHostPort("localhost", "5600")
	if n := log.count("VLLM_NIXL_SIDE_CHANNEL_HOST"); n != 1 || !log.has(want) {
		t.Errorf("told %d times: %s", n, log.String())
	}
}

// logged collects what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger  { return slog.New(slog.NewTextHandler(l, nil)) }
func (l *logged) has(part string) bool  { return l.count(part) > 0 }
func (l *logged) count(part string) int { return strings.Count(l.String(), part) }
