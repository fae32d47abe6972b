// Command baseline is the least that can answer a chat request in Go: a bare
// net/http handler that reads the request and writes the bytes of an answer that
// was recorded before. The benchmarks hold the server against it.
//
//	go run ./bench/baseline -answer answer.json
//	go run ./bench/baseline -answer answer.sse -interval 20ms
//
// A recording that is an event stream is written event by event, each flushed
// and, with -interval, paced. It prints its address on one line and serves until
// it is killed.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("baseline", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address")
	path := flags.String("answer", "", "file with the body of an answer")
	interval := flags.Duration("interval", 0, "time between the events of a stream")
	if err := flags.Parse(args); err != nil {
		return err
	}
	answer, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s\n", listener.Addr())
	return http.Serve(listener, handler(answer, *interval))
}

func handler(answer []byte, interval time.Duration) http.Handler {
	if !bytes.HasPrefix(answer, []byte("data:")) {
		return unary(answer)
	}
	events := bytes.SplitAfter(answer, []byte("\n\n"))
	if last := len(events) - 1; len(events[last]) == 0 {
		events = events[:last]
	}
	return stream(events, interval)
}

func unary(answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	})
}

func stream(events [][]byte, interval time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache")
		flusher := http.NewResponseController(w)

		var tick <-chan time.Time
		if interval > 0 {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			tick = ticker.C
		}
		for _, event := range events {
			if tick != nil {
				select {
				case <-tick:
				case <-r.Context().Done():
					return
				}
			}
			if _, err := w.Write(event); err != nil {
				return
			}
			flusher.Flush()
		}
	})
}
