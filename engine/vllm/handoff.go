package vllm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/dynago/dynago/engine"
)

// Disagg says how a server hands blocks to other ones, where it does not tell.
type Disagg struct {
	// Style is one of [Styles]; empty: that of the server's connector, or NIXL for
	// a server with a role.
	Style string
	// Host is where other servers reach this one; empty: as in the URL.
	Host string
	// Port is that of the bootstrap server (mooncake) or of the connector's own
	// listener (offload), for rank 0; 0: the connector's default.
	Port uint16
}

// Styles in which servers hand blocks over, by what their connectors are called.
const (
	StyleNIXL     = "nixl"     // the decode server reads from where the prefill server says
	StyleMoRIIO   = "moriio"   // likewise, in read mode
	StyleMooncake = "mooncake" // both run at once, and the prefill server writes
	StyleShared   = "shared"   // through a store that both use
	StyleOffload  = "offload"  // from the cache below that of the prefill server
)

// Styles are all of them.
var Styles = []string{StyleNIXL, StyleMoRIIO, StyleMooncake, StyleShared, StyleOffload}

// Ports on which connectors listen unless told otherwise.
const (
	mooncakePort = 8998
	offloadPort  = 5710
)

// connector is a connector in a server's configuration. One that is made of
// several has them in its extra configuration.
type connector struct {
	Name  string `json:"kv_connector"`
	Role  string `json:"kv_role"`
	Extra struct {
		Connectors []connector `json:"connectors"`
	} `json:"kv_connector_extra_config"`
}

// style returns how the connector hands over, or "". Stores that servers share are
// in use without any hand-off, too, so that they count only where one is wanted.
func (c *connector) style(wanted bool) string {
	switch {
	case strings.HasPrefix(c.Name, "Nixl"):
		return StyleNIXL
	case strings.HasPrefix(c.Name, "MoRIIO"):
		return StyleMoRIIO
	case strings.HasPrefix(c.Name, "Mooncake") && !strings.Contains(c.Name, "Store"):
		return StyleMooncake
	case c.Name == "MultiConnector":
		for i := range c.Extra.Connectors {
			if s := c.Extra.Connectors[i].style(wanted); s != "" {
				return s
			}
		}
	case wanted && (strings.HasPrefix(c.Name, "LMCache") || strings.HasPrefix(c.Name, "SharedStorage") || strings.HasPrefix(c.Name, "Example")):
		return StyleShared
	}
	return ""
}

// roleOf returns which leg of requests the server is for.
func (e *Engine) roleOf(b *build) engine.Role {
	told := b.server.Config.Transfer
	switch {
	case e.config.Role != engine.Aggregated || told == nil:
	case told.Role == "kv_producer":
		return engine.Prefill
	case told.Role == "kv_consumer":
		return engine.Decode
	}
	return e.config.Role
}

// transferOf returns how a server of this role hands blocks over.
func (e *Engine) transferOf(b *build, role engine.Role) engine.Transfer {
	var t engine.Transfer
	if told := b.server.Config.Transfer; told != nil {
		t.Style = told.style(role != engine.Aggregated)
	}
	if role != engine.Aggregated {
		t.Style = cmp.Or(t.Style, StyleNIXL)
	}
	t.Style = cmp.Or(e.config.Disagg.Style, t.Style)
	if t.Style == StyleMooncake && role != engine.Decode {
		t.Host, t.Port = e.meetingHost(), cmp.Or(e.config.Disagg.Port, mooncakePort)
	}
	return t
}

// meetingHost is where other servers reach this one.
func (e *Engine) meetingHost() string {
	if h := e.config.Disagg.Host; h != "" {
		return h
	}
	u, err := url.Parse(e.client.URL())
	if err != nil {
		return "" // New has read it
	}
	return u.Hostname()
}

// Members of what the legs of a request are told.
const (
	// The servers' own proxies name every member, and older builds read them.
	computes    = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	storesFor   = `{"do_remote_decode":true}`
	readsStored = `{"do_remote_prefill":true}`
)

// Prepare tells the legs of a request how they meet. Only where both run at once,
// the prefill server is asked for something.
func (e *Engine) Prepare(ctx context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	card := e.now.Load().status.Card
	if card == nil || !card.Features.Has(engine.FeatureHandoff) {
		return engine.Handoff{}, engine.Errorf(engine.Unsupported, "vLLM: this server hands nothing over")
	}
	if q.Rank < card.DPStart || q.Rank-card.DPStart >= card.Ranks() {
		return engine.Handoff{}, engine.Errorf(engine.InvalidArgument, "vLLM: rank %d of a server with [%d, %d)", q.Rank, card.DPStart, card.DPStart+card.Ranks())
	}
	id := uuid.NewString()
	h := engine.Handoff{ID: id, Prefill: []byte(computes)}
	switch card.Disagg.Style {
	case StyleMoRIIO:
		h.Prefill = fmt.Appendf(nil, `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"tx-%s"}`, id)
	case StyleShared:
		h.Prefill = []byte(storesFor)
	case StyleOffload:
		h.Prefill = fmt.Appendf(nil, `{"remote_decoder":{"kv_request_id":%q}}`, id)
	case StyleMooncake:
		peer, err := e.peers.find(ctx, e, &card.Disagg, q.Rank)
		if err != nil {
			return engine.Handoff{}, err
		}
		address := "http://" + net.JoinHostPort(card.Disagg.Host, strconv.Itoa(int(card.Disagg.Port)))
		h.Concurrent = true
		h.Prefill = fmt.Appendf(nil, `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":%q}`, id)
		h.Decode = fmt.Appendf(nil, `{"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":%q,"remote_bootstrap_addr":%s,"remote_engine_id":%s}`,
			id, quoted(address), quoted(peer))
	}
	return h, nil
}

// Release does nothing: a server lets go when its blocks have been read, or when its
// own time for that is over. There is no way to tell it that nobody will come.
func (e *Engine) Release(context.Context, string) error { return nil }

// handedOver returns what the decode leg is told after a prefill leg was told asked
// and its server has answered; nil if the server has nothing to hand over, as for a
// prompt shorter than one block: then the decode leg is a request like any other.
func (e *Engine) handedOver(c *engine.Card, r *engine.Request, answered jsontext.Value) jsontext.Value {
	told := len(answered) > 0 && answered.Kind() == '{'
	switch c.Disagg.Style {
	case StyleMooncake:
		return nil // it knows already
	case StyleShared:
		if !told {
			return jsontext.Value(readsStored)
		}
	case StyleOffload:
		var asked struct {
			Decoder struct {
				ID string `json:"kv_request_id"`
			} `json:"remote_decoder"`
		}
		if told || json.Unmarshal(r.Disagg.Handoff, &asked) != nil || asked.Decoder.ID == "" {
			break
		}
		port := uint32(cmp.Or(e.config.Disagg.Port, offloadPort))
		if r.DPRank != nil {
			port += *r.DPRank
		}
		return fmt.Appendf(nil, `{"remote_prefiller":{"kv_request_id":%s,"remote_host":%s,"remote_port":%d}}`,
			quoted(asked.Decoder.ID), quoted(e.meetingHost()), port)
	}
	if !told {
		return nil
	}
	return answered
}

// checkLeg refuses a leg that the server would take for something else.
func checkLeg(r *engine.Request, c *engine.Card) error {
	phase := r.Disagg.Phase
	switch {
	case phase == engine.PhaseWhole:
		return nil
	case phase != engine.PhasePrefill && phase != engine.PhaseDecode:
		return engine.Errorf(engine.Unsupported, "vLLM knows no leg %q of a request", phase)
	case phase == engine.PhasePrefill && !c.Features.Has(engine.FeatureHandoff):
		return engine.Errorf(engine.Unsupported, "vLLM: this server hands nothing over")
	case phase == engine.PhaseDecode && c.Disagg.Style == "":
		return engine.Errorf(engine.Unsupported, "vLLM: this server takes no blocks from others")
	}
	if h := jsontext.Value(r.Disagg.Handoff); len(h) > 0 && (!h.IsValid() || h.Kind() != '{') {
		return engine.Errorf(engine.InvalidArgument, "vLLM: what the %s leg was told of the hand-off is no JSON object", phase)
	}
	return nil
}

// legOf returns the request as the leg's server gets it: a prefill leg is for its
// blocks, and its one token is thrown away.
func legOf(r *engine.Request) *engine.Request {
	if r.Disagg.Phase != engine.PhasePrefill {
		return r
	}
	leg := *r
	leg.Stop.MaxTokens, leg.Stop.MinTokens = 1, 1
	leg.Logprobs = nil
	if len(leg.Disagg.Handoff) == 0 {
		leg.Disagg.Handoff = []byte(computes)
	}
	return &leg
}

// fetches says whether the server waits for blocks of another one before it
// computes.
func fetches(r *engine.Request) bool {
	return r.Disagg.Phase == engine.PhaseDecode && len(r.Disagg.Handoff) > 0
}

// source is where blocks come from, for people: the address in a hand-off, or "".
func source(handoff []byte) string {
	var h struct {
		Host      string         `json:"remote_host"`
		Port      jsontext.Value `json:"remote_port"`
		Bootstrap string         `json:"remote_bootstrap_addr"`
		Prefiller *struct {
			Host string         `json:"remote_host"`
			Port jsontext.Value `json:"remote_port"`
		} `json:"remote_prefiller"`
	}
	if json.Unmarshal(handoff, &h, lenient) != nil {
		return ""
	}
	if h.Prefiller != nil {
		h.Host, h.Port = h.Prefiller.Host, h.Prefiller.Port
	}
	if h.Host == "" {
		return h.Bootstrap
	}
	return net.JoinHostPort(h.Host, strings.Trim(string(h.Port), `"`))
}

// ofLeg adds to the error of a decode leg where its blocks come from: a server that
// waits in vain is often one that was told a wrong address. A failure of such a leg
// says nothing of the request, which may be prefilled again.
func ofLeg(r *engine.Request, err error) error {
	if !fetches(r) || engine.KindOf(err) == engine.Cancelled {
		return err
	}
	if e, ok := errors.AsType[*engine.Error](err); ok && e.Op == "" {
		told := *e
		if told.Kind == engine.Internal {
			told.Kind = engine.Unavailable
		}
		told.Op = "decode leg with blocks from " + cmp.Or(source(r.Disagg.Handoff), "a shared store")
		return &told
	}
	return err
}

// unreachable says whether no other machine finds this address.
func unreachable(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// meets tells people, once for each address, where the blocks of a server are fetched: a
// server that was not told its own address says localhost, and then decode servers
// of other machines wait in vain.
func (e *Engine) meets(handoff []byte) {
	at := source(handoff)
	if at == "" {
		return
	}
	if _, known := e.met.LoadOrStore(at, true); known {
		return
	}
	here := slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, e.meetingHost())
	if unreachable(at) && !here {
		e.config.Log.Warn("vLLM hands blocks over at an address that no other machine can reach: set VLLM_NIXL_SIDE_CHANNEL_HOST", "url", e.client.URL(), "address", at)
		return
	}
	e.config.Log.Info("vLLM hands blocks over", "url", e.client.URL(), "address", at)
}

// quoted returns a JSON string.
func quoted(s string) []byte {
	text, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		return []byte(`""`) // what is no text names nothing
	}
	return text
}
