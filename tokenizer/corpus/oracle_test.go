//go:build e2e

package corpus_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
)

const (
	oracleDir    = "../../build/oracle"
	requirements = "testdata/requirements.txt"
)

// question is a line of input of testdata/oracle.py.
type question struct {
	Library    string         `json:"library"`
	Vocabulary map[string]any `json:"vocabulary"`
	Encode     []string       `json:"encode"`
	Special    []string       `json:"special"`
	// Again is of how many of the first texts the ids are decoded too, first.
	Again  int        `json:"again"`
	Decode [][]uint32 `json:"decode"`
}

// answer is what the real library makes of a question: ids of the texts, ids of
// those with special tokens around, and texts with and without special tokens.
type answer struct {
	Encode  [][]uint32  `json:"encode"`
	Special [][]uint32  `json:"special"`
	Decode  [][2]string `json:"decode"`
	// Seconds of CPU time that encoding took.
	Seconds float64 `json:"seconds"`
}

// ask puts a question to the real library.
func ask(t testing.TB, q question) answer {
	t.Helper()
	python, err := installOracle()
	if err != nil {
		t.Fatal(err)
	}
	// Lists that are null would be no lists to Python.
	q.Encode, q.Special, q.Decode = append([]string{}, q.Encode...), append([]string{}, q.Special...), append([][]uint32{}, q.Decode...)
	line, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/oracle.py")
	cmd.Stdin = bytes.NewReader(append(line, '\n'))
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("oracle: %v\n%s", err, problems.String())
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("oracle: %v", err)
	}
	if len(a.Encode) != len(q.Encode) || len(a.Special) != len(q.Special) || len(a.Decode) != q.Again+len(q.Decode) {
		t.Fatalf("oracle: %d, %d and %d answers to %d, %d and %d questions", len(a.Encode), len(a.Special), len(a.Decode), len(q.Encode), len(q.Special), q.Again+len(q.Decode))
	}
	return a
}

// installOracle installs the pinned libraries, unless they are already, and
// returns the Python that has them. Nothing needs it as long as all is equal.
var installOracle = sync.OnceValues(func() (python string, err error) {
	dir, err := filepath.Abs(oracleDir)
	if err != nil {
		return "", err
	}
	python = filepath.Join(dir, "bin", "python")
	pins, err := os.ReadFile(requirements)
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(dir, ".pins")
	installed, err := os.ReadFile(stamp)
	if err == nil && bytes.Equal(installed, pins) {
		return python, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, argv := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", requirements},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("oracle: %s: %w\n%s", argv, err, out)
		}
	}
	return python, os.WriteFile(stamp, pins, 0o644)
})
