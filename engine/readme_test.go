package engine_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// quirks is how many lines the table in the README has.
const quirks = 37

var (
	quirkRow  = regexp.MustCompile(`^\| (\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$`)
	quirkTest = regexp.MustCompile("^`([a-z/]+) (Test[A-Za-z0-9_]+)`$")
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	quirkName = regexp.MustCompile(`^TestQuirk(\d+)`)
)

// The table of quirks names tests that exist, and all those that say that they are of
// a line of it.
func TestTableOfQuirks(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	have := tests(t)
	listed := map[string]int{}
	row := 0
	for line := range strings.Lines(string(text)) {
		m := quirkRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if row++; m[1] != strconv.Itoa(row) {
			t.Errorf("line %s of the table stands at %d", m[1], row)
		}
		for ref := range strings.SplitSeq(m[2], ", ") {
			r := quirkTest.FindStringSubmatch(ref)
			switch {
			case r == nil:
				t.Errorf("line %d: %q names no test", row, ref)
			case !slices.Contains(have[r[1]], r[2]):
				t.Errorf("line %d: there is no %s in %s", row, r[2], r[1])
			default:
				listed[r[1]+" "+r[2]] = row
			}
		}
	}
	if row != quirks {
		t.Errorf("the table has %d lines, want %d", row, quirks)
	}
	for pkg, names := range have {
		for _, name := range names {
			m := quirkName.FindStringSubmatch(name)
			if m == nil {
				continue
			}
			if n, err := strconv.Atoi(m[1]); err != nil || listed[pkg+" "+name] != n {
				t.Errorf("line %s does not name `%s %s`", m[1], pkg, name)
			}
		}
	}
}

// tests returns the names of the tests of all packages.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS("..")
	all := map[string][]string{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		for _, m := range testFunc.FindAllStringSubmatch(string(source), -1) {
			all[pkg] = append(all[pkg], m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
