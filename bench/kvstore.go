package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/dynago/dynago/bench/stats"
)

// largeValue is the size of a value in bytes: a chunk of a small model's KV.
const largeValue = 2 << 20

// redisServer is the program that the kvstore is held against.
const redisServer = "redis-server"

// takeValues holds a kvstore against Redis, with the same client in turn, and its
// disk against a plain reader of the same file.
func takeValues(ctx context.Context, b *bench) ([]part, error) {
	redis, err := exec.LookPath(redisServer)
	if err != nil {
		return nil, fmt.Errorf("nothing to compare with: %w", err)
	}
	var parts []part
	for _, op := range []string{"set", "get"} {
		var rates, costs, redisCosts []float64
		wrong := 0
		for range pick(b, 5, 1) {
			r, err := b.valuesRun(ctx, redis, op)
			if err != nil {
				return nil, err
			}
			rates, costs, redisCosts = append(rates, 100*r.ratio), append(costs, r.cost), append(redisCosts, r.redisCost)
			wrong += r.Wrong
		}
		parts = append(
			parts,
			median(op+" of 2 MiB, in memory: values per second, of those of redis-server", "%", rates).atLeast(80).aimAtLeast(120),
			median(op+" of 2 MiB, in memory: the server's processor time", "ms", costs).against(redisServer, stats.Median(redisCosts)),
			count(op+": wrong answers", wrong).atMost(0),
		)
	}
	disk := &codecs{bench: b, ctx: ctx}
	parts = append(parts, disk.diskReads()...)
	return parts, disk.err
}

// diskReads reads values of 2 MiB that lie on disk, from the driver and over
// loopback from a store, and the same bytes from one file without a cache, with as
// many readers each.
func (t *codecs) diskReads() (parts []part) {
	for _, from := range []struct{ name, pkg, benchmark string }{
		{"from the disk's driver", "kvcache/disk", "Read"},
		{"from the disk over loopback", "kvstore", "DiskGet"},
	} {
		for _, readers := range []int{1, 4} {
			var ratios []float64
			for range pick(t.bench, 5, 1) {
				r, err := t.once(from.pkg, fmt.Sprintf("%s/readers=%d", from.benchmark, readers), pick(t.bench, 20, 3))
				if err != nil {
					t.err = errors.Join(t.err, err)
					return nil
				}
				ratios = append(ratios, r.values["%-of-plain"])
			}
			parts = append(parts, median(fmt.Sprintf("2 MiB %s, %d readers: of what O_DIRECT alone gives", from.name, readers), "%", ratios).atLeast(70).aimAtLeast(90))
		}
	}
	return parts
}

// valuesOf is what the client measured of both servers, ours first, and what a
// value cost each of them in milliseconds of processor time.
type valuesOf struct {
	Values  int         `json:"values"`
	Seconds []float64   `json:"seconds"`
	Turns   [][]float64 `json:"turns"`
	Wrong   int         `json:"wrong"`

	ratio, cost, redisCost float64
}

// keysStored is how many values the client stores first.
const keysStored = 64

// valuesRun measures one operation with two fresh servers.
func (b *bench) valuesRun(ctx context.Context, redis, op string) (r valuesOf, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(b.programs.dir, "redis-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	our := exec.Command(b.programs.dynago, "kvstore", "--listen", ports[0], "--http-listen", "off", "--memory", "1GiB")
	_, port, _ := net.SplitHostPort(ports[1]) // as made here
	theirs := exec.Command(redis, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--maxmemory", "1gb", "--dir", dir)
	servers := make([]*process, 0, 2)
	for i, command := range []*exec.Cmd{our, theirs} {
		p, err := start(command)
		if err != nil {
			return r, err
		}
		defer p.kill()
		if err := reachable(ctx, p, ports[i]); err != nil {
			return r, err
		}
		servers = append(servers, p)
	}
	out, err := exec.CommandContext(ctx, b.programs.values, "-address", ports[0], "-against", ports[1], "-op", op,
		"-size", strconv.Itoa(largeValue), "-keys", strconv.Itoa(keysStored), "-n", strconv.Itoa(pick(b, 1500, 200))).Output()
	if err != nil {
		return r, fmt.Errorf("client: %w%s", err, stderrOf(err))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("client: %w", err)
	}
	for i, cost := range []*float64{&r.cost, &r.redisCost} {
		used, err := servers[i].cpu()
		if err != nil {
			return r, err
		}
		*cost = used.Seconds() * 1000 / float64(r.Values+keysStored)
	}
	r.ratio = stats.Median(r.Turns[0]) / stats.Median(r.Turns[1])
	return r, nil
}

func stderrOf(err error) string {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return ": " + lastLines(string(e.Stderr), 3)
	}
	return ""
}

// freePorts returns addresses at which nobody listens.
func freePorts(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // it was held for the others' sake
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// reachable waits until p listens.
func reachable(ctx context.Context, p *process, address string) error {
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return c.Close()
		}
		if err := p.death(); err != nil {
			return err
		}
		if err := pause(ctx, 25*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s does not listen on %s", p.name, address)
}
