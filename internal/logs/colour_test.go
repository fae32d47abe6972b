package logs_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/logs"
)

// Colours change nothing else of a line, and objects have none.
func TestColour(t *testing.T) {
	codes := regexp.MustCompile("\x1b\\[[0-9]+m")
	stamp := regexp.MustCompile(`time=\S+`)
	for level, colour := range map[slog.Level]string{logs.Trace: "90", slog.LevelDebug: "34", slog.LevelInfo: "32", slog.LevelWarn: "33", slog.LevelError: "31"} {
		say := func(l *slog.Logger) { l.Log(t.Context(), level, "it went level=well \x1b[5m", "n", 3) }
		plain, painted := written(logs.Config{}, logs.Trace, say), written(logs.Config{Colour: true}, logs.Trace, say)
		if !strings.HasPrefix(painted, "\x1b[2mtime=") || !strings.Contains(painted, "\x1b[0m level=\x1b["+colour+"m") || strings.Count(painted, "\x1b") != 4 {
			t.Errorf("%v: %q", level, painted)
		}
		if stamp.ReplaceAllString(codes.ReplaceAllString(painted, ""), "") != stamp.ReplaceAllString(plain, "") {
			t.Errorf("%q is not %q in colours", painted, plain)
		}
		if object := written(logs.Config{Colour: true, JSONL: true}, logs.Trace, say); strings.Contains(object, "\x1b") {
			t.Errorf("an object in colours: %q", object)
		}
	}
	if other := written(logs.Config{Colour: true}, logs.Trace, func(l *slog.Logger) { l.Log(t.Context(), logs.Off, "x") }); strings.Contains(other, "\x1b") {
		t.Errorf("a level that has no colour: %q", other)
	}
}

func TestTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if logs.Terminal(file) || logs.Terminal(new(bytes.Buffer)) {
		t.Error("a file, or memory, is taken for a terminal")
	}
	// A device of characters, as terminals are.
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if !logs.Terminal(device) {
		t.Error("a device of characters is not taken for a terminal")
	}
	t.Setenv("TERM", "dumb")
	if logs.Terminal(device) {
		t.Error("a dumb terminal gets colours")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if logs.Terminal(device) {
		t.Error("who wants no colours gets some")
	}
}
