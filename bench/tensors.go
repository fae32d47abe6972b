package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/dynago/dynago/bench/stats"
)

// bareRPC is what stands beside the server.
const bareRPC = "bare grpc-go"

// takeTensors holds calls of a model that gives its tensors back against a handler of
// grpc-go that does the same and nothing else, with the same client in turn.
func takeTensors(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	for _, of := range []struct {
		what           string
		size, at, n    int
		passes, wished float64
	}{
		{"unary calls with 64 bytes, 16 at a time", 64, 16, pick(b, 60000, 3000), 60, 85},
		{"unary calls with 16 MiB, 2 at a time", 16 << 20, 2, pick(b, 150, 30), 80, 95},
	} {
		var rates, costs, bareCosts []float64
		wrong := 0
		for range pick(b, 5, 1) {
			r, err := b.callsRun(ctx, of.size, of.at, of.n)
			if err != nil {
				return nil, err
			}
			rates, costs, bareCosts = append(rates, 100*r.ratio), append(costs, r.cost), append(bareCosts, r.bareCost)
			wrong += r.Wrong
		}
		parts = append(
			parts,
			median(of.what+": calls per second, of those of "+bareRPC, "%", rates).atLeast(of.passes).aimAtLeast(of.wished),
			median(of.what+": the server's processor time", "µs", costs).against(bareRPC, stats.Median(bareCosts)),
			count(of.what+": wrong answers", wrong).atMost(0),
		)
	}
	return parts, nil
}

// callsOf is what the client measured of both servers, ours first, and what a call
// cost each of them in microseconds of processor time.
type callsOf struct {
	Calls int         `json:"calls"`
	Turns [][]float64 `json:"turns"`
	Wrong int         `json:"wrong"`

	ratio, cost, bareCost float64
}

// callsRun measures calls with two fresh servers.
func (b *bench) callsRun(ctx context.Context, size, clients, n int) (r callsOf, err error) {
	port, err := freePort()
	if err != nil {
		return r, err
	}
	our, err := b.serve(ctx, "--kserve-grpc-server", "--grpc-port", port, "--grpc-metrics-port", "0", "--tensor-echo", "echo")
	if err != nil {
		return r, err
	}
	defer our.kill()
	bare, address, err := b.bareCalls()
	if err != nil {
		return r, err
	}
	defer bare.kill()
	servers := []*process{our.process, bare}
	var began [2]float64
	for i, p := range servers {
		used, err := p.cpu()
		if err != nil {
			return r, err
		}
		began[i] = used.Seconds()
	}
	turn := max(1, n/50)
	out, err := exec.CommandContext(ctx, b.programs.calls, "-address", net.JoinHostPort("127.0.0.1", port), "-against", address, "-model", "echo",
		"-size", strconv.Itoa(size), "-clients", strconv.Itoa(clients), "-n", strconv.Itoa(n), "-turn", strconv.Itoa(turn)).Output()
	if err != nil {
		return r, fmt.Errorf("client: %w%s", err, stderrOf(err))
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("client: %w", err)
	}
	for i, cost := range []*float64{&r.cost, &r.bareCost} {
		used, err := servers[i].cpu()
		if err != nil {
			return r, err
		}
		*cost = (used.Seconds() - began[i]) * million / float64(r.Calls+turn)
	}
	r.ratio = stats.Median(r.Turns[0]) / stats.Median(r.Turns[1])
	return r, nil
}

// bareCalls starts the bare handler.
func (b *bench) bareCalls() (p *process, address string, err error) {
	command := exec.Command(b.programs.calls, "-serve")
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer out.Close()
	command.Stdout = in
	p, err = start(command)
	in.Close()
	if err != nil {
		return nil, "", err
	}
	if _, err := fmt.Fscan(out, &address); err != nil {
		defer p.kill()
		return nil, "", fmt.Errorf("%s told no address: %w: %s", bareRPC, err, p.lastWords(5))
	}
	return p, address, nil
}
