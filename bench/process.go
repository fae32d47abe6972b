package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running program whose cost is measured.
type process struct {
	name    string
	command *exec.Cmd
	log     *os.File // standard error, already unlinked
	ended   chan struct{}
	err     error // why it ended; valid once ended is closed
}

// start runs a program. What it writes to standard output goes nowhere unless
// the command says otherwise; its log goes to a file, as that of a service does.
func start(command *exec.Cmd) (*process, error) {
	p := &process{name: filepath.Base(command.Path), command: command, ended: make(chan struct{})}
	var err error
	if p.log, err = os.CreateTemp("", "dynago-bench-log-"); err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.name, err)
	}
	os.Remove(p.log.Name())
	command.Stderr = p.log
	if err := command.Start(); err != nil {
		p.log.Close()
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		p.err = command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop asks the process to end, and insists after half a minute. The error says
// if it did not end cleanly.
func (p *process) stop() error {
	p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		p.command.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end within 40 s of SIGTERM", p.name)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended with %w: %s", p.name, p.err, p.lastWords(5))
	}
	return nil
}

// lastWords are the last n lines of the process's log.
func (p *process) lastWords(n int) string {
	most := int64(400 * n)
	log, err := p.log.Stat()
	if err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(p.log, max(0, log.Size()-most), most))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), n)
}

// death says how the process ended, if it has, with the last lines of its log. A
// panic's first lines are the ones that tell.
func (p *process) death() error {
	select {
	case <-p.ended:
	default:
		return nil
	}
	words := p.lastWords(100)
	for _, sign := range []string{"panic: ", "fatal error: "} {
		if at := strings.Index(words, sign); at >= 0 {
			words = words[at:]
			break
		}
	}
	return fmt.Errorf("%s ended by itself (%v): %s", p.name, p.command.ProcessState, words)
}

// kill ends the process, if it has not ended, and gives up its log.
func (p *process) kill() {
	p.command.Process.Kill()
	<-p.ended
	p.log.Close()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// cpu is the processor time, user and system, that the process has used so far.
// The kernel tells it in ticks of 10 ms.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", p.name, err)
	}
	return parseCPU(string(stat))
}

// parseCPU reads fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms. Field 2
// is the program's name in brackets and may hold anything.
func parseCPU(stat string) (time.Duration, error) {
	const tick = 10 * time.Millisecond
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("process status %.60q: too few fields", stat)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("process status: %w", err)
	}
	return time.Duration(user+system) * tick, nil
}

// rss is the memory of the process that is resident, in bytes.
func (p *process) rss() (float64, error) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.command.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return parseRSS(string(rollup))
}

func parseRSS(rollup string) (float64, error) {
	for line := range strings.Lines(rollup) {
		rest, ok := strings.CutPrefix(line, "Rss:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
		if err != nil {
			return 0, fmt.Errorf("memory of process: %w", err)
		}
		return kb * 1024, nil
	}
	return 0, errors.New("memory of process: no line Rss")
}

// settledRSS waits until the resident memory has stayed within one percent for
// the given time, and returns it. After a minute it takes what is there and
// says that it had not settled.
func (p *process) settledRSS(ctx context.Context, still time.Duration) (bytes float64, settled bool, err error) {
	const every = 100 * time.Millisecond
	var window []float64
	for range int(time.Minute / every) {
		if bytes, err = p.rss(); err != nil {
			return 0, false, err
		}
		window = append(window, bytes)
		if over := len(window) - int(still/every); over > 0 {
			window = window[over:]
			if spread(window) <= 0.01 {
				return bytes, true, nil
			}
		}
		if err := pause(ctx, every); err != nil {
			return 0, false, err
		}
	}
	return bytes, false, nil
}

// spread is how far values are apart, as a share of the greatest.
func spread(values []float64) float64 {
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	return (high - low) / high
}

// pause waits, and returns early with an error if ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
