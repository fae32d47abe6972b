package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Config says how a worker is reached. All but URL may be zero.
type Config struct {
	// URL is the worker's address: grpc://HOST:PORT, or grpcs:// for TLS.
	URL string
	// Key is sent as bearer token; over plain text only to this machine, or if
	// Insecure says so.
	Key      string
	Insecure bool
	// TLS is for grpcs addresses; nil uses the roots of the system.
	TLS *tls.Config
	// Connections is how many there are for requests; 0: one.
	Connections int
	// Cache is the folder in which the files of models are kept; empty: one of the
	// user's.
	Cache string
	// Folders are those of this machine in which a card may say that files lie; none:
	// it may not.
	Folders []string
	// Caller names this frontend in the worker's log.
	Caller string
	// Window and ConnWindow are the flow-control windows to begin with, in bytes; 0:
	// those of the library.
	Window, ConnWindow int32
	Log                *slog.Logger
}

// Client is a worker in another process. It has every optional interface: which of
// them the worker has is said by its card.
//
// It has a connection for what the worker tells of itself, and others for requests.
// Goroutines run only while somebody ranges over a sequence.
type Client struct {
	config Config
	log    *slog.Logger
	watch  watch
	told   *line // Describe, Events, Control, File
	calls  []*line
	life   context.Context // ends with the client
	end    context.CancelCauseFunc
}

var (
	_ engine.Engine        = (*Client)(nil)
	_ engine.ChatEngine    = (*Client)(nil)
	_ engine.Sessioner     = (*Client)(nil)
	_ engine.Disaggregator = (*Client)(nil)
	_ engine.Controller    = (*Client)(nil)
	_ engine.Tensorer      = (*Client)(nil)
	_ engine.Puller        = (*Client)(nil)
)

// New makes a client. It dials nothing; only a configuration that cannot be right is
// an error.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("worker address: %w", err)
	case u.Scheme != plainScheme && u.Scheme != secretScheme || u.Hostname() == "":
		return nil, fmt.Errorf("worker address %q: want grpc://HOST:PORT, or grpcs://HOST:PORT for TLS", c.URL)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fmt.Errorf("worker address %q: want nothing behind the port, and no user", c.URL)
	case u.Scheme == plainScheme && c.TLS != nil:
		return nil, fmt.Errorf("worker address %q: there are settings of TLS: want %s://%s", c.URL, secretScheme, u.Host)
	case u.Scheme == plainScheme && c.Key != "" && !c.Insecure && !local(u.Hostname()):
		return nil, fmt.Errorf("worker address %q: the key would go over the network in plain text: want %s://, or insecure=true if the network is your own", c.URL, secretScheme)
	}
	client := &Client{config: c, log: c.Log}
	if client.log == nil {
		client.log = slog.New(slog.DiscardHandler)
	}
	client.watch.client = client
	client.watch.board = newBoard(engine.Status{
		Epoch: uint64(time.Now().UnixNano()), State: engine.Loading, Reason: "the worker has not answered yet",
	})
	client.watch.renew()
	client.life, client.end = context.WithCancelCause(context.Background())
	// passthrough leaves names to the dialer, as for every other engine.
	target := "passthrough:///" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), strconv.Itoa(DefaultPort)))
	options := client.options(u)
	open := func() (*grpc.ClientConn, error) { return grpc.NewClient(target, options...) }
	if client.told, err = newLine(open); err != nil {
		return nil, fmt.Errorf("worker address %q: %w", c.URL, err)
	}
	for range max(1, c.Connections) {
		l, err := newLine(open)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("worker address %q: %w", c.URL, err), client.Close())
		}
		client.calls = append(client.calls, l)
	}
	return client, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Client) options(u *url.URL) []grpc.DialOption {
	secret := insecure.NewCredentials()
	if u.Scheme == secretScheme {
		secret = credentials.NewTLS(c.config.TLS)
	}
	list := []grpc.DialOption{
		grpc.WithTransportCredentials(secret),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
	}
	if c.config.Window > 0 {
		list = append(list, grpc.WithInitialWindowSize(c.config.Window))
	}
	if c.config.ConnWindow > 0 {
		list = append(list, grpc.WithInitialConnWindowSize(c.config.ConnWindow))
	}
	return list
}

// Close ends open sequences with engine_shutdown and returns when nothing is left of
// the client. It may be called any number of times.
func (c *Client) Close() error {
	closed := engine.Errorf(engine.EngineShutdown, "the client of the worker was closed")
	c.end(closed)
	c.watch.stop()
	c.watch.board.edit(func(p *posted) bool {
		p.status.State, p.status.Reason, p.closed = engine.Failed, closed.Message, true
		return true
	})
	errs := []error{c.told.close()}
	for _, l := range c.calls {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// reconnect makes all connections anew.
func (c *Client) reconnect() {
	for _, l := range append([]*line{c.told}, c.calls...) {
		if err := l.renew(); err != nil {
			c.log.Warn("a connection cannot be made anew", "worker", c.config.URL, "error", err)
		}
	}
}

// worker returns the stub for what the worker tells of itself.
func (c *Client) worker() workerpb.WorkerClient { return workerpb.NewWorkerClient(c.told.now()) }

// line returns the least busy connection for requests, and counts one more on it.
// The caller must call done.
func (c *Client) line() (stub workerpb.WorkerClient, done func()) {
	best := c.calls[0]
	for _, l := range c.calls[1:] {
		if l.busy.Load() < best.busy.Load() {
			best = l
		}
	}
	best.busy.Add(1)
	return workerpb.NewWorkerClient(best.now()), func() { best.busy.Add(-1) }
}

// busy says whether requests are under way.
func (c *Client) busy() bool {
	return slices.ContainsFunc(c.calls, func(l *line) bool { return l.busy.Load() > 0 })
}

// signed adds to a context what every call carries.
func (c *Client) signed(ctx context.Context) context.Context {
	if c.config.Key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.config.Key)
}

// begin returns the context of a request: it ends also when the worker is lost, and
// with the client.
func (c *Client) begin(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(c.signed(ctx))
	link := c.watch.link.Load()
	stop := context.AfterFunc(link.ctx, func() { cancel(context.Cause(link.ctx)) })
	quit := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() {
		stop()
		quit()
		cancel(nil)
	}
}

// Card yields what the worker tells of itself.
func (c *Client) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		defer c.watch.join()()
		c.watch.board.statuses(ctx)(yield)
	}
}

// Load yields what the worker tells of its load.
func (c *Client) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(yield func(engine.Load, error) bool) {
		defer c.watch.join()()
		c.watch.board.loads(ctx)(yield)
	}
}

// String names the worker for people.
func (c *Client) String() string { return c.config.URL }

// errNoEpoch is what is wrong with a worker that cannot say which of its lives it
// lives.
var errNoEpoch = engine.Errorf(engine.Internal, "the worker broke the contract: its description has no epoch")

// watch keeps track of the worker while somebody wants to know what it is.
type watch struct {
	client *Client
	board  *board
	link   atomic.Pointer[link]
	card   *workerpb.Card // the last that was told; it belongs to the goroutine

	mu      sync.Mutex
	readers int
	quit    context.CancelFunc // of the goroutine; nil while there is none
	done    chan struct{}      // closed when that one has ended
}

// link is the time in which the worker is not lost.
type link struct {
	ctx  context.Context
	lose context.CancelCauseFunc
}

// renew begins another time.
func (w *watch) renew() {
	l := &link{}
	l.ctx, l.lose = context.WithCancelCause(context.Background())
	w.link.Store(l)
}

// lose ends what runs on the worker.
func (w *watch) lose() {
	old := w.link.Load()
	w.renew()
	old.lose(engine.ErrWorkerLost)
}

// join makes the worker be watched until leave is called. What was known before
// nobody looked is forgotten, but for the card.
func (w *watch) join() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readers++; w.readers == 1 {
		w.board.edit(func(p *posted) bool {
			if p.status.State != engine.Failed {
				p.status.State, p.status.Reason = engine.Loading, "the worker has not answered yet"
			}
			p.load, p.loadAt = engine.Load{}, time.Time{}
			return true
		})
		var ctx context.Context
		ctx, w.quit = context.WithCancel(w.client.life)
		w.done = make(chan struct{})
		go func() {
			defer close(w.done)
			w.run(ctx)
		}()
	}
	return w.leave
}

func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readers--; w.readers == 0 {
		w.quit()
		<-w.done
	}
}

// stop waits for the goroutine, whoever is still there.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readers > 0 {
		w.quit()
		<-w.done
	}
}
