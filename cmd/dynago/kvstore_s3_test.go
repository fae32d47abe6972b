//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy passes bytes on to a server, or does not.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	away  bool          // connections are cut off
	held  chan struct{} // closed: bytes pass
	conns map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, held: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(p.held)
	t.Cleanup(func() { l.Close(); p.setAway(true) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	there, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer there.Close()
	p.mu.Lock()
	if p.away {
		p.mu.Unlock()
		return
	}
	p.conns[c] = true
	p.mu.Unlock()
	go func() {
		p.pass(there, c)
		there.Close()
	}()
	p.pass(c, there)
}

func (p *proxy) pass(to io.Writer, from io.Reader) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		<-held
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}

// hold lets no byte pass until the function that it returns is called.
func (p *proxy) hold() (release func()) {
	held := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	return func() { close(held) }
}

// setAway cuts all connections, and lets none come about, or lets them.
func (p *proxy) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// stat returns one of the numbers of KV.STATS.
func (c *redis) stat(name string) (int, error) {
	// It is a list of names and numbers.
	if _, err := c.Write([]byte("KV.STATS\r\n")); err != nil {
		return 0, err
	}
	head, err := c.r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(head[1:]))
	found := -1
	for range n / 2 {
		var text, number string
		for _, line := range []*string{new(string), &text, &number} {
			if *line, err = c.r.ReadString('\n'); err != nil {
				return 0, err
			}
		}
		if strings.TrimSpace(text) == name {
			found, err = strconv.Atoi(strings.TrimSpace(number[1:]))
		}
	}
	return found, err
}

// TestStoreOnS3 puts an object store below: the one that S3_ENDPOINT names, as in
// make e2e-s3. It is slow, then away, and the store goes on without; it is there
// after all else has been lost.
func TestStoreOnS3(t *testing.T) {
	endpoint := os.Getenv("S3_ENDPOINT")
	if endpoint == "" {
		return
	}
	const values, long = 60, 300_000
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	between, prefix := startProxy(t, u.Host), fmt.Sprintf("store%d/", time.Now().UnixNano())
	t.Setenv("DYN_KVSTORE_S3_ACCESS_KEY", os.Getenv("S3_ACCESS_KEY"))
	t.Setenv("DYN_KVSTORE_S3_SECRET_KEY", os.Getenv("S3_SECRET_KEY"))
	begin := func() (*program, *redis) {
		p, address := startStore(t, "--dir", t.TempDir(), "--disk", "8MiB", "--memory", "2MiB", "--lease", "0",
			"--s3-endpoint", "http://"+between.listener.Addr().String(), "--s3-bucket", os.Getenv("S3_BUCKET"),
			"--s3-prefix", prefix, "--s3-lookup-timeout", "1s")
		c, err := dialRedis(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return p, c
	}
	body := func(i int) string { return strings.Repeat(fmt.Sprintf("value %d, ", i), long/10) }
	stat := func(c *redis, name string) int {
		n, err := c.stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	p, c := begin()
	for i := range values {
		if got, err := c.do("SET", fmt.Sprint("k", i), body(i)); got != "+OK" {
			t.Fatal(got, err)
		}
		until(t, "the value is copied", func() bool { return stat(c, "external_waiting") == 0 })
	}
	get := func(i int) bool {
		t.Helper()
		got, err := c.do("GET", fmt.Sprint("k", i))
		if err != nil && !errors.Is(err, errNil) || err == nil && got != body(i) {
			t.Fatalf("value %d: %d bytes, %v", i, len(got), err)
		}
		return err == nil
	}
	for i := range values {
		if !get(i) {
			t.Errorf("value %d is not there", i)
		}
	}
	if hits := stat(c, "external_hits"); hits < values/2 {
		t.Errorf("%d values came from the object store", hits)
	}

	without := func(how string) {
		t.Helper()
		begun, there := time.Now(), 0
		for i := range values {
			if get(i) {
				there++
			}
			if got, err := c.do("SET", "new", body(i)); got != "+OK" {
				t.Errorf("%s: SET: %s, %v", how, got, err)
			}
		}
		// Those on disk are there; five of the others may have waited for a second.
		if took := time.Since(begun); there < 10 || there > values/2 || took > 20*time.Second {
			t.Errorf("%s: %d of %d values were there, after %v", how, there, values, took)
		}
	}
	release := between.hold()
	without("slow")
	release()
	until(t, "it is asked again", func() bool { return get(0) })
	between.setAway(true)
	without("away")
	between.setAway(false)
	until(t, "it is asked again", func() bool { return get(1) })
	until(t, "all is copied", func() bool { return stat(c, "external_waiting") == 0 })

	p.cmd.Process.Kill()
	p.wait()
	p, c = begin()
	until(t, "all is found again", func() bool { return stat(c, "keys") == values+1 })
	for i := range values {
		if !get(i) {
			t.Errorf("value %d is lost with the machine", i)
		}
	}
	if regexp.MustCompile(`(?i)panic|level=ERROR`).MatchString(p.log.String()) {
		t.Error("it complains")
	}
}
