package trace_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/trace"
)

// row is a record that is told by its id.
func row(id string) *trace.Record {
	return &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 5, Request: &trace.Request{RequestID: id}}
}

// ids returns the ids of the records in lines, and checks that each is in a wrapper
// or, if bare, in none.
func ids(t *testing.T, lines []byte, bare bool) (list []string) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		if wrapped := bytes.HasPrefix(line, []byte(`{"timestamp":`)) && bytes.Contains(line, []byte(`,"event":{"schema":`)); wrapped == bare {
			t.Errorf("line %s: in a wrapper: %v", line, wrapped)
		}
		r, ok, err := trace.Decode(bytes.TrimSpace(line))
		if err != nil || !ok {
			t.Fatalf("line %s: %v, %v", line, ok, err)
		}
		list = append(list, r.RequestID())
	}
	return list
}

// members returns what each gzip member of a file holds.
func members(t *testing.T, path string) (list [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := bytes.NewReader(b)
	for in.Len() > 0 {
		z, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		z.Multistream(false)
		lines, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, lines)
	}
	return list
}

func fileConfig(path string) trace.FileConfig {
	return trace.FileConfig{Path: path, BufferBytes: 1 << 20, FlushInterval: time.Second, RollBytes: 1 << 20}
}

func open(t *testing.T, c trace.FileConfig) *trace.File {
	t.Helper()
	f, err := trace.OpenFile(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(t.Context()) }) //nolint:errcheck // closed by the test
	return f
}

func write(t *testing.T, s trace.Sink, ids ...string) {
	t.Helper()
	var rows []*trace.Record
	for _, id := range ids {
		rows = append(rows, row(id))
	}
	if err := s.Write(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}

// files returns the names of the files in a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestSegmentNames(t *testing.T) {
	for _, tc := range []struct {
		path  string
		there []string
		want  string
	}{
		{"trace", nil, "trace.000000.jsonl.gz"},
		{"trace.jsonl", nil, "trace.000000.jsonl.gz"},
		{"trace.jsonl.gz", nil, "trace.000000.jsonl.gz"},
		{"new/folder/trace", nil, "new/folder/trace.000000.jsonl.gz"},
		{"trace", []string{"trace.000004.jsonl.gz", "trace.000002.jsonl.gz"}, "trace.000005.jsonl.gz"},
		{"trace", []string{"trace.1234567.jsonl.gz"}, "trace.1234568.jsonl.gz"},
		{"trace", []string{"trace.1000000.jsonl.gz", "trace.999999.jsonl.gz"}, "trace.1000001.jsonl.gz"},
		{"trace", []string{"other.000009.jsonl.gz", "trace.x.000009.jsonl.gz", "trace.000009.jsonl", "trace.9.jsonl.gz", "trace.-00009.jsonl.gz"}, "trace.000000.jsonl.gz"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range tc.there {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := open(t, fileConfig(filepath.Join(dir, tc.path)))
			write(t, f, "a")
			if err := f.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			same(t, "records", ids(t, members(t, filepath.Join(dir, tc.want))[0], false), "a")
			for _, name := range tc.there {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "x" {
					t.Errorf("%s was changed: %q, %v", name, b, err)
				}
			}
		})
	}
}

// A name that somebody else has got meanwhile is passed over, also if it is only a
// link, which must not be followed.
func TestSegmentsAreExclusive(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	c := fileConfig(filepath.Join(dir, "trace"))
	c.RollLines = 1
	f := open(t, c)
	if err := os.Symlink(victim, filepath.Join(dir, "trace.000001.jsonl.gz")); err != nil {
		t.Fatal(err)
	}
	write(t, f, "a", "b")
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(victim); err == nil {
		t.Error("the link was followed")
	}
	same(t, "records", ids(t, members(t, filepath.Join(dir, "trace.000002.jsonl.gz"))[0], false), "b")
}

func TestSegmentsRoll(t *testing.T) {
	length := int64(len(`{"timestamp":0,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":5,"request":{"request_id":"a"}}}`) + 1)
	for _, tc := range []struct {
		name   string
		config func(c *trace.FileConfig)
		want   []string // ids of each segment
	}{
		{"not at all", func(*trace.FileConfig) {}, []string{"abcdeL"}},
		{"by lines", func(c *trace.FileConfig) { c.RollLines = 2 }, []string{"ab", "cd", "eL"}},
		{"by bytes", func(c *trace.FileConfig) { c.RollBytes = 3 * length }, []string{"abc", "de", "L"}},
		{"just below", func(c *trace.FileConfig) { c.RollBytes = 3*length - 1 }, []string{"ab", "cd", "e", "L"}},
		{"each line is too long", func(c *trace.FileConfig) { c.RollBytes = 1 }, []string{"a", "b", "c", "d", "e", "L"}},
		{"unbuffered", func(c *trace.FileConfig) { c.RollLines, c.BufferBytes = 4, 0 }, []string{"abcd", "eL"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where all timestamps are 0
				dir := t.TempDir()
				c := fileConfig(filepath.Join(dir, "t"))
				tc.config(&c)
				f := open(t, c)
				long := row("L")
				long.Request.Model = strings.Repeat("m", 4*int(length))
				write(t, f, "a", "b", "c", "d", "e")
				if err := f.Write(t.Context(), []*trace.Record{long}); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, name := range files(t, dir) {
					all := ids(t, bytes.Join(members(t, filepath.Join(dir, name)), nil), false)
					got = append(got, strings.Join(all, ""))
				}
				same(t, "segments", got, tc.want...)
			})
		})
	}
}

// What is mostly hashes is packed in another way, and read in the same.
func TestLongPrompts(t *testing.T) {
	dir := t.TempDir()
	f := open(t, fileConfig(filepath.Join(dir, "t")))
	want := full(60000)
	if err := f.Write(t.Context(), []*trace.Record{want}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "t.000000.jsonl.gz")
	got, ok, err := trace.Decode(bytes.TrimSpace(members(t, path)[0]))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if diff := cmp.Diff(want.Request, got.Request); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if size, most := info.Size(), int64(10*len(want.Request.Replay.Hashes)); size > most {
		t.Errorf("%d bytes, want at most ten for each hash, %d", size, most)
	}
}

// Lines stay in their order whichever way they are packed: long prompts and short ones take
// turns here, in pieces that are packed at once, in one that is not full, and over segments.
func TestLongPromptsAmongShortOnes(t *testing.T) {
	dir := t.TempDir()
	c := fileConfig(filepath.Join(dir, "t"))
	c.RollBytes = 1<<20 - 1
	f := open(t, c)
	var want, got []string
	add := func(r *trace.Record) {
		r.Request.RequestID = strconv.Itoa(len(want))
		want = append(want, r.Request.RequestID)
		if err := f.Write(t.Context(), []*trace.Record{r}); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		for range 3 {
			add(full(60000))
		}
		for range 100 {
			add(full(60))
		}
	}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, name := range files(t, dir) {
		parts := members(t, filepath.Join(dir, name))
		most = max(most, len(parts))
		for _, lines := range parts {
			got = append(got, ids(t, lines, false)...)
		}
	}
	same(t, "records", got, want...)
	if n := len(files(t, dir)); n < 3 || most < 3 {
		t.Errorf("%d segments of up to %d members, want three at least", n, most)
	}
}

// A member is what came until the buffer was full, or the time was over.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := fileConfig(filepath.Join(dir, "t"))
		c.BufferBytes = 300 // of two lines, each of more than 100
		f := open(t, c)
		bus := trace.NewBus(1, discard, f)
		publish := func(ids ...string) {
			for _, id := range ids {
				bus.Publish(row(id))
				synctest.Wait()
			}
		}
		at := func(want ...string) {
			t.Helper()
			var got []string
			for _, m := range members(t, filepath.Join(dir, "t.000000.jsonl.gz")) {
				got = append(got, strings.Join(ids(t, m, false), ""))
			}
			same(t, "members", got, want...)
		}
		publish("a")
		at()
		publish("b", "c", "d")
		at("abc")
		time.Sleep(time.Second - time.Millisecond)
		synctest.Wait()
		at("abc")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		at("abc", "d")
		time.Sleep(10 * time.Second) // nothing comes, and nothing is written
		synctest.Wait()
		publish("e")
		at("abc", "d")
		if err := bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		at("abc", "d", "e")
		b, _ := os.ReadFile(filepath.Join(dir, "t.000000.jsonl.gz"))
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(all, []byte(`{"timestamp":11000,`)) {
			t.Errorf("no line is 11 s old: %s", all)
		}
		same(t, "all", ids(t, all, false), "a", "b", "c", "d", "e")
	})
}

func TestSegmentWithoutRecordsGoes(t *testing.T) {
	dir := t.TempDir()
	f := open(t, fileConfig(filepath.Join(dir, "t")))
	same(t, "open", files(t, dir), "t.000000.jsonl.gz")
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "closed", files(t, dir))
}

func TestPlain(t *testing.T) {
	for _, tc := range []struct{ name, before, kept string }{
		{"new", "", ""},
		{"goes on", "{\"a\":1}\n", "{\"a\":1}\n"},
		{"last line without end", "{\"a\":1}\n{\"b\":2}", "{\"a\":1}\n{\"b\":2}\n"},
		{"torn", "{\"a\":1}\n{\"b\":2,\"c", "{\"a\":1}\n"},
		{"torn at once", "{\"b\"", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "below", "trace.jsonl")
			if tc.before != "" {
				if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(tc.before), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			c := fileConfig(path)
			c.Plain = true
			f := open(t, c)
			write(t, f, "a", "b")
			if b, _ := os.ReadFile(path); string(b) != tc.kept {
				t.Errorf("before anything is written: %q, want %q", b, tc.kept)
			}
			if err := f.Tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			write(t, f, "c")
			if err := f.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil || !bytes.HasPrefix(b, []byte(tc.kept)) {
				t.Fatalf("%q, %v", b, err)
			}
			same(t, "records", ids(t, b[len(tc.kept):], false), "a", "b", "c")
		})
	}
}

func TestFileDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []trace.FileConfig{
		{Path: filepath.Join(dir, "file", "trace")},
		{Path: dir, Plain: true},
	} {
		if f, err := trace.OpenFile(c); err == nil {
			t.Errorf("%+v opens: %v", c, f)
		}
	}
}

func TestStream(t *testing.T) {
	var out bytes.Buffer
	s := trace.NewStream(&out)
	write(t, s, "a", "b")
	same(t, "records", ids(t, out.Bytes(), true), "a", "b")

	broken := trace.NewStream(brokenPipe{})
	err := broken.Write(t.Context(), []*trace.Record{row("a"), row("b")})
	if lost, ok := errors.AsType[*trace.Lost](err); !ok || lost.Records != 2 {
		t.Errorf("got %v, want 2 lost", err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func Example() {
	bus := trace.NewBus(1024, discard, trace.NewStream(os.Stdout))
	bus.Publish(&trace.Record{
		Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 1790000004250, Source: trace.SourceDynamo,
		Agent:   &trace.AgentContext{SessionID: "bugfix-7:tester", ParentSessionID: "bugfix-7:lead", InputTrigger: "tool_result"},
		Request: &trace.Request{RequestID: "5d9f2a60", Replay: trace.NewReplay([]uint32{1, 2, 3, 4, 5}, 2)},
	})
	if err := bus.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000004250,"event_source":"dynamo","agent_context":{"session_id":"bugfix-7:tester","parent_session_id":"bugfix-7:lead","input_trigger":"tool_result"},"request":{"request_id":"5d9f2a60","replay":{"trace_block_size":2,"input_length":5,"input_sequence_hashes":[10773075109927122010,5890102321129957602,2656991839890933969]}}}
}
