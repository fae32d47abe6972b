package ollama

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memory holds the model. Another context is another loading, for which all that
// runs has to end first.
type memory struct {
	parallel, queue int
	forget          func() // what the model has cached

	mu      sync.Mutex
	change  chan struct{} // closed when something has ended
	ended   bool
	context int // with which the model is loaded; 0: it is not
	running int
	waiting int
	leaving bool // as soon as nothing runs
	expiry  *time.Timer
}

func (m *memory) begin(parallel, queue int, forget func()) {
	m.parallel, m.queue, m.forget, m.change = parallel, queue, forget, make(chan struct{})
}

var (
	errFull  = errors.New("server busy, please try again.  maximum pending requests exceeded")
	errEnded = errors.New("the server has ended")
)

// acquire waits until the model is loaded with a context and has room for one more.
func (m *memory) acquire(ctx context.Context, context int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting >= m.queue {
		return errFull
	}
	m.waiting++
	defer func() { m.waiting-- }()
	for {
		switch {
		case m.ended:
			return errEnded
		case m.running == 0 && m.context != context:
			m.load(context)
			fallthrough
		case m.context == context && m.running < m.parallel:
			m.running++
			m.hold()
			return nil
		}
		change := m.change
		m.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
		m.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// release tells that a request has ended, and for how long the model stays.
func (m *memory) release(keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	m.hold()
	switch {
	case m.running > 0:
	case m.leaving:
		m.load(0)
	case keep < 0:
	case keep == 0:
		m.load(0)
	default:
		m.expiry = time.AfterFunc(keep, m.unload)
	}
	m.tell()
}

// unload takes the model out of memory as soon as nothing runs.
func (m *memory) unload() {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.running > 0:
		m.leaving = true
	case m.context != 0:
		m.load(0)
	}
}

func (m *memory) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.context
}

// crash forgets everything: what runs breaks off with what is cached.
func (m *memory) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold()
	m.load(0)
}

func (m *memory) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.hold()
	m.tell()
}

// load puts the model into memory, or out of it. What was cached is lost. The lock
// must be held.
func (m *memory) load(context int) {
	m.context, m.leaving = context, false
	m.forget()
}

// hold keeps the model from expiring. The lock must be held.
func (m *memory) hold() {
	if m.expiry != nil {
		m.expiry.Stop()
		m.expiry = nil
	}
}

func (m *memory) tell() {
	close(m.change)
	m.change = make(chan struct{})
}
