package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// server is a running dynago.
type server struct {
	*process
	url, admin string
	model      string
}

// serve starts dynago with four mock workers on free ports and waits until it
// is ready.
func (b *bench) serve(ctx context.Context, flags ...string) (*server, error) {
	s, err := b.exec(flags...)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		defer s.kill()
		return nil, fmt.Errorf("%w: %s", err, s.lastWords(5))
	}
	return s, nil
}

// exec starts dynago and waits for nothing.
func (b *bench) exec(flags ...string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	adminPort, err := freePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--http-port", port, "--admin-port", adminPort}, flags...)
	if !slices.Contains(flags, "--demo") {
		args = append(args, "--demo", "mock")
	}
	command := exec.Command(b.programs.dynago, args...)
	command.Env = append(os.Environ(), "DYN_FRONTEND_FD_LIMIT_TARGET=1048576")
	p, err := start(command)
	if err != nil {
		return nil, err
	}
	return &server{process: p, url: "http://127.0.0.1:" + port, admin: "http://127.0.0.1:" + adminPort}, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// awaitReady waits until the server lists a model and says that it is ready.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if body, err := get(ctx, s.url+"/ready"); err == nil {
			body.Close()
			break
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended before it was ready (%v)", s.name, s.err)
		default:
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s was not ready within 30 s", s.name)
		}
	}
	body, err := get(ctx, s.url+"/v1/models")
	if err != nil {
		return err
	}
	defer body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(body).Decode(&list); err != nil || len(list.Data) == 0 {
		return fmt.Errorf("models of %s: %d listed, %w", s.name, len(list.Data), err)
	}
	s.model = list.Data[0].ID
	return nil
}

// get fetches a page that must be there. The connection is not kept, so that it
// does not count as one of the server's.
func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(request)
}

func do(request *http.Request) (io.ReadCloser, error) {
	request.Close = true
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		resp.Body.Close()
		return nil, fmt.Errorf("%s %s: status %d: %s", request.Method, request.URL, resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return resp.Body, nil
}

// record sends one chat and keeps the bytes of the answer in a file, for the
// baseline to repeat.
func (s *server) record(ctx context.Context, dir, chat string) (path string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(chat))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	body, err := do(request)
	if err != nil {
		return "", err
	}
	defer body.Close()
	answer, err := io.ReadAll(body)
	if err != nil {
		return "", fmt.Errorf("record an answer: %w", err)
	}
	path = filepath.Join(dir, "answer")
	return path, os.WriteFile(path, answer, 0o600)
}

// baseline starts the bare handler that repeats the recorded answer.
func (b *bench) baseline(answer string, interval time.Duration) (p *process, url string, err error) {
	command := exec.Command(b.programs.baseline, "-answer", answer, "-interval", interval.String())
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
	if _, err := fmt.Fscan(out, &url); err != nil {
		defer p.kill()
		return nil, "", fmt.Errorf("baseline told no address: %w: %s", err, p.lastWords(5))
	}
	return p, url, nil
}
