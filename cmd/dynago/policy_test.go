package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// A file is replaced whole or not at all, and nothing is left of the attempt.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	write := func(text string, err error) error {
		return replaceFile(path, func(w io.Writer) error {
			io.WriteString(w, text)
			return err
		})
	}
	want := func(text string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
		if files, _ := os.ReadDir(dir); len(files) != 1 {
			t.Errorf("the folder has %v, want the file alone", files)
		}
	}
	if err := write("first", nil); err != nil {
		t.Fatal(err)
	}
	want("first")
	broken := errors.New("broken")
	if err := write("half of the sec", broken); !errors.Is(err, broken) {
		t.Errorf("got %v, want what was wrong", err)
	}
	want("first")
	if err := write("second", nil); err != nil {
		t.Fatal(err)
	}
	want("second")
}

// What is no regular file is not to be replaced: nobody wants that of a device.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for name, want := range map[string]string{
		"new": "", "socket": "want a file", ".": "want a file", "nowhere/new": "no such file",
	} {
		err := writable(filepath.Join(dir, name))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("the folder has %v, want the socket alone", files)
	}
}

// lesson is a policy that has learned a text.
type lesson struct {
	mu   sync.Mutex
	text string
}

func (l *lesson) learn(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

func (l *lesson) Learned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text != ""
}

func (l *lesson) Save(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(w, l.text)
	return err
}

func (l *lesson) Load(r io.Reader) error {
	text, err := io.ReadAll(r)
	if string(text) == "spoiled" {
		return errors.New("spoiled")
	}
	l.learn(string(text))
	return err
}

// What is learned is saved every minute, and at the end; a policy that has learned
// nothing does not take away what others have.
func TestPoliciesSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	saved := func(want string) {
		t.Helper()
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("the file has %q, want %q", got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := new(lesson)
		p := &policies{files: []stateFile{{path, l}}, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(context.Background())
		go p.run(ctx)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if _, err := os.Stat(path); err == nil {
			t.Error("nothing was learned, and yet there is a file")
		}
		l.learn("one")
		time.Sleep(58 * time.Second)
		synctest.Wait()
		saved("")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		saved("one")
		cancel()
		synctest.Wait()
		l.learn("two")
		time.Sleep(time.Hour)
		saved("one")
		p.close()
		saved("two")
	})
}

// Of policies that stand in for others each kind is shown, once.
func TestCollectorsOfStandIns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(path, []byte(`
worker_selection:
  aggregated: first
  instances:
    - {name: first, type: remote, parameters: {url: "http://127.0.0.1:1", fallback: second}}
    - {name: second, type: remote, parameters: {url: "http://127.0.0.1:2", fallback: thompson}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := policySettings{File: path, Timeout: time.Second}
	p, err := s.apply(&router.Config{Mode: router.KV, Logger: slog.New(slog.DiscardHandler)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	workers := fleet.New(fleet.Config{})
	defer workers.Close()
	page, list := prometheus.NewRegistry(), p.collectors(workers)
	for _, c := range list {
		if err := page.Register(c); err != nil {
			t.Error(err)
		}
	}
	if len(list) != 2 {
		t.Errorf("%d are shown, want the server and what learns", len(list))
	}
}

// What cannot be read is put aside.
func TestStateLoads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f := stateFile{path, new(lesson)}
	log := slog.New(slog.DiscardHandler)
	f.load(log)
	if f.policy.Learned() {
		t.Error("something was learned from no file")
	}
	for text, learned := range map[string]bool{"good": true, "spoiled": false} {
		f.policy = new(lesson)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.load(log)
		if f.policy.Learned() != learned {
			t.Errorf("%s: learned is %v", text, !learned)
		}
		if _, err := os.Stat(path); (err == nil) != learned {
			t.Errorf("%s: the file that cannot be read stands in the way", text)
		}
	}
	if got, err := os.ReadFile(path + ".unreadable"); string(got) != "spoiled" {
		t.Errorf("what could not be read is %q, %v", got, err)
	}
}
