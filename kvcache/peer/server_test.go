package peer_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// redis is the least that answers as a Redis server does.
type redis struct {
	address string

	mu       sync.Mutex
	data     map[string]string
	conns    map[net.Conn]bool
	password string
	// answer, if it returns an answer, is asked first; hangUp ends the connection.
	answer func(words []string) string
}

const hangUp = "\x00"

func serve(t testing.TB) *redis {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &redis{address: l.Addr().String(), data: map[string]string{}, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			wg.Go(func() { s.talk(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.hangUp()
		wg.Wait()
	})
	return s
}

// hangUp closes all connections.
func (s *redis) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
}

// do lets answer answer from now on.
func (s *redis) do(answer func(words []string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *redis) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	known := false
	for {
		words, err := request(r)
		if err != nil {
			return
		}
		answer := s.reply(words, &known)
		if answer == hangUp {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func request(r *bufio.Reader) ([]string, error) {
	count := func(kind byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || line[0] != kind {
			return 0, fmt.Errorf("%q, %w", line, err)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := count('*')
	words := make([]string, 0, max(0, n))
	for range n {
		size, err := count('$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		words = append(words, string(b[:size]))
	}
	return words, err
}

func bulk(value string, ok bool) string {
	if !ok {
		return "$-1\r\n"
	}
	return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
}

func (s *redis) reply(words []string, known *bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil {
		if a := s.answer(words); a != "" {
			return a
		}
	}
	if words[0] == "AUTH" {
		if words[len(words)-1] != s.password {
			return "-WRONGPASS invalid username-password pair\r\n"
		}
		*known = true
		return "+OK\r\n"
	}
	if s.password != "" && !*known {
		return "-NOAUTH Authentication required.\r\n"
	}
	switch words[0] {
	case "SET":
		s.data[words[1]] = words[2]
		return "+OK\r\n"
	case "GET":
		v, ok := s.data[words[1]]
		return bulk(v, ok)
	case "MGET":
		out := fmt.Sprintf("*%d\r\n", len(words)-1)
		for _, k := range words[1:] {
			v, ok := s.data[k]
			out += bulk(v, ok)
		}
		return out
	case "DEL":
		delete(s.data, words[1])
		return ":1\r\n"
	case "SCAN":
		// Pages of three, the first key of each page twice.
		at, _ := strconv.Atoi(words[1])
		keys := slices.Sorted(maps.Keys(s.data))
		page := keys[min(at, len(keys)):min(at+3, len(keys))]
		if len(page) > 0 {
			page = append(page[:len(page):len(page)], page[0])
		}
		next := at + 3
		if next >= len(keys) {
			next = 0
		}
		out := "*2\r\n" + bulk(strconv.Itoa(next), true) + fmt.Sprintf("*%d\r\n", len(page))
		for _, k := range page {
			out += bulk(k, true)
		}
		return out
	}
	return "-ERR unknown command\r\n"
}
