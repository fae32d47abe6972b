package peers

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// MaxMessage bounds a message, in bytes.
const MaxMessage = 1 << 20

// mostEvents is how many events a message has at the most.
const mostEvents = 256

// message is what one router tells another.
type message struct {
	Router   string    `json:"router_id"`
	Bindings []binding `json:"bindings"`
}

// binding is an event on the wire.
type binding struct {
	Model     string  `json:"model"`
	Session   string  `json:"session_id"`
	Salt      string  `json:"cache_salt,omitzero"`
	Role      string  `json:"role,omitzero"`
	Tenant    string  `json:"tenant,omitzero"`
	Worker    uint64  `json:"worker_id"`
	Rank      uint32  `json:"dp_rank"`
	Epoch     uint64  `json:"epoch,string,omitzero"`
	Router    string  `json:"bound_by"`
	Number    uint64  `json:"number"`
	TTL       float64 `json:"ttl_s"`
	Timeout   float64 `json:"timeout_s"`
	Ephemeral bool    `json:"ephemeral,omitzero"`
	Explicit  bool    `json:"explicit,omitzero"`
}

// words puts an event into words.
func words(e *router.BindingEvent) binding {
	return binding{
		Model: e.Model, Session: e.ID, Salt: e.Salt, Role: string(e.Role), Tenant: e.Tenant,
		Worker: e.Target.Worker, Rank: e.Target.Rank, Router: e.Router, Number: e.Number,
		TTL: e.TTL.Seconds(), Timeout: e.Timeout.Seconds(), Ephemeral: e.Ephemeral, Explicit: e.Explicit,
	}
}

// longest is more than any binding lives, in seconds.
const longest = 1e9

// event returns what words say, if they make sense.
func (b *binding) event() (e router.BindingEvent, ok bool) {
	role := engine.Role(b.Role)
	if role != engine.Aggregated && role != engine.Prefill && role != engine.Encode {
		return e, false
	}
	if b.TTL < 0 || b.TTL > longest || b.Timeout < 0 || b.Timeout > longest {
		return e, false
	}
	return router.BindingEvent{
		BindingKey: router.BindingKey{Model: b.Model, Salt: b.Salt, ID: b.Session, Role: role},
		Router:     b.Router, Number: b.Number, Tenant: b.Tenant, Target: kv.Target{Worker: b.Worker, Rank: b.Rank},
		SessionTerms: router.SessionTerms{Timeout: seconds(b.Timeout), Ephemeral: b.Ephemeral},
		Explicit:     b.Explicit, TTL: seconds(b.TTL),
	}, true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// decode reads a message. Members that are not known are those of newer versions.
func decode(body []byte) (m message, err error) {
	if len(body) > MaxMessage {
		return m, fmt.Errorf("the message has %d bytes, want at most %d", len(body), MaxMessage)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("the message is none: %w", err)
	}
	switch {
	case m.Router == "":
		return m, errors.New("router_id: is missing: want the name of the router that tells")
	case len(m.Bindings) > mostEvents:
		return m, fmt.Errorf("bindings: there are %d, want at most %d", len(m.Bindings), mostEvents)
	}
	return m, nil
}

// parcel is a message that is made, of the first of some events.
type parcel struct {
	body   []byte
	done   int // how many events it is about
	said   int // of them in words
	unsaid int // of them that there are no words for
}

// encode makes a message of as many events as one may have.
func (p *Peers) encode(events []router.BindingEvent) (m parcel) {
	m.body = append(m.body, `{"router_id":`...)
	m.body, _ = jsontext.AppendQuote(m.body, p.config.Name)
	m.body = append(m.body, `,"bindings":[`...)
	for ; m.done < len(events); m.done++ {
		b, known := p.spoken(&events[m.done])
		if !known {
			continue
		}
		text, err := json.Marshal(b)
		if err != nil || len(text) > MaxMessage/2 { // an id is not UTF-8, or is none
			m.unsaid++
			continue
		}
		if m.said == mostEvents || len(m.body)+len(text)+len(",]}") > MaxMessage {
			break
		}
		if m.said > 0 {
			m.body = append(m.body, ',')
		}
		m.body = append(m.body, text...)
		m.said++
	}
	m.body = append(m.body, "]}"...)
	return m
}
