package mock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
)

// Where the legs of a request run at once, they meet in a room, which is a number,
// at an address of the prefill engine: the decode engine sends the number as eight
// bytes, little endian, and gets one byte once the prompt of that room has been
// computed. Either may come first.

// meetTime is how long a decode leg waits for its prefill leg.
const meetTime = 30 * time.Second

// room is what both legs are told.
type room struct {
	Host   string `json:"bootstrap_host"`
	Port   uint16 `json:"bootstrap_port"`
	Number uint64 `json:"bootstrap_room"`
}

func (r *room) key() string { return strconv.FormatUint(r.Number, 10) }

// roomOf reads where legs meet.
func roomOf(handoff []byte) (*room, error) {
	r := new(room)
	if err := json.Unmarshal(handoff, r); err != nil {
		return nil, badHandoff("where the legs meet", err)
	}
	if r.Host == "" || r.Port == 0 {
		return nil, badHandoff("where the legs meet", errors.New("want bootstrap_host, bootstrap_port and bootstrap_room"))
	}
	return r, nil
}

// await returns once the prompt of the room has been computed.
func (r *room) await(ctx context.Context) error {
	client := ctx
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	failed := func(err error) error {
		if client.Err() != nil {
			return engine.CauseOf(client, client.Err())
		}
		return &engine.Error{Kind: engine.Unavailable, Op: "meet the prefill leg", Err: err, FromEngine: true}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))))
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, r.Number)); err != nil {
		return failed(err)
	}
	var ok [1]byte
	if _, err := io.ReadFull(conn, ok[:]); err != nil || ok[0] != 1 {
		return failed(fmt.Errorf("room %d: got %d, %w", r.Number, ok[0], err))
	}
	return nil
}

// meeting is the place of a prefill engine.
type meeting struct {
	listener net.Listener
	host     string
	port     uint16
	letGo    func(key string) // called when both legs have met
	serving  sync.WaitGroup

	mu     sync.Mutex
	rooms  map[string]*doorstep
	guests map[net.Conn]struct{}
	closed bool
}

// doorstep is a room in which one leg waits for the other.
type doorstep struct {
	done    bool     // the prompt has been computed
	decoder net.Conn // that waits, or nil
}

// open opens the place where decode engines meet a prefill engine, if it has one.
func (e *Engine) open() (err error) {
	l, a := e.cfg.Bootstrap, &e.cfg.Args
	switch {
	case (l != nil || a.BootstrapPort != 0) && a.role() != engine.Prefill:
		return errors.New(`bootstrap_port is for engines that compute prompts for others: want "worker_type": "prefill"`)
	case l == nil && a.BootstrapPort == 0:
		return nil
	case l == nil:
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.BootstrapPort))); err != nil {
			return fmt.Errorf("bootstrap_port: %w", err)
		}
	}
	e.meeting, err = meet(l, e.letGo)
	return err
}

// meet opens a place. It takes the listener over.
func meet(l net.Listener, letGo func(string)) (*meeting, error) {
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("bootstrap: want a TCP listener, got %s", l.Addr().Network())
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	m := &meeting{
		listener: l, host: host, port: uint16(address.Port), letGo: letGo,
		rooms: map[string]*doorstep{}, guests: map[net.Conn]struct{}{},
	}
	m.serving.Go(m.serve)
	return m, nil
}

func (m *meeting) serve() {
	for {
		conn, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.closed {
			conn.Close()
		} else {
			m.guests[conn] = struct{}{}
			m.serving.Go(func() { m.greet(conn) })
		}
		m.mu.Unlock()
	}
}

// prepare chooses a room whose number, taken modulo the ranks, is the rank.
func (m *meeting) prepare(rank, ranks uint32) (engine.Handoff, error) {
	n := uint64(ranks)
	r := room{Host: m.host, Port: m.port, Number: rand.Uint64N(math.MaxInt64/n)*n + uint64(rank)}
	text, err := json.Marshal(&r)
	return engine.Handoff{ID: r.key(), Concurrent: true, Prefill: text, Decode: text}, err
}

// greet reads which room a decode engine wants, and keeps it there until it gets
// its answer or gives up.
func (m *meeting) greet(conn net.Conn) {
	defer func() {
		conn.Close()
		m.mu.Lock()
		delete(m.guests, conn)
		m.mu.Unlock()
	}()
	var number [8]byte
	conn.SetReadDeadline(time.Now().Add(meetTime)) //nolint:errcheck // the read tells
	if _, err := io.ReadFull(conn, number[:]); err != nil {
		return
	}
	key := strconv.FormatUint(binary.LittleEndian.Uint64(number[:]), 10)
	d, met := m.come(key, func(d *doorstep) bool {
		if d.decoder != nil {
			return false // the room is taken
		}
		d.decoder = conn
		return true
	})
	if d == nil || met {
		return
	}
	conn.Read(number[:1]) //nolint:errcheck // it ends when the decode engine goes, or is answered
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.decoder = nil; m.rooms[key] == d && !d.done {
		delete(m.rooms, key)
	}
}

// computed says that the prompt of a room has been computed.
func (m *meeting) computed(key string) {
	m.come(key, func(d *doorstep) bool {
		d.done = true
		return true
	})
}

// come lets one of the legs into a room, and says whether both have met there. The
// room is nil if the leg may not enter.
func (m *meeting) come(key string, enter func(*doorstep) bool) (d *doorstep, met bool) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, false
	}
	if d = m.rooms[key]; d == nil {
		d = new(doorstep)
		m.rooms[key] = d
	}
	if !enter(d) {
		m.mu.Unlock()
		return nil, false
	}
	decoder := d.decoder
	if met = d.done && decoder != nil; met {
		delete(m.rooms, key)
	}
	m.mu.Unlock()
	if met {
		m.letGo(key)             // so that nothing is kept when the other leg begins
		decoder.Write([]byte{1}) //nolint:errcheck // it has gone, and does not ask for more
		decoder.Close()
	}
	return d, met
}

// forget ends a room to which the decode leg will not come.
func (m *meeting) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.rooms[key]; d != nil && d.decoder == nil {
		delete(m.rooms, key)
	}
}

// close ends the place and all that waits there.
func (m *meeting) close() {
	m.mu.Lock()
	m.closed = true
	for conn := range m.guests {
		conn.Close()
	}
	m.mu.Unlock()
	m.listener.Close()
	m.serving.Wait()
}
