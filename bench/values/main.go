// Command values stores and reads large values at one server of Redis's protocol
// or at two of them in turn, and prints how long that took as JSON:
//
//	go run ./bench/values -address 127.0.0.1:6379 -op get -size 2097152 -n 2000
//
// Turns are short, so that what else the machine does falls on both servers
// alike. What the servers cost is for the caller to look at. Each answer is looked
// at as far as it takes to know that it is the value of its key.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// config is what is asked for.
type config struct {
	address, against string
	op               string
	size, keys       int
	clients          int
	values, turn     int
}

// Result is what became of it, for each server in the order of the flags.
type Result struct {
	Values  int       `json:"values"`  // of each server
	Seconds []float64 `json:"seconds"` // in all turns
	// Turns are the values per second of each turn, by server.
	Turns [][]float64 `json:"turns"`
	Wrong int         `json:"wrong"` // answers that were not what was stored
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "values:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var c config
	flags := flag.NewFlagSet("values", flag.ContinueOnError)
	flags.StringVar(&c.address, "address", "127.0.0.1:6379", "server")
	flags.StringVar(&c.against, "against", "", "second server, asked in turn with the first")
	flags.StringVar(&c.op, "op", "get", "get or set")
	flags.IntVar(&c.size, "size", 2<<20, "bytes of a value")
	flags.IntVar(&c.keys, "keys", 64, "different keys, all of which are stored first")
	flags.IntVar(&c.clients, "clients", 8, "connections to each server")
	flags.IntVar(&c.values, "n", 1000, "values in all, of each server")
	flags.IntVar(&c.turn, "turn", 100, "values of a turn")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if c.op != "get" && c.op != "set" || c.size < 16 || min(c.keys, c.clients, c.values, c.turn) < 1 {
		return errors.New("want -op get or set, a -size of at least 16, and numbers of at least 1")
	}
	var servers []*server
	for _, address := range []string{c.address, c.against} {
		if address == "" {
			continue
		}
		s, err := connect(&c, address)
		if err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		defer s.close()
		servers = append(servers, s)
	}
	r := Result{Seconds: make([]float64, len(servers)), Turns: make([][]float64, len(servers))}
	for i, s := range servers {
		if _, err := s.each(c.keys, (*client).set); err != nil {
			return fmt.Errorf("server %d: storing: %w", i+1, err)
		}
	}
	do := (*client).get
	if c.op == "set" {
		do = (*client).set
	}
	for r.Values < c.values {
		n := min(c.turn, c.values-r.Values)
		for i, s := range servers {
			took, err := s.each(n, do)
			if err != nil {
				return fmt.Errorf("server %d: %s: %w", i+1, c.op, err)
			}
			r.Seconds[i] += took.Seconds()
			r.Turns[i] = append(r.Turns[i], float64(n)/took.Seconds())
		}
		r.Values += n
	}
	for _, s := range servers {
		r.Wrong += int(s.wrong.Load())
	}
	return json.NewEncoder(out).Encode(r)
}

// server is one with the connections to it.
type server struct {
	*config
	clients []*client
	wrong   atomic.Int64
}

func connect(c *config, address string) (*server, error) {
	s := &server{config: c}
	for range c.clients {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			s.close()
			return nil, err
		}
		s.clients = append(s.clients, &client{server: s, conn: conn, in: bufio.NewReaderSize(conn, 4<<10), value: make([]byte, c.size), got: make([]byte, c.size+2)})
	}
	return s, nil
}

func (s *server) close() {
	for _, c := range s.clients {
		c.conn.Close()
	}
}

// each does something with the keys, in turn, until it was done n times.
func (s *server) each(n int, do func(c *client, key int) error) (time.Duration, error) {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make([]error, len(s.clients))
	began := time.Now()
	for i, c := range s.clients {
		group.Go(func() {
			for {
				at := int(next.Add(1)) - 1
				if at >= n || failed[i] != nil {
					return
				}
				failed[i] = do(c, at%s.keys)
			}
		})
	}
	group.Wait()
	return time.Since(began), errors.Join(failed...)
}

// client is one connection. Value is what it stores, with the key in the first
// and in the last eight bytes.
type client struct {
	*server
	conn       net.Conn
	in         *bufio.Reader
	value, got []byte
	head       []byte
}

func name(key int) string { return fmt.Sprintf("model@1@0@%016x@bfloat16kv_bytes", key) }

func (c *client) set(key int) error {
	binary.LittleEndian.PutUint64(c.value, uint64(key)+1)
	binary.LittleEndian.PutUint64(c.value[c.size-8:], uint64(key)+1)
	k := name(key)
	c.head = fmt.Appendf(c.head[:0], "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(k), k, c.size)
	parts := net.Buffers{c.head, c.value, []byte("\r\n")}
	if _, err := parts.WriteTo(c.conn); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err == nil && line != "+OK\r\n" {
		err = fmt.Errorf("answered with %q", line)
	}
	return err
}

func (c *client) get(key int) error {
	k := name(key)
	c.head = fmt.Appendf(c.head[:0], "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(k), k)
	if _, err := c.conn.Write(c.head); err != nil {
		return err
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return err
	}
	if line != "$"+strconv.Itoa(c.size)+"\r\n" {
		return fmt.Errorf("answered with %q", line)
	}
	if _, err := io.ReadFull(c.in, c.got); err != nil {
		return err
	}
	first, last := binary.LittleEndian.Uint64(c.got), binary.LittleEndian.Uint64(c.got[c.size-8:])
	if first != uint64(key)+1 || last != first {
		c.wrong.Add(1)
	}
	return nil
}
