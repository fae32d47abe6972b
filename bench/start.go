package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
)

const megabyte = 1e6

// takeStart measures how soon after exec the first token of a routed chat comes,
// what an idle server holds in memory, and how large the binary is.
func takeStart(ctx context.Context, b *bench) ([]part, error) {
	var first, idle []float64
	for range pick(b, 5, 3) {
		ms, bytes, err := b.startRun(ctx)
		if err != nil {
			return nil, err
		}
		first, idle = append(first, ms), append(idle, bytes/megabyte)
	}
	binary, err := os.Stat(b.programs.dynago)
	if err != nil {
		return nil, err
	}
	size := part{What: "binary, static and stripped", Value: float64(binary.Size()) / megabyte, Unit: "MB"}
	return []part{
		median("exec to first routed token", "ms", first).atMost(300).aim(150),
		median("idle RSS", "MB", idle).atMost(50).aim(30),
		size.atMost(45),
	}, nil
}

// startRun starts the server once, as it comes, asks it as soon as it listens, and waits
// until its memory is still.
func (b *bench) startRun(ctx context.Context) (firstTokenMS, idleBytes float64, err error) {
	began := time.Now()
	s, err := b.exec("--demo", "tiny")
	if err != nil {
		return 0, 0, err
	}
	defer s.kill()
	if err := s.firstToken(ctx); err != nil {
		return 0, 0, fmt.Errorf("first token: %w: %s", err, s.lastWords(5))
	}
	firstTokenMS = time.Since(began).Seconds() * 1e3

	idleBytes, settled, err := s.settledRSS(ctx, pick(b, 5*time.Second, time.Second))
	if err != nil {
		return 0, 0, err
	}
	if !settled {
		return 0, 0, fmt.Errorf("memory of an idle server does not stay within 1%%, last %s MB", number(idleBytes/megabyte))
	}
	return firstTokenMS, idleBytes, s.stop()
}

// firstToken asks for a streamed chat until the server answers, and returns at
// the first data frame. Until a model is ready the server may refuse.
func (s *server) firstToken(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	const chat = `{"model":"dynago/tiny","stream":true,"max_tokens":16,"messages":[{"role":"user","content":"Hello"}]}`
	address := strings.TrimPrefix(s.url, "http://")
	for {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
			err = firstFrame(ctx, s.url, chat)
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended: %w", s.name, s.err)
		default:
		}
		if pause(ctx, time.Millisecond) != nil {
			return err
		}
	}
}

func firstFrame(ctx context.Context, url, chat string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(chat))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	body, err := do(request)
	if err != nil {
		return err
	}
	defer body.Close()
	for event, err := range loadgen.Events(bufio.NewReader(body)) {
		if err != nil {
			return err
		}
		if strings.Contains(string(event.Data), `"error":{`) {
			return fmt.Errorf("stream: %s", event.Data)
		}
		return nil
	}
	return fmt.Errorf("stream without a frame")
}
