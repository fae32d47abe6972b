package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// publish is what a process of its own does for [frames]: it plays the engines
// of a history. Each binds a socket in the folder dir. Once all have a
// subscriber it sends everything, and it stays until its input ends.
func publish(h *workload.Corpus, blockTokens int, dir string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	pubs := make([]*zmtp.Pub, h.Workers)
	for i := range pubs {
		pubs[i] = zmtp.NewPub(zmtp.Options{HighWater: math.MaxInt32, QueueBytes: math.MaxInt, Heartbeat: -1})
		defer pubs[i].Close()
		if _, err := pubs[i].Bind(ctx, endpoint(dir, i)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewScanner(in)
	if !lines.Scan() { // all have subscribed
		return errors.Join(lines.Err(), errors.New("publish: nobody subscribed"))
	}
	for i, pub := range pubs {
		for message := range (workload.Engine{Corpus: h, Worker: i, BlockTokens: blockTokens}).Messages() {
			if err := pub.Send(message[:]...); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
	for lines.Scan() { // until it ends
	}
	return lines.Err()
}

func endpoint(dir string, worker int) string {
	return "ipc://" + filepath.Join(dir, strconv.Itoa(worker))
}

// publisher is that process.
type publisher struct {
	command *exec.Cmd
	in      io.WriteCloser
}

// startPublisher starts it and returns when its sockets are there.
func startPublisher(corpus string, blockTokens int, dir string) (*publisher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	p := &publisher{command: exec.Command(self, "publish", "-corpus", corpus, "-tokens", strconv.Itoa(blockTokens), "-dir", dir)}
	p.command.Stderr = os.Stderr
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("publisher: not ready: %w", err), p.stop())
	}
	return p, nil
}

// begin lets it send.
func (p *publisher) begin() error {
	_, err := fmt.Fprintln(p.in, "subscribed")
	return err
}

func (p *publisher) stop() error { return errors.Join(p.in.Close(), p.command.Wait()) }

// mallocs is the number of allocations so far.
func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}
