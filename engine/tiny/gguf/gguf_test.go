package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/tiny/gguf"
)

// sample has a value of every kind and a tensor of every type.
func sample() (gguf.Metadata, []gguf.Source) {
	m := gguf.Metadata{
		"general.architecture": "llama", "general.alignment": uint32(64),
		"a.u8": uint8(200), "a.i8": int8(-7), "a.u16": uint16(60000), "a.i16": int16(-30000),
		"a.u32": uint32(4_000_000_000), "a.i32": int32(-5), "a.u64": uint64(1) << 63, "a.i64": int64(-1) << 62,
		"a.f32": float32(1.5), "a.f64": 1e300, "a.yes": true, "a.no": false, "a.text": "", "a.long": strings.Repeat("ä", 300),
		"l.text": []string{"", "b", "c"}, "l.u8": []uint8{1, 2}, "l.i8": []int8{-1}, "l.u16": []uint16{1}, "l.i16": []int16{-1},
		"l.u32": []uint32{1, 2, 3}, "l.i32": []int32{-1, 2}, "l.u64": []uint64{1 << 63}, "l.i64": []int64{-1},
		"l.f32": []float32{0.5}, "l.f64": []float64{0.25, 4}, "l.bool": []bool{true, false, true}, "l.none": []int32{},
	}
	fill := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + n)
		}
		return b
	}
	return m, []gguf.Source{
		{Name: "vector", Type: gguf.F32, Shape: []int{3}, Data: fill(12)},
		{Name: "matrix", Type: gguf.F16, Shape: []int{3, 5}, Data: fill(30)},
		{Name: "blocks", Type: gguf.Q8_0, Shape: []int{2, 64}, Data: fill(2 * 2 * 34)},
		{Name: "brain", Type: gguf.BF16, Shape: []int{2, 1, 4, 2}, Data: fill(32)},
	}
}

func write(t testing.TB, m gguf.Metadata, tensors []gguf.Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gguf.Write(&b, m, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(file []byte) (*gguf.File, error) {
	return gguf.Read(bytes.NewReader(file), int64(len(file)))
}

func TestRoundTrip(t *testing.T) {
	m, tensors := sample()
	file := write(t, m, tensors)
	f, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, f.Metadata); diff != "" {
		t.Error(diff)
	}
	var back []gguf.Source
	for _, entry := range f.Tensors {
		data, err := f.Data(entry)
		if err != nil {
			t.Fatal(err)
		}
		if entry.Bytes() != int64(len(data)) {
			t.Errorf("%s: %d bytes, and they are said to be %d", entry.Name, len(data), entry.Bytes())
		}
		back = append(back, gguf.Source{Name: entry.Name, Type: entry.Type, Shape: entry.Shape, Data: data})
	}
	if diff := cmp.Diff(tensors, back); diff != "" {
		t.Error(diff)
	}
	if one, ok := f.Tensor("blocks"); !ok || one.Name != "blocks" {
		t.Errorf("blocks: %v %v", one, ok)
	}
	if one, ok := f.Tensor("none"); ok {
		t.Errorf("none: %v", one)
	}
	if again := write(t, f.Metadata, back); !bytes.Equal(again, file) {
		t.Error("written again it is another file")
	}
}

// Version 2 has the same layout.
func TestVersion2(t *testing.T) {
	m, tensors := sample()
	file := write(t, m, tensors)
	file[4] = 2
	f, err := read(file)
	if err != nil || len(f.Tensors) != len(tensors) || len(f.Metadata) != len(m) {
		t.Fatalf("%v %v", f, err)
	}
}

func TestAnyFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alignment := uint32(1) << rapid.IntRange(0, 8).Draw(t, "alignment")
		m := gguf.Metadata{"general.alignment": alignment}
		for key, v := range rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Int64())).Draw(t, "numbers") {
			m["n."+key] = v
		}
		for key, v := range rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.String())).Draw(t, "texts") {
			m["t."+key] = v
		}
		var tensors []gguf.Source
		for i := range rapid.IntRange(0, 6).Draw(t, "tensors") {
			kind := rapid.SampledFrom([]gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0}).Draw(t, "type")
			shape := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 4).Draw(t, "shape")
			if kind == gguf.Q8_0 {
				shape[len(shape)-1] *= 32
			}
			size, err := kind.Size(shape)
			if err != nil {
				t.Fatal(err)
			}
			tensors = append(tensors, gguf.Source{
				Name: fmt.Sprint(i, rapid.String().Draw(t, "name")), Type: kind, Shape: shape,
				Data: rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data"),
			})
		}
		var b bytes.Buffer
		if err := gguf.Write(&b, m, tensors); err != nil {
			t.Fatal(err)
		}
		f, err := read(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(m, f.Metadata, func(a, b any) bool { return reflect.DeepEqual(a, b) || isEmpty(a) && isEmpty(b) }) {
			t.Fatalf("%v\nwant %v", f.Metadata, m)
		}
		for i, entry := range f.Tensors {
			data, err := f.Data(entry)
			if want := tensors[i]; err != nil || entry.Name != want.Name || entry.Type != want.Type || !slices.Equal(entry.Shape, want.Shape) || !bytes.Equal(data, want.Data) {
				t.Fatalf("%v %v\nwant %v", entry, err, want)
			}
		}
		// Of a part of it nothing is read.
		if cut := rapid.IntRange(0, b.Len()-1).Draw(t, "cut"); len(tensors) > 0 && cut < b.Len()-int(alignment) {
			if _, err := read(b.Bytes()[:cut]); err == nil {
				t.Fatalf("%d bytes of %d are read", cut, b.Len())
			}
		}
	})
}

func isEmpty(v any) bool {
	return reflect.ValueOf(v).Kind() == reflect.Slice && reflect.ValueOf(v).Len() == 0
}

// raw builds a file field by field, so that each can be wrong.
type raw struct{ bytes.Buffer }

func (r *raw) put(values ...any) *raw {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			binary.Write(r, binary.LittleEndian, uint64(len(v)))
			r.WriteString(v)
		case []byte:
			r.Write(v)
		default:
			binary.Write(r, binary.LittleEndian, v)
		}
	}
	return r
}

// begin is a file's head with these numbers of tensors and keys.
func begin(tensors, keys uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.put(uint32(3), tensors, keys)
}

func TestErrors(t *testing.T) {
	whole := write(t, gguf.Metadata{"a": []string{"b"}}, []gguf.Source{{Name: "t", Type: gguf.F32, Shape: []int{8}, Data: make([]byte, 32)}})
	vector := func(name string, side uint64, kind uint32, offset uint64) []any {
		return []any{name, uint32(1), side, kind, offset}
	}
	space := make([]byte, 4096)
	for want, file := range map[string][]byte{
		"the file ends within its metadata: want a complete file":                                                            whole[:30],
		`begins with "PK\x03\x04": want a GGUF file, which begins with "GGUF"`:                                               []byte("PK\x03\x04...."),
		"GGUF version 4: want 2 or 3":                                                                                        []byte("GGUF\x04\x00\x00\x00"),
		"its numbers are big-endian: want a little-endian GGUF file":                                                         []byte("GGUF\x00\x00\x00\x03"),
		"tensor t: bytes 96 to 128 of a file of 127: want a complete file":                                                   whole[:127],
		"1152921504606846976 keys: want at most 65536":                                                                       begin(0, 1<<60).put(space).Bytes(),
		"1152921504606846976 tensors: want at most 170, since 4096 bytes are left":                                           begin(1<<60, 0).put(space).Bytes(),
		"a: want it once, and it is there twice":                                                                             begin(0, 2).put("a", uint32(0), uint8(1), "a", uint32(0), uint8(1)).Bytes(),
		"a: type 13: want 0 to 12":                                                                                           begin(0, 1).put("a", uint32(13)).Bytes(),
		"a: a list of lists: want one of texts or numbers":                                                                   begin(0, 1).put("a", uint32(9), uint32(9), uint64(1)).Bytes(),
		"key 0: a text of 1099511627776 bytes: want at most 16777216":                                                        begin(0, 1).put(uint64(1<<40), space).Bytes(),
		"general.alignment: 3: want a power of two, at most 1048576":                                                         begin(0, 1).put("general.alignment", uint32(4), uint32(3)).Bytes(),
		"general.alignment: x: want a power of two, at most 1048576":                                                         begin(0, 1).put("general.alignment", uint32(8), "x").Bytes(),
		"tensor 0: blk.0.attn_q.weight: type Q4_K: want F32, F16, BF16 or Q8_0":                                              begin(1, 0).put(vector("blk.0.attn_q.weight", 256, 12, 0)...).put(space).Bytes(),
		"tensor 0: t: type 77: want F32, F16, BF16 or Q8_0":                                                                  begin(1, 0).put(vector("t", 256, 77, 0)...).put(space).Bytes(),
		"tensor 0: t: rows of 33 numbers: want a multiple of 32 for Q8_0":                                                    begin(1, 0).put(vector("t", 33, 8, 0)...).put(space).Bytes(),
		"tensor 0: t: 0 dimensions: want 1 to 4":                                                                             begin(1, 0).put("t", uint32(0), space).Bytes(),
		"tensor 0: t: 5 dimensions: want 1 to 4":                                                                             begin(1, 0).put("t", uint32(5), space).Bytes(),
		"tensor 0: t: a side of 0: want 1 to 1099511627776":                                                                  begin(1, 0).put(vector("t", 0, 0, 0)...).put(space).Bytes(),
		"tensor 0: t: shape [1099511627776 1099511627776]: want sides of 1 or more, and less than 2305843009213693951 bytes": begin(1, 0).put("t", uint32(2), uint64(1<<40), uint64(1<<40), uint32(0), uint64(0), space).Bytes(),
		"tensor t: bytes 64 to 4398046511168 of a file of 4153: want a complete file":                                        begin(1, 0).put(vector("t", 1<<40, 0, 0)...).put(space).Bytes(),
		"tensor 0: t: offset 8: want a multiple of 32":                                                                       begin(1, 0).put(vector("t", 1, 0, 8)...).put(space).Bytes(),
		"tensor 0: t: offset 18446744073709551584: want a multiple of 32":                                                    begin(1, 0).put(vector("t", 1, 0, 1<<64-32)...).put(space).Bytes(),
		"tensor b: begins at byte 128, within tensor a: want each by itself":                                                 begin(2, 0).put(vector("a", 9, 0, 0)...).put(vector("b", 9, 0, 32)...).put(space).Bytes(),
		"tensor t: want it once, and it is there twice":                                                                      begin(2, 0).put(vector("t", 1, 0, 0)...).put(vector("t", 1, 0, 32)...).put(space).Bytes(),
		"tensor b: begins at byte 124, within tensor a: want each by itself":                                                 begin(2, 1).put("general.alignment", uint32(4), uint32(1)).put(vector("a", 1, 1, 0)...).put(vector("b", 1, 1, 1)...).put(space).Bytes(),
	} {
		if _, err := read(file); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// A list, a text or a table is not begun for which the file is too short.
func TestClaims(t *testing.T) {
	for name, file := range map[string]*raw{
		"bytes":      begin(0, 1).put("a", uint32(9), uint32(0), uint64(1<<40), make([]byte, 99)),
		"doubles":    begin(0, 1).put("a", uint32(9), uint32(12), uint64(1<<61+1), make([]byte, 99)),
		"texts":      begin(0, 1).put("a", uint32(9), uint32(8), uint64(1<<59), make([]byte, 99)),
		"a text":     begin(0, 1).put("a", uint32(8), uint64(1<<20), make([]byte, 99)),
		"keys":       begin(0, 1<<16),
		"no version": {},
	} {
		if _, err := read(file.Bytes()); err == nil || err.Error() != "the file ends within its metadata: want a complete file" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	one := gguf.Source{Name: "t", Type: gguf.F32, Shape: []int{1}, Data: make([]byte, 4)}
	for want, tc := range map[string]struct {
		m       gguf.Metadata
		tensors []gguf.Source
	}{
		"a: a value of type int: want a text, a boolean, a number of fixed size, or a slice of these": {m: gguf.Metadata{"a": 1}},
		"tensor t: want it once, and it is there twice":                                               {tensors: []gguf.Source{one, one}},
		"tensor t: 4 bytes: want 8 for F32 of shape [2]":                                              {tensors: []gguf.Source{{Name: "t", Type: gguf.F32, Shape: []int{2}, Data: make([]byte, 4)}}},
		"tensor t: 0 dimensions: want 1 to 4":                                                         {tensors: []gguf.Source{{Name: "t"}}},
		"tensor t: type Q5_0: want F32, F16, BF16 or Q8_0":                                            {tensors: []gguf.Source{{Name: "t", Type: 6, Shape: []int{32}}}},
	} {
		if err := gguf.Write(io.Discard, tc.m, tc.tensors); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	full := errors.New("full")
	if err := gguf.Write(failing{full}, nil, []gguf.Source{one}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The metadata can be read by itself, without lists that nobody asks for.
func TestReadMetadata(t *testing.T) {
	m, tensors := sample()
	file := write(t, m, tensors)
	got, err := gguf.ReadMetadata(bytes.NewReader(file), int64(len(file)), func(key string) bool { return key == "l.i32" })
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := got.Number("a.i16"); !ok || n != -30000 {
		t.Errorf("a.i16: %v %v", n, ok)
	}
	if n, ok := got.Number("a.text"); ok {
		t.Errorf("a.text is the number %v", n)
	}
	if got.Text("general.architecture") != "llama" || got.Text("a.u8") != "" {
		t.Error("texts are others")
	}
	if !got.Flag("a.yes", false) || got.Flag("a.no", true) || !got.Flag("a.text", true) {
		t.Error("flags are others")
	}
	if list, err := got.Numbers("l.i32"); err != nil || !slices.Equal(list, []float64{-1, 2}) {
		t.Errorf("l.i32: %v %v", list, err)
	}
	if list, err := got.Numbers("l.u32"); err != nil || len(list) != 0 {
		t.Errorf("l.u32 was not asked for: %v %v", list, err)
	}
	if list, err := got.Texts("l.text"); err != nil || len(list) != 0 {
		t.Errorf("l.text was not asked for: %v %v", list, err)
	}
	if list, err := got.Texts("absent"); err != nil || list != nil {
		t.Errorf("absent: %v %v", list, err)
	}
	for key, want := range map[string]string{"a.u8": "a.u8: want a list of numbers", "l.text": "l.text: want a list of numbers"} {
		if _, err := got.Numbers(key); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := got.Texts("l.i32"); err == nil || err.Error() != "l.i32: want a list of texts" {
		t.Error(err)
	}
}

// Whatever a file claims, reading it takes no more than a small multiple of what
// it holds, and what is returned can be used.
func FuzzRead(f *testing.F) {
	m, tensors := sample()
	f.Add(write(f, m, tensors))
	f.Add(write(f, nil, tensors[:1]))
	f.Add(write(f, gguf.Metadata{"a": []string{"b", "c"}}, nil))
	f.Add(begin(1<<60, 1<<60).Bytes())
	f.Add(begin(0, 1).put("a", uint32(9), uint32(8), uint64(1<<59)).Bytes())
	f.Add(begin(0, 1).put("a", uint32(9), uint32(12), uint64(1<<61+1)).Bytes())
	f.Add(begin(1, 0).put("t", uint32(2), uint64(1<<32), uint64(1<<32), uint32(0), uint64(0)).Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := read(file)
		runtime.ReadMemStats(&after)
		// A buffer of 64 KiB, and some for tables.
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<18+16*uint64(len(file)) {
			t.Errorf("%d bytes are allocated for a file of %d", n, len(file))
		}
		if err != nil {
			return
		}
		var back []gguf.Source
		total := int64(0)
		for _, entry := range got.Tensors {
			data, err := got.Data(entry)
			if err != nil {
				t.Fatal(err)
			}
			total += int64(len(data))
			back = append(back, gguf.Source{Name: entry.Name, Type: entry.Type, Shape: entry.Shape, Data: data})
		}
		if total > int64(len(file)) {
			t.Errorf("tensors of %d bytes in a file of %d", total, len(file))
		}
		again, err := read(write(t, got.Metadata, back))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range again.Tensors {
			if was, ok := got.Tensor(entry.Name); !ok || !slices.Equal(was.Shape, entry.Shape) || was.Type != entry.Type {
				t.Errorf("%v was %v", entry, was)
			}
		}
	})
}
