package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine/tiny/safetensors"
)

func read(file []byte) (*safetensors.File, error) {
	return safetensors.Read(bytes.NewReader(file), int64(len(file)))
}

func write(t testing.TB, notes map[string]string, tensors ...safetensors.Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, notes, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// raw is a file with that header, and so many bytes behind it.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestAnyFile(t *testing.T) {
	widths := map[safetensors.Type]int{"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I8": 1, "BOOL": 1}
	kinds := slices.Sorted(maps.Keys(widths))
	rapid.Check(t, func(t *rapid.T) {
		notes := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "notes")
		var tensors []safetensors.Source
		for i := range rapid.IntRange(0, 6).Draw(t, "tensors") {
			kind := rapid.SampledFrom(kinds).Draw(t, "type")
			shape := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(t, "shape")
			size := widths[kind]
			for _, side := range shape {
				size *= side
			}
			tensors = append(tensors, safetensors.Source{
				Name: fmt.Sprint(i, rapid.String().Draw(t, "name")), Type: kind, Shape: shape,
				Data: rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "data"),
			})
		}
		var b bytes.Buffer
		if err := safetensors.Write(&b, notes, tensors); err != nil {
			t.Fatal(err)
		}
		file := b.Bytes()
		f, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(f.Notes, notes) {
			t.Fatalf("notes %v, want %v", f.Notes, notes)
		}
		if len(f.Tensors) != len(tensors) {
			t.Fatalf("%d tensors, want %d", len(f.Tensors), len(tensors))
		}
		for _, want := range tensors {
			entry, ok := f.Tensor(want.Name)
			if !ok {
				t.Fatalf("there is no %q", want.Name)
			}
			data, err := f.Data(entry)
			if err != nil || entry.Name != want.Name || entry.Type != want.Type || !slices.Equal(entry.Shape, want.Shape) || !bytes.Equal(data, want.Data) {
				t.Fatalf("%v %v\nwant %v", entry, err, want)
			}
		}
		if binary.LittleEndian.Uint64(file)%8 != 0 {
			t.Fatalf("the data begins at byte %d", 8+binary.LittleEndian.Uint64(file))
		}
		// Neither a part of it nor more than it is a file.
		if cut := rapid.IntRange(0, len(file)-1).Draw(t, "cut"); true {
			if _, err := read(file[:cut]); err == nil {
				t.Fatalf("%d bytes of %d are read", cut, len(file))
			}
		}
		if _, err := read(append(slices.Clone(file), 0)); err == nil {
			t.Fatal("a byte too many is read")
		}
	})
}

func TestErrors(t *testing.T) {
	one := `"dtype": "F32", "shape": [2], "data_offsets": `
	for want, file := range map[string][]byte{
		"the file ends within its header: want a complete file":                                                  []byte("abc"),
		"a header of 1152921504606846976 bytes: want at most 4 in a file of 12":                                  append(binary.LittleEndian.AppendUint64(nil, 1<<60), "{}  "...),
		"a header of 100000001 bytes: want at most 100000000 in a file of 100000108":                             append(binary.LittleEndian.AppendUint64(nil, 100_000_001), make([]byte, 100_000_100)...),
		"header: want a JSON object":                                                                             raw("[]", 0),
		"header: want nothing behind its JSON object":                                                            raw("{}{}", 0),
		"header: tensor a: dtype \"F4\": want one of the format's that take whole bytes, such as F32, F16, BF16": raw(`{"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}`, 1),
		"header: tensor a: want a shape, and there is none":                                                      raw(`{"a": {"dtype": "F32", "data_offsets": [0, 4]}}`, 4),
		"header: tensor a: data_offsets [0]: want where it begins and where it ends":                             raw(`{"a": {`+one+`[0]}}`, 8),
		"header: tensor a: data_offsets [0 4]: want 8 bytes for F32 of shape [2]":                                raw(`{"a": {`+one+`[0, 4]}}`, 4),
		"header: tensor a: data_offsets [9 1]: want 8 bytes for F32 of shape [2]":                                raw(`{"a": {`+one+`[9, 1]}}`, 8),
		"header: tensor a: shape [1099511627776 2]: want less than 1099511627776 numbers":                        raw(`{"a": {"dtype": "F32", "shape": [1099511627776, 2], "data_offsets": [0, 8]}}`, 8),
		"tensor b: begins at byte 4 of the data: want 8, where the one before it ends":                           raw(`{"a": {`+one+`[0, 8]}, "b": {`+one+`[4, 12]}}`, 12),
		"tensor a: begins at byte 8 of the data: want 0, where the one before it ends":                           raw(`{"a": {`+one+`[8, 16]}}`, 16),
		"tensor a: ends at byte 8 of 7: want a complete file":                                                    raw(`{"a": {`+one+`[0, 8]}}`, 7),
		"1 bytes behind the last tensor: want none":                                                              raw(`{"a": {`+one+`[0, 8]}}`, 9),
	} {
		if _, err := read(file); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	// What JSON itself or its values are not is said by the library around these.
	for file, want := range map[string][2]string{
		`{"a": 1}`: {"header: tensor a: ", ""},
		`{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}`:                           {"header: tensor a: ", "-1: want a whole number, 0 or more"},
		`{"a": {"dtype": "F32", "shape": [0.5], "data_offsets": [0, 4]}}`:                              {"header: tensor a: ", "0.5: want a whole number, 0 or more"},
		`{"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}`:                              {"header: tensor a: ", "1: want a whole number, 0 or more"},
		`{"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}}`:                                  {"header: tensor a: ", "want a list of numbers"},
		`{"a": {"dtype": "F32", "shape": [` + strings.Repeat("1,", 8) + `1], "data_offsets": [0, 4]}}`: {"header: tensor a: ", "want at most 8 numbers"},

		`{"a`:                        {"header: ", ""},
		`{"__metadata__": {"a": 1}}`: {"header: __metadata__: ", ""},
		`{"a": {` + one + `[0, 4]}, "a": {` + one + `[0, 4]}}`: {"header: ", ""},
	} {
		if _, err := read(raw(file, 4)); err == nil || !strings.HasPrefix(err.Error(), want[0]) || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: %v\nwant %s … %s", file, err, want[0], want[1])
		}
	}
}

func TestWriteErrors(t *testing.T) {
	four := safetensors.Source{Name: "a", Type: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}
	for want, tensors := range map[string][]safetensors.Source{
		"tensor a: want it once, under a name of its own":            {four, four},
		"tensor __metadata__: want it once, under a name of its own": {{Name: "__metadata__", Type: safetensors.F32}},
		`tensor a: dtype "Q8_0" is none of the format`:               {{Name: "a", Type: "Q8_0"}},
		"tensor a: 4 bytes: want 8 for F32 of shape [2]":             {{Name: "a", Type: safetensors.F32, Shape: []int{2}, Data: make([]byte, 4)}},
	} {
		if err := safetensors.Write(io.Discard, nil, tensors); err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	full := errors.New("full")
	if err := safetensors.Write(failing{full}, nil, []safetensors.Source{four}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Whatever a header claims, reading it takes no more than a small multiple of what
// the file holds, and what is returned can be used.
func FuzzRead(f *testing.F) {
	f.Add(write(f, map[string]string{"format": "pt"},
		safetensors.Source{Name: "a", Type: safetensors.F32, Shape: []int{2, 3}, Data: make([]byte, 24)},
		safetensors.Source{Name: "b", Type: safetensors.BF16, Shape: []int{}, Data: make([]byte, 2)},
		safetensors.Source{Name: "c", Type: safetensors.F16, Shape: []int{0}, Data: nil}))
	f.Add(raw(`{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "U8", "shape": [], "data_offsets": [8, 9]}}  `, 9))
	f.Add(raw(`{"a": {"shape": [[[[[[`, 4))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := read(file)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<18+32*uint64(len(file)) {
			t.Errorf("%d bytes are allocated for a file of %d", n, len(file))
		}
		if err != nil {
			return
		}
		var back []safetensors.Source
		total := 0
		for _, entry := range got.Tensors {
			data, err := got.Data(entry)
			if err != nil {
				t.Fatal(err)
			}
			total += len(data)
			back = append(back, safetensors.Source{Name: entry.Name, Type: entry.Type, Shape: entry.Shape, Data: data})
		}
		if total > len(file) {
			t.Errorf("tensors of %d bytes in a file of %d", total, len(file))
		}
		again, err := read(write(t, got.Notes, back...))
		if err != nil || len(again.Tensors) != len(got.Tensors) {
			t.Fatalf("%v %v", again, err)
		}
	})
}
