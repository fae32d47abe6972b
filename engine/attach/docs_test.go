package attach_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/attach"
)

// The page for operators has every key, and none that there is not.
func TestDocumentedKeys(t *testing.T) {
	text, err := os.ReadFile("../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Keys\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var told []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-zA-Z_.]+)`").FindAllStringSubmatch(cells[1], -1) {
			told = append(told, m[1])
		}
	}
	want := append(attach.KeyNames(), "headers.NAME")
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("the page has\n%v, want\n%v", told, want)
	}
}
