package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/fleet/file"
)

// lines reads a worker a line; "?" makes no sense.
func lines(name string, text []byte) (list []fleet.Wanted, err error) {
	list = []fleet.Wanted{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if line == "?" {
			return nil, fmt.Errorf("%s line %d: want a name", filepath.Base(name), i+1)
		}
		if line != "" {
			list = append(list, fleet.Wanted{Name: line})
		}
	}
	return list, nil
}

// house is a folder that is watched.
type house struct {
	t   *testing.T
	dir string

	mu  sync.Mutex
	got []string
}

// told returns what was told since the last call.
func (h *house) told() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	got := h.got
	h.got = nil
	return got
}

// watch runs a test that changes the files at a path, in virtual time.
func watch(t *testing.T, path string, test func(h *house)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, dir: dir}
		ctx, cancel := context.WithCancel(t.Context())
		h.write("a.yaml", "a")
		s := file.New(filepath.Join(dir, path), lines)
		go func() {
			for list, err := range s.Watch(ctx) {
				var names []string
				for _, w := range list {
					names = append(names, w.Name)
				}
				h.mu.Lock()
				h.got = append(h.got, fmt.Sprintf("%s %v", strings.Join(names, " "), err))
				h.mu.Unlock()
			}
		}()
		h.expect("a <nil>")
		test(h)
		cancel()
	})
}

func (h *house) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) do(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// pass lets some looks happen.
func (h *house) pass(looks int) {
	time.Sleep(time.Duration(looks)*time.Second + time.Millisecond)
	synctest.Wait()
}

// expect waits until everything has been seen, and what was told is this.
func (h *house) expect(want ...string) {
	h.t.Helper()
	h.pass(3)
	if got := h.told(); strings.Join(got, "|") != strings.Join(want, "|") {
		h.t.Errorf("told %q, want %q", got, want)
	}
}

func TestOneFile(t *testing.T) {
	watch(t, "a.yaml", func(h *house) {
		h.write("a.yaml", "a\nb")
		h.expect("a b <nil>")
		h.write("a.yaml", "a\nb")
		h.expect() // nothing new
		h.write("b.yaml", "x")
		h.expect()
		h.write("new", "c")
		h.do(os.Rename(filepath.Join(h.dir, "new"), filepath.Join(h.dir, "a.yaml")))
		h.expect("c <nil>")
		h.write("a.yaml", "c\n?")
		h.expect("c a.yaml line 2: want a name")
		h.write("a.yaml", "")
		h.expect(" <nil>")
	})
}

// A file that is being written says half of what it is to say.
func TestHalfAFile(t *testing.T) {
	watch(t, "a.yaml", func(h *house) {
		for _, text := range []string{"", "a\nb", "a\nb\nc"} {
			h.write("a.yaml", text)
			h.pass(1)
		}
		h.expect("a b c <nil>")
		h.do(os.Remove(filepath.Join(h.dir, "a.yaml")))
		h.pass(1)
		h.write("a.yaml", "a\nb\nc")
		h.expect()
	})
}

// A place that cannot be read says so once, and then again what it says.
func TestGone(t *testing.T) {
	watch(t, "a.yaml", func(h *house) {
		h.do(os.Remove(filepath.Join(h.dir, "a.yaml")))
		h.pass(3)
		if got := h.told(); len(got) != 1 || !strings.HasPrefix(got[0], " workers cannot be read: stat ") {
			h.t.Errorf("%q", got)
		}
		h.write("a.yaml", "a")
		h.expect("a <nil>")
		h.do(os.Remove(filepath.Join(h.dir, "a.yaml")))
		h.do(os.Mkdir(filepath.Join(h.dir, "a.yaml"), 0o700))
		h.expect(" <nil>") // an empty folder is an empty list
	})
}

func TestFolder(t *testing.T) {
	watch(t, ".", func(h *house) {
		h.do(os.Mkdir(filepath.Join(h.dir, "sub"), 0o700))
		h.write("sub/b.yml", "b")
		h.write("notes.txt", "?")
		h.write(".hidden.yaml", "?")
		h.expect("a b <nil>")
		h.write("c.yaml", "b\nc")
		h.pass(3)
		if got := h.told(); len(got) != 1 || !strings.HasPrefix(got[0], "a b c ") || !strings.Contains(got[0], "b stands in "+filepath.Join(h.dir, "c.yaml")+" already") {
			h.t.Errorf("%q", got)
		}
		h.write("c.yaml", "?")
		h.pass(3)
		if got := h.told(); len(got) != 1 || !strings.HasPrefix(got[0], "a b c c.yaml line 1: want a name") {
			h.t.Errorf("%q, want that it keeps what it said", got)
		}
		h.do(os.Remove(filepath.Join(h.dir, "c.yaml")))
		h.expect("a b <nil>")
	})
}

// A volume of Kubernetes is links to a folder that another link names, which is
// replaced as a whole.
func TestKubernetes(t *testing.T) {
	watch(t, ".", func(h *house) {
		mount := func(version, text string) {
			h.do(os.Mkdir(filepath.Join(h.dir, version), 0o700))
			h.write(version+"/workers.yaml", text)
			h.do(os.Symlink(version, filepath.Join(h.dir, "..data_tmp")))
			h.do(os.Rename(filepath.Join(h.dir, "..data_tmp"), filepath.Join(h.dir, "..data")))
		}
		mount("..2026_1", "x")
		h.do(os.Remove(filepath.Join(h.dir, "a.yaml")))
		h.do(os.Symlink("..data/workers.yaml", filepath.Join(h.dir, "workers.yaml")))
		h.expect("x <nil>")
		mount("..2026_2", "x\ny")
		h.expect("x y <nil>")
	})
}

// Reading now does not wait for a second look, and is not told again.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "w.yaml")
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := file.New(path, lines)
	if list, err := s.Read(); len(list) != 1 || err != nil {
		t.Errorf("%v %v", list, err)
	}
	if err := os.WriteFile(path, []byte("a\n?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Read(); len(list) != 1 || err == nil {
		t.Errorf("%v %v, want what it said before, and why", list, err)
	}
	if err := os.WriteFile(path, make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Read(); list != nil || err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("%d %v", len(list), err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "workers")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "workers.yaml")
	if err := os.WriteFile(path, []byte("http://10.0.0.1:8000\nhttp://10.0.0.2:8000\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	list, err := file.New(path, lines).Read()
	for _, w := range list {
		fmt.Println(w.Name)
	}
	fmt.Println(err)
	// Output:
	// http://10.0.0.1:8000
	// http://10.0.0.2:8000
	// <nil>
}
