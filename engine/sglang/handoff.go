package sglang

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// Both legs of a request run at once and meet in a room, which is a number, at
// an address of the prefill server.

// bootstrapPort is where prefill servers listen unless told otherwise.
const bootstrapPort = 8998

// style is the name of this way of handing over in a card.
const style = "bootstrap"

// transfer says where decode servers meet this one.
func (e *Engine) transfer(info *serverInfo) engine.Transfer {
	if info.Mode != "prefill" {
		return engine.Transfer{Style: style, SmallRooms: e.cfg.SmallRooms}
	}
	return engine.Transfer{
		Style: style, SmallRooms: e.cfg.SmallRooms,
		Host: first(e.cfg.BootstrapHost, first(info.reachable(), hostOf(e.http.URL()))),
		Port: first(info.BootstrapPort, bootstrapPort),
	}
}

// reachable is the address by which the server says that others find it, or "".
func (i *serverInfo) reachable() string {
	if ip := net.ParseIP(i.Host); i.Host != "" && i.Host != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsUnspecified()) {
		return i.Host
	}
	host, _, err := net.SplitHostPort(i.DistInitAddr)
	if err != nil {
		return ""
	}
	return host
}

// hostOf is the host of an address that New has accepted.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Prepare chooses the room of a request. A prefill leg outlives its client: one
// that is cancelled half-way leaves the decode server waiting for what will not
// come. It ends at once if its context does because the decode leg has failed.
func (e *Engine) Prepare(_ context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	f := e.facts.Load()
	if f == nil || !f.card.Features.Has(engine.FeatureHandoff) {
		return engine.Handoff{}, engine.Errorf(engine.Unsupported, "sglang: the server was not started with --disaggregation-mode prefill")
	}
	ranks, d := f.card.Ranks(), &f.card.Disagg
	if q.Rank >= ranks {
		return engine.Handoff{}, engine.Errorf(engine.InvalidArgument, "sglang: rank %d of a server with %d", q.Rank, ranks)
	}
	number := strconv.FormatUint(room(q.Rank, ranks, d.SmallRooms), 10)
	host, err := jsontext.AppendQuote(nil, d.Host)
	if err != nil {
		return engine.Handoff{}, engine.Errorf(engine.Internal, "sglang: bootstrap host: %v", err)
	}
	meet := fmt.Sprintf(`{"bootstrap_host":%s,"bootstrap_port":%d,"bootstrap_room":%s`, host, d.Port, number)
	decode := meet
	if ranks > 1 {
		decode += fmt.Sprintf(`,"disagg_prefill_dp_rank":%d`, q.Rank)
	}
	return engine.Handoff{ID: number, Concurrent: true, Prefill: []byte(meet + "}"), Decode: []byte(decode + "}")}, nil
}

// Release does nothing: the prefill server lets go by itself.
func (e *Engine) Release(context.Context, string) error { return nil }

// address is where the legs of a hand-off were to meet, for people.
func address(handoff []byte) string {
	var at struct {
		Host string `json:"bootstrap_host"`
		Port uint16 `json:"bootstrap_port"`
	}
	if json.Unmarshal(handoff, &at) != nil || at.Host == "" {
		return "nowhere"
	}
	return net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))
}

// room draws a number below 2^63-1, or 2^31 where small, whose remainder is the
// rank: by that the server finds the rank which computes the prompt.
func room(rank, ranks uint32, small bool) uint64 {
	end := uint64(math.MaxInt64)
	if small {
		end = 1 << 31
	}
	n := (end - uint64(rank) + uint64(ranks) - 1) / uint64(ranks)
	return rand.Uint64N(n)*uint64(ranks) + uint64(rank)
}

// misplaced returns the error of a request or leg that this server would keep
// waiting, or nil.
func (e *Engine) misplaced(r *engine.Request) error {
	phase, role := r.Disagg.Phase, engine.Aggregated
	if f := e.facts.Load(); f != nil {
		role = f.card.Role
	}
	switch {
	case string(phase) != string(role):
		return engine.Errorf(engine.Unsupported, "sglang: a server of role %q got phase %q of a request", role, phase)
	case phase == engine.PhaseWhole:
		return nil
	}
	if h := jsontext.Value(r.Disagg.Handoff); !h.IsValid() || h.Kind() != '{' {
		return engine.Errorf(engine.InvalidArgument, "sglang: the %s leg does not say where the legs meet", phase)
	}
	return nil
}
