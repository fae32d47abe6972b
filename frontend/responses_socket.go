package frontend

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses/store"
)

// A WebSocket is one more way to POST to /v1/responses: each text message is a
// body, and the events of its answer come back as messages. The connection
// remembers its last response, also one that is not to be stored, so that a
// client sends only what is new.

// socket is one connection.
type socket struct {
	server *Server
	conn   *websocket.Conn
	tenant string
	header http.Header // of the handshake
	// ctx ends with the connection.
	ctx context.Context

	mu sync.Mutex
	// busy is true until the end of a response is about to be sent: the client may
	// ask for the next one as soon as it has it. answering counts those that are
	// not written yet.
	busy      bool
	answering int
	used      time.Time // when the last one ended
	last      *said     // nil if nothing can be continued
	// leaving says that no more responses are begun.
	leaving bool
}

// said is the conversation up to the end of a response.
type said struct {
	id    string
	items []store.Item
}

// maxSaid bounds the conversation that a connection remembers, in bytes.
const maxSaid = 64 << 20

// talk answers GET /v1/responses: with a WebSocket.
func (s *Server) talk(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		s.refuse(w, refusal(http.StatusUpgradeRequired, "GET %s speaks WebSocket only; to make a response without one, POST it", responsesPath))
		return
	}
	if s.stage.get() != Ready {
		s.refuse(w, s.notReady())
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // the client was told why
	}
	conn.SetReadLimit(s.BodyLimit)
	ctx, cancel := context.WithCancel(context.Background())
	c := &socket{server: s, conn: conn, tenant: exchangeOf(r).tenant, header: r.Header, ctx: ctx, used: time.Now()}
	defer s.keeper.enter(c)()
	if s.stage.get() != Ready {
		s.keeper.drain() // which may not have seen this one
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer conn.CloseNow() //nolint:errcheck // it is closed either way
	defer cancel()
	work.Go(func() { c.watch(s.Timing.KeepAlive) })
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if fault := c.begin(kind); fault != nil {
			c.refuse(fault)
			continue
		}
		work.Go(func() {
			defer c.end()
			c.answer(message)
		})
	}
}

// enter lists a connection, so that it can be told that the server ends, and
// returns what takes it off the list.
func (r *keeper) enter(c *socket) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sockets == nil {
		r.sockets = map[*socket]bool{}
	}
	r.sockets[c] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sockets, c)
	}
}

// drain lets connections end with their response, or at once.
func (r *keeper) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.sockets {
		c.mu.Lock()
		c.leaving = true
		if c.answering == 0 {
			go c.close("the server is shutting down")
		}
		c.mu.Unlock()
	}
}

// hangUp ends all connections.
func (r *keeper) hangUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.sockets {
		go c.conn.CloseNow() //nolint:errcheck // it is closed either way
	}
}

func (c *socket) close(reason string) {
	c.conn.Close(websocket.StatusGoingAway, reason) //nolint:errcheck // it is closed either way
}

// watch looks after a silent connection: whether its client is still there, and
// whether it comes back at all.
func (c *socket) watch(every time.Duration) {
	if every <= 0 {
		every = 15 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			idle := c.answering == 0 && now.Sub(c.used) >= c.server.SocketIdle
			c.mu.Unlock()
			if idle {
				c.close("no request for too long")
				return
			}
			ctx, cancel := context.WithTimeout(c.ctx, c.patience())
			err := c.conn.Ping(ctx)
			cancel()
			if err != nil {
				c.conn.CloseNow() //nolint:errcheck // it is closed either way
				return
			}
		}
	}
}

// patience is how long the client may take to accept or answer anything.
func (c *socket) patience() time.Duration {
	if c.server.Timing.Write > 0 {
		return c.server.Timing.Write
	}
	return time.Minute
}

// begin takes the connection for one response.
func (c *socket) begin(kind websocket.MessageType) *wire.Error {
	if kind != websocket.MessageText {
		return wire.Invalid("", "A message must be text: one JSON object")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		e := wire.Invalid("", "A response is being made on this connection: wait for its end, or open another connection")
		e.Code = "response_in_flight"
		return e
	}
	c.busy = true
	c.answering++
	return nil
}

// over comes before the end of a response is sent: the next one may begin, and
// can continue what was said, or nothing.
func (c *socket) over(last *said) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.last = false, last
}

// end comes when the end of a response is sent.
func (c *socket) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answering--
	c.used = time.Now()
	if c.answering == 0 {
		c.busy = false // also after a panic
	}
	if c.leaving && c.answering == 0 {
		go c.close("the server is shutting down")
	}
}

// answer makes the response that a message asks for.
func (c *socket) answer(message []byte) {
	s := c.server
	x := &exchange{id: uuid.NewString(), tenant: c.tenant, route: "WS " + responsesPath, arrived: time.Now()}
	x.correlation = x.id
	w := &messages{conn: c, header: http.Header{}}
	defer s.recover(w, x)
	body, generate, err := createBody(message)
	if err != nil {
		c.over(nil)
		c.refuse(err)
		return
	}
	j := s.understand(w, x, c.header, socketAPI{s, c, generate}, func() ([]byte, error) { return body, nil })
	if j == nil {
		return
	}
	defer s.stage.leave()
	j.ctx, j.cancel = context.WithCancelCause(context.WithValue(s.base, exchangeKey{}, x))
	defer context.AfterFunc(c.ctx, func() { j.cancel(engine.ErrClientGone) })()
	j.run(w)
}

// recall returns the conversation up to the end of a response, if it was the last
// one here. A request that came without a connection recalls nothing.
func (c *socket) recall(id string) ([]store.Item, bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || c.last.id != id {
		return nil, false
	}
	return c.last.items[:len(c.last.items):len(c.last.items)], true
}

// refuse sends an error.
func (c *socket) refuse(err error) {
	c.server.refuse(&messages{conn: c, header: http.Header{}}, err)
}
