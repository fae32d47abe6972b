package workload_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/dynago/dynago/bench/workload"
)

func small() *workload.Corpus {
	return workload.Agents{Sessions: 5, Turns: 2, Workers: 3}.Corpus()
}

// open writes bytes to a file and opens it.
func open(t testing.TB, file []byte) (*workload.Corpus, error) {
	path := filepath.Join(t.TempDir(), "corpus.bin")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return workload.Open(path)
}

func written(t testing.TB, c *workload.Corpus) []byte {
	var file bytes.Buffer
	if n, err := c.WriteTo(&file); err != nil || n != int64(file.Len()) {
		t.Fatalf("wrote %d of %d bytes: %v", n, file.Len(), err)
	}
	return file.Bytes()
}

func TestFileHoldsTheCorpus(t *testing.T) {
	want := small()
	path := filepath.Join(t.TempDir(), "corpus.bin")
	if err := want.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := workload.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Workers != want.Workers || !reflect.DeepEqual(got.Ops, want.Ops) || !reflect.DeepEqual(got.Locals, want.Locals) || !reflect.DeepEqual(got.Blocks, want.Blocks) {
		t.Error("the corpus is another one after it was written and read")
	}
	if err := got.Close(); err != nil || got.Ops != nil {
		t.Errorf("close: %v", err)
	}
}

// The layout is what bench/corpus/README.md tells others.
func TestFileIsAsDescribed(t *testing.T) {
	c := small()
	file := written(t, c)
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(file[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(file[at:]) }
	if string(file[:8]) != "KVHIST01" || u64(8) != 3 || u64(16) != uint64(len(c.Ops)) || u64(24) != uint64(len(c.Locals)) || u64(32) != uint64(len(c.Blocks)) {
		t.Fatalf("header %x", file[:40])
	}
	locals := 40 + 32*len(c.Ops)
	blocks := locals + 8*len(c.Locals)
	if len(file) != blocks+16*len(c.Blocks) {
		t.Fatalf("%d bytes, want %d", len(file), blocks+16*len(c.Blocks))
	}
	extended := 0
	for i, op := range c.Ops {
		at := 40 + 32*i
		if file[at] != byte(op.Kind) || u32(at+4) != op.Worker || u32(at+8) != op.Time || u32(at+12) != op.N || u64(at+16) != op.First || u64(at+24) != uint64(op.Parent) {
			t.Fatalf("operation %d %x, want %+v", i, file[at:at+32], op)
		}
		if op.Kind == workload.Query {
			if got := u64(locals + 8*int(op.First)); got != uint64(c.Prompt(op)[0]) {
				t.Fatalf("operation %d asks for %x", i, got)
			}
			continue
		}
		if op.Kind == workload.Extend {
			extended++
		}
		if first := c.Event(op).Blocks[0]; u64(blocks+16*int(op.First)) != uint64(first.Engine) || u64(blocks+16*int(op.First)+8) != uint64(first.Local) {
			t.Fatalf("operation %d stores %x", i, file[blocks+16*int(op.First):][:16])
		}
	}
	if extended == 0 {
		t.Error("no block is stored below another one")
	}
}

func TestBrokenFilesAreRefused(t *testing.T) {
	good := written(t, small())
	patched := func(at int, b ...byte) []byte {
		file := bytes.Clone(good)
		copy(file[at:], b)
		return file
	}
	full := bytes.Repeat([]byte{0xff}, 8)
	for name, file := range map[string][]byte{
		"empty":                        nil,
		"no corpus":                    bytes.Repeat([]byte("x"), 64),
		"cut off":                      good[:len(good)-1],
		"too long":                     append(bytes.Clone(good), 0),
		"no workers":                   patched(8, make([]byte, 8)...),
		"more operations than bytes":   patched(16, full...),
		"more blocks than bytes":       patched(32, full...),
		"unknown operation":            patched(40, 9),
		"worker that does not exist":   patched(44, 3),
		"hashes that do not exist":     patched(56, full...),
		"more hashes than there are":   patched(52, full[:4]...),
		"first hash within, last past": patched(56, binary.LittleEndian.AppendUint64(nil, uint64(len(small().Locals)))...),
	} {
		if _, err := open(t, file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := workload.Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a file that is not there")
	}
}

// Whatever is opened can be replayed.
func FuzzOpen(f *testing.F) {
	f.Add(written(f, workload.Agents{Sessions: 1, Turns: 1, Workers: 1}.Corpus()))
	f.Add(written(f, &workload.Corpus{Workers: 2}))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := open(t, file)
		if err != nil {
			return
		}
		for _, op := range c.Ops {
			n := 0
			if op.Kind == workload.Query {
				n = len(c.Prompt(op))
			} else {
				n = len(c.Event(op).Blocks)
			}
			if n != int(op.N) {
				t.Fatalf("operation of %d hashes has %d", op.N, n)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
