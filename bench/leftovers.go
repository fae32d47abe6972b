package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"
)

// goroutines counts a server's goroutines by the function that each began with.
type goroutines map[string]int

func (g goroutines) total() int {
	n := 0
	for _, k := range g {
		n += k
	}
	return n
}

// above returns those that g has more of than idle.
func (g goroutines) above(idle goroutines) goroutines {
	more := goroutines{}
	for name, n := range g {
		if n > idle[name] {
			more[name] = n - idle[name]
		}
	}
	return more
}

// goroutines reads the server's goroutine profile. The one that answers is part
// of it every time.
func (s *server) goroutines(ctx context.Context) (goroutines, error) {
	body, err := get(ctx, s.admin+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return parseGoroutines(body)
}

// parseGoroutines reads the profile's text form: for each stack a line with a
// count and addresses, then one line for each frame, the outermost last.
func parseGoroutines(r io.Reader) (goroutines, error) {
	g := goroutines{}
	n, outermost := 0, ""
	add := func() {
		if n > 0 {
			g[outermost] += n
		}
		n, outermost = 0, ""
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		count, _, ok := strings.Cut(lines.Text(), " @ ")
		if ok {
			add()
			var err error
			if n, err = strconv.Atoi(count); err != nil {
				return nil, fmt.Errorf("goroutine profile: %w", err)
			}
		}
		if fields := strings.Fields(lines.Text()); len(fields) >= 3 && fields[0] == "#" {
			outermost, _, _ = strings.Cut(fields[2], "+0x")
		}
	}
	add()
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("goroutine profile: %w", err)
	}
	if len(g) == 0 {
		return nil, fmt.Errorf("goroutine profile: it is empty")
	}
	return g, nil
}

// idleGoroutines waits for the end of all requests and returns the most that
// was seen of each kind in the seconds after: workers that come and go are to
// be found with all of theirs.
func (s *server) idleGoroutines(ctx context.Context) (goroutines, error) {
	left, err := s.leftovers(ctx, nil, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if left.requests > 0 {
		return nil, fmt.Errorf("%v requests are active before the load", left.requests)
	}
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	most := goroutines{}
	for range 10 {
		now, err := s.goroutines(ctx)
		if err != nil {
			return nil, err
		}
		for name, n := range now {
			most[name] = max(most[name], n)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return most, nil
}

// leftovers is what requests have left behind.
type leftovers struct {
	requests, blocks float64
	goroutines       goroutines // above the idle level
}

func (l leftovers) none() bool { return l.requests == 0 && l.blocks == 0 && len(l.goroutines) == 0 }

// leftovers waits until nothing is left, and returns the least of each that was
// seen within the time: workers that come and go move the numbers, a leak
// stays. Without an idle level goroutines are not looked at.
func (s *server) leftovers(ctx context.Context, idle goroutines, within time.Duration) (leftovers, error) {
	var least leftovers
	for start := time.Now(); ; {
		now, err := s.leftoversNow(ctx, idle)
		if err != nil {
			return least, err
		}
		if least.none() {
			least = now
		}
		least.requests, least.blocks = min(least.requests, now.requests), min(least.blocks, now.blocks)
		maps.DeleteFunc(least.goroutines, func(name string, _ int) bool { return now.goroutines[name] == 0 })
		for name := range least.goroutines {
			least.goroutines[name] = min(least.goroutines[name], now.goroutines[name])
		}
		if least.none() || time.Since(start) > within {
			return least, nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return least, err
		}
	}
}

func (s *server) leftoversNow(ctx context.Context, idle goroutines) (leftovers, error) {
	page, err := s.metrics(ctx)
	if err != nil {
		return leftovers{}, err
	}
	requests, err := page.value("dynamo_frontend_active_requests")
	if err != nil {
		return leftovers{}, err
	}
	blocks, err := page.value("dynamo_frontend_worker_active_decode_blocks")
	if err != nil {
		return leftovers{}, err
	}
	now := leftovers{requests: requests, blocks: blocks}
	if idle == nil {
		return now, nil
	}
	all, err := s.goroutines(ctx)
	now.goroutines = all.above(idle)
	return now, err
}
