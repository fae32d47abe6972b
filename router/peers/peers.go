// Package peers lets the routers of several frontends know where sessions are bound, so
// that a conversation goes on at its worker whichever of them its next turn comes to.
//
// The one idea: what a peer does not hear costs a cache and never an answer, so that
// nothing here waits or is kept. What happens is noted in an outbox of a bounded size
// and posted a moment later; a peer that fails is left alone for a while, and one that
// is there again, or has missed something, is told all bindings that live.
//
//	router ── OnBinding ──▶ outbox of each peer ── POST, up to 256 ──▶ Hear ──▶ Adopt
//
// A message says who tells it. Workers have the ids that frontends make of their
// addresses, and a life of theirs is named where the worker names it itself:
//
//	{"router_id": "8812", "bindings": [
//	    {"model": "m", "session_id": "s-1", "cache_salt": "t", "tenant": "team", "worker_id": 7, "dp_rank": 0,
//	     "epoch": "17", "bound_by": "8812", "number": 3, "ttl_s": 58.2, "timeout_s": 60}]}
//
// It is answered with {"router_id": "…", "adopted": 1, "ignored": 0}. A ttl_s of 0 is an
// end.
package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// Path is where a frontend hears from its peers, below the address of its routes for
// operators.
const Path = "/admin/router/bindings"

// Config says whom a router tells of its bindings. All fields but the last two must be
// set.
type Config struct {
	Router *router.Router
	Fleet  *fleet.Fleet
	// Name is the router's among its peers, and another one in each of its lives.
	Name string
	// Addresses are those of the peers, as [ParseAddress] returns them. One of them may
	// be our own.
	Addresses []string
	// Key is the API key that they want; "": none.
	Key string
	// Known says whether frontends that know a worker by this id all mean this one, and
	// which life of it they would say that it lives; 0: each of them counts by itself.
	Known func(*fleet.Worker) (epoch uint64, shared bool)
	// Transport carries the messages; nil is that of [net/http].
	Transport http.RoundTripper
	Logger    *slog.Logger // nil discards
}

// Peers are the other routers over the same workers. Its methods may be called from any
// goroutine.
type Peers struct {
	config Config
	client *http.Client
	log    *slog.Logger
	peers  []*peer

	mu     sync.Mutex
	nudged time.Time // when somebody new was heard last
	heard  map[string]*Heard
	// early are the bindings to workers that have not said yet what they are, as those
	// of a frontend that has just begun; asked says that they are to be tried again.
	early map[name]early
	asked bool
}

// early is a binding that was heard too early.
type early struct {
	binding
	until time.Time
}

// Stats is how one peer is told, and what it has told.
type Stats struct {
	Address  string // "": those whose address is not known
	Up       bool   // it has answered last
	Queued   int    // events that it is yet to hear
	Sent     uint64 // events that it has heard
	Dropped  uint64 // events for which there was no room, or no words
	Failures uint64 // messages that it has not answered as it should
	Wholes   uint64 // how often it was told all bindings
	Adopted  uint64 // of what it has told
	Ignored  uint64 // of what it has told
}

// ParseAddress reads the address of a peer, without a slash at its end.
func ParseAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q: want http://HOST:PORT, or https://, of the routes for operators of another frontend", text)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// New returns the peers of a router and lets that tell them of its bindings; it must
// not have routed yet. Nothing is sent before [Peers.Run].
func New(c Config) (*Peers, error) {
	if c.Name == "" || c.Known == nil {
		return nil, errors.New("router peers: want a name, and who is known")
	}
	p := &Peers{
		config: c, log: c.Logger, heard: make(map[string]*Heard),
		client: &http.Client{
			Transport: c.Transport, Timeout: patience,
			// A key is for the peer alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	for _, text := range c.Addresses {
		address, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(p.peers, func(o *peer) bool { return o.address == address }) {
			p.peers = append(p.peers, newPeer(p, address))
		}
	}
	c.Router.OnBinding(c.Name, p.note)
	return p, nil
}

// Run tells the peers until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range p.peers {
		all.Go(func() { one.run(ctx) })
	}
	all.Wait()
}

// note takes note of what a router tells.
func (p *Peers) note(e router.BindingEvent) {
	for _, one := range p.peers {
		one.put(e)
	}
}

// Stats returns what was counted so far of each peer, in the order of the addresses,
// and at the end of those without one that have told something.
func (p *Peers) Stats() (list []Stats) {
	for _, one := range p.peers {
		list = append(list, one.counted())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, h := range p.heard {
		i := slices.IndexFunc(list, func(s Stats) bool { return s.Address == address })
		if i < 0 {
			i = len(list)
			list = append(list, Stats{Address: address})
		}
		list[i].Adopted, list[i].Ignored = uint64(h.Adopted), uint64(h.Ignored)
	}
	return list
}

// Heard is what came of a message.
type Heard struct {
	Router  string `json:"router_id"` // who has heard it
	Adopted int    `json:"adopted"`   // bindings taken over, or ended, or living on
	Ignored int    `json:"ignored"`   // the others
}

// Hear takes in the message of a peer. An error says why it is none, and is for whoever
// has sent it.
func (p *Peers) Hear(body []byte) (Heard, error) {
	m, err := decode(body)
	if err != nil {
		return Heard{}, err
	}
	h := Heard{Router: p.config.Name}
	if m.Router == p.config.Name {
		h.Ignored = len(m.Bindings)
		return h, nil
	}
	for i := range m.Bindings {
		if p.adopt(&m.Bindings[i]) {
			h.Adopted++
		} else {
			h.Ignored++
		}
	}
	p.met(m.Router, h)
	return h, nil
}

// adopt lets the router take over a binding, if both mean the same worker.
func (p *Peers) adopt(b *binding) bool {
	e, ok := b.event()
	if !ok {
		return false
	}
	if e.TTL <= 0 {
		p.forget(nameOf(&e))
	} else {
		w := p.config.Fleet.Worker(e.Target.Worker)
		if w == nil {
			return false
		}
		if w.Card() == nil {
			return p.wait(nameOf(&e), early{*b, time.Now().Add(e.TTL)})
		}
		epoch, shared := p.config.Known(w)
		if !shared || b.Epoch != 0 && epoch != 0 && b.Epoch != epoch {
			return false
		}
	}
	return p.config.Router.Adopt(&e)
}

// wait keeps a binding to be tried again, or returns false if there is no room. So a
// frontend that has just begun, and is told all at once, does not miss what its peers
// say before its workers do.
func (p *Peers) wait(n name, e early) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.early[n]; !known && len(p.early) >= mostQueued {
		return false
	}
	if p.early == nil {
		p.early = make(map[name]early)
	}
	p.early[n] = e
	if !p.asked {
		p.asked = true
		time.AfterFunc(firstPause, p.again)
	}
	return true
}

// again tries the bindings that were heard too early, those of them that still live.
func (p *Peers) again() {
	p.mu.Lock()
	tried := p.early
	p.early, p.asked = nil, false
	p.mu.Unlock()
	for _, e := range tried {
		if left := time.Until(e.until); left > 0 {
			e.TTL = left.Seconds()
			p.adopt(&e.binding)
		}
	}
}

// forget forgets a binding that was heard too early, and has ended.
func (p *Peers) forget(n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.early, n)
}

// met counts what came of a message. One from a life of a router that nobody has
// answered in yet makes all peers be asked who they are: it may be one of them.
func (p *Peers) met(name string, h Heard) {
	address := ""
	for _, one := range p.peers {
		if one.goesBy(name) {
			address = one.address
		}
	}
	p.mu.Lock()
	count := p.heard[address]
	if count == nil {
		count = new(Heard)
		p.heard[address] = count
	}
	count.Adopted += h.Adopted
	count.Ignored += h.Ignored
	now := time.Now()
	fresh := address == "" && now.Sub(p.nudged) >= firstPause
	if fresh {
		p.nudged = now
	}
	p.mu.Unlock()
	if !fresh {
		return
	}
	for _, one := range p.peers {
		signal(one.nudge)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// events returns all that a peer of that name may want to know.
func (p *Peers) events(name string) []router.BindingEvent {
	list := slices.DeleteFunc(p.config.Router.Bindings(), func(e router.BindingEvent) bool { return e.Router == name })
	// What lives longest comes first, for a peer whose table is smaller.
	slices.SortFunc(list, func(a, b router.BindingEvent) int { return cmp.Compare(b.TTL, a.TTL) })
	return list
}

// spoken puts an event into words, or returns false if peers cannot know what it is
// about.
func (p *Peers) spoken(e *router.BindingEvent) (binding, bool) {
	b := words(e)
	w := p.config.Fleet.Worker(e.Target.Worker)
	if w == nil {
		return b, e.TTL == 0
	}
	var shared bool
	b.Epoch, shared = p.config.Known(w)
	return b, shared
}
