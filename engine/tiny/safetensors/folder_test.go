package safetensors_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/tiny/safetensors"
)

func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func one(t testing.TB, name string, data ...byte) string {
	t.Helper()
	return string(write(t, nil, safetensors.Source{Name: name, Type: "U8", Shape: []int{len(data)}, Data: data}))
}

const index = "model.safetensors.index.json"

func TestFolder(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"one file": {"model.safetensors": string(write(t, nil,
			safetensors.Source{Name: "a", Type: "U8", Shape: []int{1}, Data: []byte{1}},
			safetensors.Source{Name: "b", Type: "U8", Shape: []int{2}, Data: []byte{2, 3}}))},
		"several": {
			index:                `{"metadata": {"total_size": 3}, "weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}`,
			"x.safetensors":      one(t, "a", 1),
			"y.safetensors":      one(t, "b", 2, 3),
			"others.safetensors": "x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := safetensors.Open(folder(t, files))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got := f.Names(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("it has %v", got)
			}
			entry, ok := f.Tensor("b")
			if !ok {
				t.Fatal("there is no b")
			}
			if data, err := f.Data(entry); err != nil || !slices.Equal(data, []byte{2, 3}) {
				t.Errorf("b is %v %v", data, err)
			}
			if want := map[string]string{"one file": "model.safetensors", "several": "y.safetensors"}[name]; f.File("b") != want {
				t.Errorf("b is in %q, want %q", f.File("b"), want)
			}
			if _, ok := f.Tensor("c"); ok || f.File("c") != "" {
				t.Error("there is a c")
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if _, err := f.Data(entry); err == nil {
				t.Error("what is closed can be read")
			}
		})
	}
}

func TestFolderErrors(t *testing.T) {
	to := func(file string) map[string]string {
		return map[string]string{index: `{"weight_map": {"a": "` + file + `"}}`, "x.safetensors": one(t, "b", 1), "x.bin": "x"}
	}
	for want, files := range map[string]map[string]string{
		"no model.safetensors and no model.safetensors.index.json: want one of them":                                         {},
		"model.safetensors: the file ends within its header: want a complete file":                                           {"model.safetensors": "x"},
		index + ": weight_map: want the file of each tensor, and there is none":                                              {index: "{}"},
		"x.safetensors: tensor a: the index says that it is here, and it is not":                                             to("x.safetensors"),
		index + `: weight_map: tensor a: file "../x.safetensors": want the name of a .safetensors file in the same folder`:   to("../x.safetensors"),
		index + `: weight_map: tensor a: file "/x.safetensors": want the name of a .safetensors file in the same folder`:     to("/x.safetensors"),
		index + `: weight_map: tensor a: file "a/../x.safetensors": want the name of a .safetensors file in the same folder`: to("a/../x.safetensors"),
		index + `: weight_map: tensor a: file "..\\x.safetensors": want the name of a .safetensors file in the same folder`:  to(`..\\x.safetensors`),
		index + `: weight_map: tensor a: file "x.bin": want the name of a .safetensors file in the same folder`:              to("x.bin"),
		index + `: weight_map: tensor a: file "": want the name of a .safetensors file in the same folder`:                   to(""),
		index + ": json: ": {index: `{"weight_map": {"a": 1}}`},
	} {
		f, err := safetensors.Open(folder(t, files))
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	f, err := safetensors.Open(folder(t, map[string]string{index: `{"weight_map": {"a": "absent.safetensors"}}`}))
	if err == nil {
		f.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "absent.safetensors: no such file") {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := safetensors.Open(dir); err == nil || err.Error() != "model.safetensors: want a regular file" {
		t.Error(err)
	}
}

// An index leads to no file outside of its folder.
func FuzzIndex(f *testing.F) {
	f.Add(`{"metadata": {"total_size": 3}, "weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}`)
	f.Add(`{"weight_map": {"a": "../secret.safetensors"}}`)
	f.Add(`{"weight_map": {"a": "\u002e./secret.safetensors"}}`)
	dir := folder(f, map[string]string{"secret.safetensors": one(f, "a", 1)})
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "x.safetensors"), []byte(one(f, "b", 1)), 0o644); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(inner, index), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files, err := safetensors.Open(inner)
		if err != nil {
			return
		}
		defer files.Close()
		if names := files.Names(); !slices.Equal(names, []string{"b"}) {
			t.Errorf("it has %q", names)
		}
	})
}
