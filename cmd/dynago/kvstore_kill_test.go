//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startStore starts "dynago kvstore" on a free port, and returns its address, too.
func startStore(t *testing.T, args ...string) (*program, string) {
	t.Helper()
	p := start(t, "  memory ", append(storeArgs, args...)...)
	return p, p.storeAddress()
}

var storeArgs = []string{"kvstore", "--listen", "127.0.0.1:0", "--http-listen", "off"}

func (p *program) storeAddress() string {
	p.t.Helper()
	m := regexp.MustCompile(`redis://(\S+)`).FindStringSubmatch(p.banner)
	if m == nil {
		p.t.Fatalf("no address in\n%s", p.banner)
	}
	return m[1]
}

// fileLimited is a command that runs the program with files of at most so many blocks of
// 512 bytes.
func fileLimited(blocks int, args ...string) *exec.Cmd {
	return exec.Command("/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, blocks), os.Args[0]}, args...)...)
}

// redis is a client that sends one request after the other.
type redis struct {
	net.Conn
	r *bufio.Reader
}

func dialRedis(address string) (*redis, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // a hang fails either way
	return &redis{c, bufio.NewReader(c)}, nil
}

var errNil = errors.New("nil")

// do returns the answer; what is not there is errNil.
func (c *redis) do(args ...string) (string, error) {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch {
	case line == "$-1":
		return "", errNil
	case strings.HasPrefix(line, "-"):
		return "", errors.New(line)
	case !strings.HasPrefix(line, "$"):
		return line, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return "", err
	}
	value := make([]byte, n+2)
	_, err = io.ReadFull(c.r, value)
	return string(value[:n]), err
}

// written is what a writer knows of a key: the last turn that was acknowledged, and
// the last one that was sent.
type written struct{ acknowledged, sent int }

// turn is the value of a key at a turn: no two are alike, and many are long.
func turn(key string, n int) string {
	head := fmt.Sprintf("%s at turn %d,", key, n)
	return head + strings.Repeat(string(rune('a'+n%26)), (n*7919+len(key))%3*150_000)
}

// The process is killed under writers, again and again: what was acknowledged is
// there, or what was being written in its place, and nothing else.
func TestKilledStore(t *testing.T) {
	t.Parallel()
	const rounds, writers, keys = 5, 4, 20
	args := []string{"--dir", t.TempDir(), "--disk", "256MiB", "--memory", "4MiB"}
	known := make([]map[string]written, writers)
	for w := range known {
		known[w] = map[string]written{}
	}
	verify := func(address string) {
		t.Helper()
		c, err := dialRedis(address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for w := range known {
			for key, was := range known[w] {
				got, err := c.do("GET", key)
				if errors.Is(err, errNil) && was.acknowledged == 0 {
					continue
				}
				if err != nil || got != turn(key, was.acknowledged) && got != turn(key, was.sent) {
					t.Errorf("%s, of which turn %d was acknowledged and %d sent: %d bytes, %.60q, %v", key, was.acknowledged, was.sent, len(got), got, err)
				}
			}
		}
	}
	for round := range rounds {
		p, address := startStore(t, args...)
		verify(address)
		var all sync.WaitGroup
		var acknowledged atomic.Int64
		for w := range writers {
			all.Go(func() {
				c, err := dialRedis(address)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				for i := 0; ; i++ {
					key := fmt.Sprintf("m@1@%d@%x@half", w, i%keys)
					key += []string{"kv_bytes", "", "metadata"}[(i/keys)%3]
					was := known[w][key]
					was.sent++
					known[w][key] = was
					if got, err := c.do("SET", key, turn(key, was.sent)); err != nil {
						return // killed
					} else if got != "+OK" {
						t.Errorf("SET: %s", got)
						return
					}
					was.acknowledged = was.sent
					known[w][key] = was
					if acknowledged.Add(1) == int64(150+20*round) {
						p.cmd.Process.Kill() //nolint:errcheck // the others will tell
					}
				}
			})
		}
		all.Wait()
		p.wait()
	}
	p, address := startStore(t, args...)
	verify(address)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// Two processes do not share a directory.
func TestStoreDirectoryIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startStore(t, "--dir", dir, "--disk", "64MiB", "--memory", "4MiB")
	second := exec.Command(os.Args[0], append(storeArgs, "--dir", dir)...)
	second.Env = append(os.Environ(), asProgram+"=1")
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "each store needs a directory of its own") {
		t.Errorf("a second one: %v\n%s", err, out)
	}
}

// Where the disk takes no more, the store goes on with what it has.
func TestStoreOnFullDisk(t *testing.T) {
	t.Parallel()
	// Room for one of the steps in which the file of values grows.
	p := startCommand(t, "  memory ", fileLimited(40_000, append(storeArgs, "--dir", t.TempDir(), "--disk", "64MiB", "--memory", "4MiB")...))
	address := p.storeAddress()
	c, err := dialRedis(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := func(key string) string { return key + strings.Repeat("v", 150_000) }
	for i := range 200 {
		key := fmt.Sprint("k", i)
		if got, err := c.do("SET", key, body(key)); err != nil || got != "+OK" {
			t.Fatalf("value %d: %s, %v", i, got, err)
		}
		if got, err := c.do("GET", key); err != nil || got != body(key) {
			t.Fatalf("value %d: %d bytes, %v", i, len(got), err)
		}
	}
	there := 0
	for i := range 200 {
		key := fmt.Sprint("k", i)
		switch got, err := c.do("GET", key); {
		case errors.Is(err, errNil):
		case err != nil || got != body(key):
			t.Errorf("value %d: %.40q, %v", i, got, err)
		default:
			there++
		}
	}
	if there < 90 || there == 200 {
		t.Errorf("%d values of 150 kB in 4 MiB and 16 MiB", there)
	}
}
