package kvstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"time"
)

// conn is one client. Its requests are answered one after the other, and the
// next one is read when the answer has gone to the system: a client that sends
// and does not read waits for itself.
type conn struct {
	s    *Server
	net  net.Conn
	id   int64
	name string
	sp   *space // nil = AUTH comes first
	in   decoder
	out  encoder
	over bool
	// came is when it connected, and asked when reading was given its time.
	came, asked time.Time
	refused     int // wrong tokens
}

func newConn(s *Server, nc net.Conn, id int64) *conn {
	c := &conn{s: s, net: nc, id: id, sp: s.open(), came: time.Now()}
	c.in = decoder{r: bufio.NewReaderSize(wire{c}, 16<<10), maxValue: s.opts.MaxValue, reserve: s.receive, keep: s.spare, progress: c.reading, stranger: c.sp == nil}
	c.in.placing, c.in.forget = c.placing(), c.forget
	c.out = encoder{w: bufio.NewWriterSize(nc, 16<<10), progress: c.writing}
	return c
}

// wire is what a client sends. Nobody waits for more of it before the answers to
// what has come are on their way.
type wire struct{ *conn }

func (w wire) Read(p []byte) (int, error) {
	if w.out.w.Buffered() > 0 {
		w.writing()
		if err := w.out.w.Flush(); err != nil {
			return 0, err
		}
	}
	return w.net.Read(p)
}

// reading lets a step of a request take no longer than the stall.
func (c *conn) reading() {
	c.asked = time.Now()
	c.readUntil(c.asked.Add(c.s.opts.Stall))
}

// goOn does the same for a request of which the beginning has come with those
// before it, and whose time must not be theirs.
func (c *conn) goOn() {
	if time.Since(c.asked) > c.s.opts.Stall/8 {
		c.reading()
	}
}

// await lets a client be idle as long as it likes, once it has shown a token if it
// needs one: connections are few, and no stranger's to keep.
func (c *conn) await() {
	if c.sp == nil {
		c.readUntil(c.came.Add(c.s.opts.Stall))
		return
	}
	c.readUntil(time.Time{})
}

// readUntil sets the deadline of reading, unless Shutdown has.
func (c *conn) readUntil(t time.Time) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.s.closing {
		c.net.SetReadDeadline(t) //nolint:errcheck // reading tells
	}
}

// writing lets a step of an answer take no longer than the stall.
func (c *conn) writing() {
	c.net.SetWriteDeadline(time.Now().Add(c.s.opts.Stall)) //nolint:errcheck // writing tells
}

// serve answers requests until the client or the server ends it.
func (c *conn) serve() {
	ctx := context.Background()
	defer c.in.giveBack()
	for !c.over && !c.out.gone {
		if c.in.r.Buffered() == 0 {
			c.await()
			if _, err := c.in.r.Peek(1); err != nil {
				return
			}
			c.reading()
		}
		c.goOn()
		args, refused, err := c.in.next()
		if bad, ok := errors.AsType[protocolError](err); ok {
			c.out.fail("ERR " + bad.Error())
			break
		}
		if err != nil {
			return
		}
		c.writing()
		switch {
		case refused != nil:
			c.out.fail(refused.Error())
		case len(args) > 0:
			c.answer(ctx, args)
		}
		c.in.unplace()
	}
	c.writing()
	c.out.w.Flush() //nolint:errcheck // the connection ends
}

// answer runs one command.
func (c *conn) answer(ctx context.Context, args [][]byte) {
	name := strings.ToUpper(string(args[0]))
	cmd, ok := commands[name]
	count := c.s.traffic.of(name)
	count.all.Add(1)
	failures := c.out.failures
	defer func() {
		if c.out.failures > failures {
			count.failed.Add(1)
		}
	}()
	switch {
	case name == "POST" || name == "HOST:":
		c.out.fail("ERR this is no HTTP server")
		c.over = true // what follows is by a page in a browser, and not by its user
	case !ok:
		c.out.fail("ERR unknown command '" + printable(string(args[0])) + "'")
	case len(args) < cmd.least || cmd.most > 0 && len(args) > cmd.most:
		c.out.fail("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	case c.sp == nil && !cmd.open:
		c.out.fail("NOAUTH Authentication required.")
	default:
		cmd.run(c, ctx, args[1:])
	}
}

// printable is the beginning of s, fit to be in an answer.
func printable(s string) string {
	s = s[:min(len(s), 64)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
