package files_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/files"
)

// row is the line of a request, as files have it.
func row(id string) string {
	return fmt.Sprintf(`{"timestamp":1,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":5,"request":{"request_id":%q}}}`+"\n", id)
}

func bare(id string) string {
	return fmt.Sprintf(`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":5,"request":{"request_id":%q}}`+"\n", id)
}

func gz(t testing.TB, members ...string) string {
	t.Helper()
	var b bytes.Buffer
	for _, m := range members {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, m); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// read returns the ids of all requests, and what was complained about.
func read(t testing.TB, paths ...string) (ids, complaints []string) {
	t.Helper()
	for r, err := range files.Read(paths, func(err error) { complaints = append(complaints, err.Error()) }) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.RequestID())
	}
	return ids, complaints
}

func TestRead(t *testing.T) {
	torn := gz(t, row("a"), row("b")+row("c"))
	for _, tc := range []struct {
		name, text string
		want       string // ids
		complaint  string
	}{
		{"wrapped", row("a") + row("b"), "a b", ""},
		{"bare", bare("a") + row("b"), "a b", ""},
		{"last line left open", row("a") + strings.TrimSpace(row("b")), "a b", ""},
		{"torn line", row("a") + row("b")[:40], "a", "line 2 is passed over: it is torn"},
		{"nothing", "", "", ""},
		{"blank lines and other things", "\n  \n[1]\n\"x\"\n7\n" + row("a") + "null\n", "a", ""},
		{"other schemas", `{"schema":"somebody.else.v1","event_type":"request_end"}` + "\n" + row("a"), "a", ""},
		{"older schema", strings.Replace(row("a"), "dynamo.request.trace.v1", "dynamo.agent.trace.v1", 1), "a", ""},
		{"no JSON", row("a") + "{\"event\":{oh}}\n" + row("b"), "a b", "line 2 is passed over"},
		{"wrong type", strings.Replace(row("a"), "5", `"five"`, 1) + row("b"), "b", "line 1 is passed over"},
		{"one member", gz(t, row("a")+row("b")), "a b", ""},
		{"many members", gz(t, row("a"), row("b"), row("c")), "a b c", ""},
		{"line over two members", gz(t, row("a")[:30], row("a")[30:]), "a", ""},
		{"torn member", torn[:len(torn)-20], "a", "what follows is torn"},
		{"torn header", torn[:len(gz(t, row("a")))+5], "a", "what follows is torn"},
		{"torn at once", torn[:6], "", "its beginning is torn"},
		{"zeros behind", torn + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "a b c", "what follows is torn"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "x.jsonl"), tc.text)
			ids, complaints := read(t, path)
			if got := strings.Join(ids, " "); got != tc.want {
				t.Errorf("read %q, want %q", got, tc.want)
			}
			switch all := strings.Join(complaints, "\n"); {
			case tc.complaint == "" && all != "":
				t.Errorf("complains: %s", all)
			case !strings.Contains(all, tc.complaint), tc.complaint != "" && !strings.Contains(all, path):
				t.Errorf("complains %q, want %q and the path", all, tc.complaint)
			}
		})
	}
}

// However a file of members is cut, what stands in whole members is read, nothing is
// made up, and nothing comes twice.
func TestCut(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var members []string
		ends, whole := []int{0}, []int{0}
		for i, n := range rapid.SliceOfN(rapid.IntRange(1, 4), 1, 5).Draw(rt, "lines") {
			text := ""
			for j := range n {
				text += row(fmt.Sprint(i, ".", j))
			}
			members = append(members, text)
			ends = append(ends, len(gz(t, members...)))
			whole = append(whole, whole[i]+n)
		}
		file := gz(t, members...)
		cut := rapid.IntRange(0, len(file)).Draw(rt, "cut")
		ids, complaints := read(t, write(t, filepath.Join(t.TempDir(), "x.gz"), file[:cut]))
		all, _ := read(t, write(t, filepath.Join(t.TempDir(), "y.gz"), file))
		at, exact := slices.BinarySearch(ends, cut)
		if !exact {
			at--
		}
		if len(ids) < whole[at] || !slices.Equal(ids, all[:len(ids)]) {
			rt.Fatalf("cut at %d of %d: %v, want at least %v", cut, len(file), ids, all[:whole[at]])
		}
		if exact != (len(complaints) == 0) && cut > 1 {
			rt.Fatalf("cut at %d, members end at %v: complaints %q", cut, ends, complaints)
		}
	})
}

// A source is what a decoder of its own can read to the end.
func TestSource(t *testing.T) {
	text := row("a") + row("b")
	torn := gz(t, text, text)
	for name, file := range map[string]string{"plain": text + `{"to`, "compressed": gz(t, text, `{"torn`), "torn": torn[:len(torn)-12]} {
		source, err := files.Open(write(t, filepath.Join(t.TempDir(), name), file), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		got, err := io.ReadAll(source)
		if err != nil || !strings.HasPrefix(string(got), text) || got[len(got)-1] != '\n' {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if !strings.HasSuffix(source.Name(), name) {
			t.Errorf("a source of %s calls itself %q", name, source.Name())
		}
	}
}

// A line that is too long is passed over, and does not stay in memory.
func TestLongLine(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "x.jsonl"), row("a")+`{"event":"`+strings.Repeat("x", 65<<20)+"\"}\n"+row("b"))
	ids, complaints := read(t, path)
	if !slices.Equal(ids, []string{"a", "b"}) || len(complaints) != 1 || !strings.Contains(complaints[0], "line 2 is passed over: it is longer than 64 MiB") {
		t.Errorf("%v, %q", ids, complaints)
	}
}

func TestFind(t *testing.T) {
	directory := t.TempDir()
	for _, name := range []string{"a.jsonl", "b.jsonl.gz", "c.json", "run.000000.jsonl.gz", "run.000001.jsonl.gz", "run.1000000.jsonl.gz", "run.01.jsonl.gz", "run.x00000.jsonl.gz", "runaway.000000.jsonl.gz"} {
		write(t, filepath.Join(directory, name), "")
	}
	if err := os.Mkdir(filepath.Join(directory, "in.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(directory, "in.jsonl", "d.jsonl"), "")
	for _, tc := range []struct{ names, want string }{
		{"a.jsonl", "a.jsonl"},
		{"c.json", "c.json"},
		{"a.jsonl ./a.jsonl b.jsonl.gz a.jsonl", "a.jsonl b.jsonl.gz"},
		{"[ab].*", "a.jsonl b.jsonl.gz"},
		{"run", "run.000000.jsonl.gz run.000001.jsonl.gz run.1000000.jsonl.gz"},
		{"run.jsonl", "run.000000.jsonl.gz run.000001.jsonl.gz run.1000000.jsonl.gz"},
		{"run.jsonl.gz", "run.000000.jsonl.gz run.000001.jsonl.gz run.1000000.jsonl.gz"},
		{"in.jsonl", "in.jsonl/d.jsonl"},
		{".", "a.jsonl b.jsonl.gz run.000000.jsonl.gz run.000001.jsonl.gz run.01.jsonl.gz run.1000000.jsonl.gz run.x00000.jsonl.gz runaway.000000.jsonl.gz"},
	} {
		var names []string
		for _, name := range strings.Fields(tc.names) {
			names = append(names, directory+"/"+name)
		}
		got, err := files.Find(names...)
		if err != nil {
			t.Errorf("%s: %v", tc.names, err)
			continue
		}
		for i := range got {
			got[i], _ = filepath.Rel(directory, got[i])
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: found %v, want %s", tc.names, got, tc.want)
		}
	}
	_, err := files.Find(filepath.Join(directory, "a.jsonl"), filepath.Join(directory, "none"))
	if missing, ok := errors.AsType[*files.MissingError](err); !ok || missing.Name != filepath.Join(directory, "none") {
		t.Errorf("of a file that is not there: %v", err)
	}
	if _, err := files.Find("a["); err == nil || !strings.Contains(err.Error(), `"a[" is no pattern`) {
		t.Errorf("of a bad pattern: %v", err)
	}
}

// What the sink writes is what is read, while it is written and afterwards.
func TestFollow(t *testing.T) {
	for _, plain := range []bool{false, true} {
		prefix := filepath.Join(t.TempDir(), "run")
		follower := files.Follow(func(err error) { t.Error(err) }, prefix)
		next := func() string {
			t.Helper()
			var ids []string
			if err := follower.Next(func(r files.Row) { ids = append(ids, r.RequestID()) }); err != nil {
				t.Fatal(err)
			}
			return strings.Join(ids, " ")
		}
		if err := follower.Next(func(files.Row) {}); !errorIsMissing(err) {
			t.Errorf("before there is a file: %v", err)
		}
		sink, err := trace.OpenFile(trace.FileConfig{Path: prefix, Plain: plain, BufferBytes: 1 << 20, FlushInterval: time.Hour, RollBytes: 1 << 20, RollLines: 3})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		var all, read []string
		for i := range 10 {
			id := fmt.Sprint("r", i)
			all = append(all, id)
			if err := sink.Write(ctx, []*trace.Record{{Schema: trace.Schema, EventType: trace.RequestEnd, Request: &trace.Request{RequestID: id}}}); err != nil {
				t.Fatal(err)
			}
			if i%4 == 1 { // in the middle of a segment, and at the end of one
				if err := sink.Tick(ctx); err != nil {
					t.Fatal(err)
				}
				got := next()
				read = append(read, strings.Fields(got)...)
				if want := strings.Join(all, " "); strings.Join(read, " ") != want {
					t.Errorf("after %d records: read %v, want %s", i+1, read, want)
				}
				if again := next(); again != "" {
					t.Errorf("read again: %s", again)
				}
			}
		}
		if err := sink.Close(ctx); err != nil {
			t.Fatal(err)
		}
		read = append(read, strings.Fields(next())...)
		if !slices.Equal(read, all) {
			t.Errorf("followed %v, want %v", read, all)
		}
		paths, err := files.Find(prefix)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range files.Read(paths, func(err error) { t.Error(err) }) {
			if err != nil || r.RequestID() != all[0] {
				t.Fatalf("%v, %v, want %s", r.RequestID(), err, all[0])
			}
			all = all[1:]
		}
		if len(all) > 0 {
			t.Errorf("not read: %v", all)
		}
	}
}

// A file that takes the place of another is read from its beginning.
func TestFollowReplaced(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "x.jsonl"), row("a")+row("b"))
	follower := files.Follow(nil, path)
	var ids []string
	for range 2 {
		if err := follower.Next(func(r files.Row) { ids = append(ids, fmt.Sprint(r.RequestID(), r.Line)) }); err != nil {
			t.Fatal(err)
		}
		write(t, path, row("c"))
	}
	if !slices.Equal(ids, []string{"a1", "b2", "c1"}) {
		t.Errorf("followed %v", ids)
	}
}

func errorIsMissing(err error) bool {
	_, ok := errors.AsType[*files.MissingError](err)
	return ok
}

// However the bytes of a file arrive, each record is told once and in order.
func TestFollowPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var members, all []string
		for i := range rapid.IntRange(1, 6).Draw(rt, "rows") {
			all = append(all, fmt.Sprint(i))
			members = append(members, row(fmt.Sprint(i)))
		}
		text := strings.Join(members, "")
		if rapid.Bool().Draw(rt, "compressed") {
			text = gz(t, members...)
		}
		path := filepath.Join(t.TempDir(), "x.jsonl")
		follower := files.Follow(func(err error) { rt.Error(err) }, path)
		var got []string
		for at := 0; at < len(text); {
			at = min(len(text), at+rapid.IntRange(1, 200).Draw(rt, "bytes"))
			write(t, path, text[:at])
			if err := follower.Next(func(r files.Row) { got = append(got, r.RequestID()) }); err != nil {
				rt.Fatal(err)
			}
		}
		if !slices.Equal(got, all) {
			rt.Fatalf("followed %v, want %v", got, all)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(row("a") + bare("b")))
	f.Add([]byte(gz(f, row("a"), bare("b"))))
	f.Add([]byte(`{"event":{"schema":"dynamo.request.trace.v1","request":{"replay":{"input_sequence_hashes":[18446744073709551615]}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := write(t, filepath.Join(t.TempDir(), "x"), string(text))
		for r, err := range files.Read([]string{path}, nil) {
			if err != nil || r.Record == nil || r.Schema != trace.Schema {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if err := files.Follow(nil, path).Next(func(files.Row) {}); err != nil && len(text) > 1 && text[0] != 0x1f {
			t.Fatal(err)
		}
	})
}
