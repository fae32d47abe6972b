//go:build e2e

package corpus_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// golden is what a real library made of the corpus with one vocabulary: a digest
// for each item, by section.
type golden map[string][]string

// sections, in the order of a golden file.
var sections = []string{"short", "spelling", "long", "special", "decode", "random"}

// digestIDs returns the count of the ids and 48 bits of their hash.
func digestIDs(ids []uint32) string {
	bytes := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		bytes = binary.LittleEndian.AppendUint32(bytes, id)
	}
	return fmt.Sprintf("%d %s", len(ids), digest(bytes))
}

// digestTexts returns the same of a text with and one without special tokens.
func digestTexts(texts [2]string) string {
	d := digest([]byte(texts[0]))
	if texts[1] == texts[0] {
		return d
	}
	return d + " " + digest([]byte(texts[1]))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawStdEncoding.EncodeToString(sum[:6])
}

func goldenPath(name string) string { return "testdata/" + name + ".golden" }

func readGolden(t *testing.T, name string) golden {
	t.Helper()
	text, err := os.ReadFile(goldenPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v; make vocabularies UPDATE=1 asks the real libraries and writes it", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g, section := golden{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "= "); ok {
			section = name
			continue
		}
		g[section] = append(g[section], line)
	}
	return g
}

func (g golden) write(t *testing.T, name string) {
	t.Helper()
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	for _, section := range sections {
		fmt.Fprintln(w, "=", section)
		for _, line := range g[section] {
			fmt.Fprintln(w, line)
		}
	}
	w.Flush()
	if err := os.WriteFile(goldenPath(name), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
