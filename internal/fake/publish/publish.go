// Package publish tells of a mock engine's caches as vLLM and SGLang do: over
// real ZeroMQ sockets, one publisher for each rank, in their dialects of
// MessagePack, with replay of what is still kept.
//
// The one idea: everything that is told comes from the engine's own reports, so
// that a listener who does everything right ends with what the caches hold.
// Whatever publishers do wrong, and what differs from build to build, is a switch:
// builds in [Config], mishaps in [Faults].
package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine/mock"
)

// Dialect is how an engine tells of its blocks.
type Dialect uint8

// The dialects. SGLang's keys are signed and do not depend on who asked; it says
// first of all that nothing is cached.
const (
	VLLM Dialect = iota
	SGLang
)

// Config says which publisher is imitated, as engines' --kv-events-config does and
// with what differs between builds.
type Config struct {
	Dialect Dialect
	// Endpoint is where rank 0 publishes; the ports of the others follow. It is
	// listened at if it has a *, and connected to otherwise. Port * is any that is
	// free.
	Endpoint string
	// Replay is where it answers for what it has told; empty for nowhere.
	Replay string
	// Topic is the first frame of each message.
	Topic string
	// Window is how many messages are kept for replay; 0 = 10,000.
	Window int
	// Page is the number of tokens in a block of the events, by which the blocks of
	// the engine can be divided; 0 = those.
	Page int
	// Positional writes events as arrays, as old builds do, and not as maps.
	Positional bool
	// ShortReplay leaves the topic out of replayed messages, as old builds of vLLM
	// do, and SGLang does.
	ShortReplay bool
	// Bytes writes keys as 32 bytes and not as numbers.
	Bytes bool
	// Unranked leaves the rank out of messages.
	Unranked bool
	// Groups tells of every block a second time, as a hybrid model's group of
	// sliding windows does, which lets go of them at once.
	Groups bool
	// Metadata tells the salt of the request that made a block, as new builds of
	// SGLang do.
	Metadata bool
	// HighWater is how many messages wait for a slow listener; 0 = 100,000.
	HighWater int
}

// Publisher is the publishers of an engine's ranks. Its methods may be called from
// any goroutine.
type Publisher struct {
	config Config
	ranks  []*rank
	// The addresses of rank 0, with the ports that it got.
	events, replay string
	listens        bool // at events, and does not connect there

	ctx  context.Context
	end  context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	faults Faults
}

// New opens the sockets of the ranks [0, ranks) of an engine with blocks of so
// many tokens. What they tell is what comes to [Publisher.Hear].
func New(c Config, ranks, blockSize int) (*Publisher, error) {
	c.Page, c.Window = cmp.Or(c.Page, blockSize), cmp.Or(c.Window, defaultWindow)
	switch {
	case c.Endpoint == "":
		return nil, errors.New("fake publisher: no endpoint")
	case c.Page < 1 || blockSize%c.Page != 0:
		return nil, fmt.Errorf("fake publisher: blocks of %d tokens have no pages of %d", blockSize, c.Page)
	}
	p := &Publisher{config: c, listens: listens(c.Endpoint)}
	p.ctx, p.end = context.WithCancel(context.Background())
	for i := range max(1, ranks) {
		p.ranks = append(p.ranks, newRank(p, uint32(i), blockSize))
	}
	if err := p.bind(); err != nil {
		p.end()
		return nil, fmt.Errorf("fake publisher: %w", err)
	}
	for _, r := range p.ranks {
		p.done.Go(r.run)
	}
	return p, nil
}

const defaultWindow = 10_000

// attempts is how often free ports in a row are looked for, and letGo how long one
// that was held a moment ago may seem to be taken still.
const (
	attempts = 100
	letGo    = 10 * time.Millisecond
)

// bind opens all sockets. Where a port may be any, those of the other ranks have
// to be free as well.
func (p *Publisher) bind() error {
	var err error
	for range attempts {
		if err = p.choose(); err != nil {
			return err
		}
		if err = p.openAll(); err == nil {
			return nil
		}
		if p.events == p.config.Endpoint && p.replay == p.config.Replay {
			break // the ports are given
		}
		time.Sleep(letGo)
	}
	return err
}

func (p *Publisher) openAll() error {
	for i, r := range p.ranks {
		if err := r.open(); err != nil {
			for _, r := range p.ranks[:i+1] {
				r.leave()
			}
			return err
		}
	}
	return nil
}

// choose puts a free port in the place of each *, and not the same one twice.
func (p *Publisher) choose() error {
	p.events, p.replay = p.config.Endpoint, p.config.Replay
	for _, endpoint := range []*string{&p.events, &p.replay} {
		host, any := strings.CutSuffix(*endpoint, ":*")
		if !any {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close() //nolint:errcheck // it was held for the other's sake
		*endpoint = host + ":" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return nil
}

// Endpoint returns where rank 0 publishes, with the port that it got, as its engine
// would say it: without the host that it listens at.
func (p *Publisher) Endpoint() string {
	if !p.listens {
		return p.events
	}
	return hostless(p.events)
}

// Replay returns where rank 0 replays what it told, in the same way; empty for
// nowhere.
func (p *Publisher) Replay() string { return hostless(p.replay) }

// Topic returns the first frame of every message.
func (p *Publisher) Topic() string { return p.config.Topic }

// Window returns how many messages are kept.
func (p *Publisher) Window() int { return p.config.Window }

// Hear is for [mock.Engine.Hear]. It does not wait for anything. A fresh life is
// that of another process: connections break, and numbers begin at 0.
func (p *Publisher) Hear(r mock.Report) {
	if int(r.Rank) < len(p.ranks) {
		r.Events, r.Stores = slices.Clone(r.Events), slices.Clone(r.Stores)
		p.ranks[r.Rank].post(r)
	}
}

// SetFaults makes the publisher misbehave from the next message on.
func (p *Publisher) SetFaults(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Faults returns what was set last.
func (p *Publisher) Faults() Faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}

// Listeners returns how many listen to a rank.
func (p *Publisher) Listeners(rank uint32) int {
	r := p.ranks[rank]
	r.sockets.Lock()
	defer r.sockets.Unlock()
	if r.pub == nil {
		return 0
	}
	return r.pub.Subscribers([]byte(p.config.Topic))
}

// Settled says whether all that was reported has been published.
func (p *Publisher) Settled() bool {
	for _, r := range p.ranks {
		r.mail.Lock()
		behind := r.behind
		r.mail.Unlock()
		if behind > 0 {
			return false
		}
	}
	return true
}

// Close closes the sockets. What was not sent yet is not.
func (p *Publisher) Close() error {
	p.end()
	p.done.Wait()
	return nil
}

// Raise returns an address with a port that is higher by n. A port * stays.
func Raise(endpoint string, n int) (string, error) {
	i := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.ParseUint(endpoint[i+1:], 10, 16)
	switch {
	case n == 0 || endpoint[i+1:] == "*":
		return endpoint, nil
	case strings.HasPrefix(endpoint, "ipc://") || err != nil:
		return "", fmt.Errorf("%s has no port that could be raised by %d", endpoint, n)
	}
	return endpoint[:i+1] + strconv.FormatUint(port+uint64(n), 10), nil
}

// listens says whether an engine listens at an address, by its own rule: any
// other, even 0.0.0.0, it connects to.
func listens(endpoint string) bool {
	return strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || strings.HasPrefix(endpoint, "ipc://")
}

// hostless is an address with all hosts in place of one.
func hostless(endpoint string) string {
	if !strings.HasPrefix(endpoint, "tcp://") {
		return endpoint
	}
	return "tcp://*" + endpoint[strings.LastIndexByte(endpoint, ':'):]
}
