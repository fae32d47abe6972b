package logs

import (
	"bytes"
	"io"
	"os"
)

// Terminal says whether lines that are written there are for somebody who looks on, and
// whose screen knows colours: not where NO_COLOR is set (https://no-color.org), nor where
// TERM is dumb.
func Terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// colours of levels: grey, blue, green, yellow and red.
var colours = map[string]string{"TRACE": "90", "DEBUG": "34", "INFO": "32", "WARN": "33", "ERROR": "31"}

// painter colours the level of lines for people, and makes their time pale. Each write
// is one line, which begins with these two.
type painter struct{ out io.Writer }

// Write implements io.Writer.
func (p painter) Write(line []byte) (int, error) {
	before, rest, ok := bytes.Cut(line, []byte(" level="))
	level, rest, ends := bytes.Cut(rest, []byte(" "))
	colour := colours[string(level)]
	if !ok || !ends || colour == "" {
		return p.out.Write(line)
	}
	b := make([]byte, 0, len(line)+20)
	b = append(append(append(b, "\x1b[2m"...), before...), "\x1b[0m level=\x1b["...)
	b = append(append(append(b, colour...), 'm'), level...)
	b = append(append(b, "\x1b[0m "...), rest...)
	if _, err := p.out.Write(b); err != nil {
		return 0, err
	}
	return len(line), nil
}
