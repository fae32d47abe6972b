package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/router"
)

const (
	mostQueued = 4096
	// gather is how long events are gathered for one message.
	gather = 50 * time.Millisecond
	// beat is how long a peer that is told nothing goes without being asked whether it
	// is still the same.
	beat = 5 * time.Second
	// patience is how long it may take to answer.
	patience = 5 * time.Second
	// How long a peer that has failed is left alone, give or take a fifth.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	shake        = 0.2
	// betweenWholes is how often a peer that misses what happens is told all at most.
	betweenWholes = 10 * time.Second
)

// peer is one other router. It has one goroutine, which sends.
type peer struct {
	*Peers
	address string
	wake    chan struct{} // something is in the outbox
	nudge   chan struct{} // it may be another one

	mu    sync.Mutex
	name  string // in its present life; "": unknown
	out   outbox
	lacks bool // it has missed something
	told  time.Time
	count Stats
}

func newPeer(p *Peers, address string) *peer {
	return &peer{
		Peers: p, address: address, wake: make(chan struct{}, 1), nudge: make(chan struct{}, 1),
		out: outbox{limit: mostQueued}, count: Stats{Address: address},
	}
}

// put lets the peer hear of an event, if it hears anything.
func (p *peer) put(e router.BindingEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.count.Up {
		return // it is told all when it is there
	}
	if !p.out.put(e) {
		p.count.Dropped++
		p.lacks = true
	}
	signal(p.wake)
}

func (p *peer) counted() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.count
	s.Queued = p.out.order.Len()
	return s
}

func (p *peer) goesBy(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name == name
}

// errSelf is the answer of a peer that is ourselves.
var errSelf = errors.New("it is this frontend itself")

// run tells the peer until ctx ends.
func (p *peer) run(ctx context.Context) {
	pause, told := firstPause, ""
	for {
		begun := time.Now()
		err := p.tell(ctx)
		p.leave()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errSelf):
			p.log.Info("one of the peers is this frontend itself", "peer", p.address)
			return
		case time.Since(begun) > longestPause: // else it answers, and never for long
			pause, told = firstPause, ""
		}
		if text := err.Error(); text != told {
			told = text
			p.log.Warn("a peer does not hear where sessions are bound", "peer", p.address, "error", err, "retry", pause)
		}
		timer := time.NewTimer(time.Duration(float64(pause) * (1 + shake*(2*rand.Float64()-1))))
		select {
		case <-ctx.Done():
		case <-p.nudge:
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, longestPause)
	}
}

// tell tells the peer all that there is, and then what happens, until that fails.
func (p *peer) tell(ctx context.Context) error {
	if err := p.post(ctx, nil); err != nil {
		return err
	}
	p.log.Info("a peer hears where sessions are bound", "peer", p.address)
	next := time.NewTimer(beat)
	defer next.Stop()
	for {
		if p.lacking() {
			if err := p.empty(ctx, p.events(p.name)); err != nil {
				return err
			}
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(gather):
			}
			err = p.empty(ctx, nil)
		case <-p.nudge:
			err = p.post(ctx, nil)
		case <-next.C:
			err = p.post(ctx, nil)
		}
		if err != nil {
			return err
		}
		next.Reset(beat)
	}
}

// lacking says whether the peer is to be told all now.
func (p *peer) lacking() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.lacks || now.Sub(p.told) < betweenWholes {
		return false
	}
	p.lacks, p.told = false, now
	p.count.Wholes++
	return true
}

// empty posts events, and then what is in the outbox.
func (p *peer) empty(ctx context.Context, events []router.BindingEvent) error {
	for {
		if len(events) == 0 {
			p.mu.Lock()
			events = p.out.take(mostEvents)
			p.mu.Unlock()
		}
		if len(events) == 0 {
			return nil
		}
		if err := p.post(ctx, events); err != nil {
			return err
		}
		events = nil
	}
}

// leave notes that the peer hears nothing any more.
func (p *peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Up = false
	p.out.empty()
}

// post sends events, in as many messages as that takes, and at least one.
func (p *peer) post(ctx context.Context, events []router.BindingEvent) error {
	for first := true; first || len(events) > 0; first = false {
		m := p.encode(events)
		name, err := p.send(ctx, m.body)
		p.mu.Lock()
		p.count.Dropped += uint64(m.unsaid)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				p.count.Failures++
			}
		case name == p.config.Name:
			err = errSelf
		default:
			p.answered(name)
			p.count.Sent += uint64(m.said)
		}
		p.mu.Unlock()
		if err != nil {
			return err
		}
		events = events[m.done:]
	}
	return nil
}

// answered notes that the peer is there and who it is. If it was not there before, or
// is another one, it is to be told all. The lock must be held.
func (p *peer) answered(name string) {
	if !p.count.Up || p.name != name {
		p.lacks, p.told = true, time.Time{}
	}
	p.count.Up, p.name = true, name
}

// send sends one message and returns who has heard it.
func (p *peer) send(ctx context.Context, body []byte) (name string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address+Path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if key := p.config.Key; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("read its answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s%s", resp.Status, hints[resp.StatusCode])
	}
	var h Heard
	if err := json.Unmarshal(answer, &h); err != nil || h.Router == "" {
		return "", errors.New("its answer is not that of a router: want the address of a frontend's routes for operators")
	}
	return h.Router, nil
}

// hints say what may be wrong with a peer or with what is known of it.
var hints = map[int]string{
	http.StatusUnauthorized: ": want one of its API keys as --router-peers-key",
	http.StatusForbidden:    ": want a key that is no tenant's as --router-peers-key, or its --admin-port",
	http.StatusNotFound:     ": want --router-peers there as well, and here the address of its routes for operators",
}
