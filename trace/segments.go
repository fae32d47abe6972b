package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// segmentEnd is what the names of segments end with, behind a number.
const segmentEnd = ".jsonl.gz"

// segments are compressed files, one after the other. Each is a row of whole gzip
// members: what stands before a torn one can be read.
type segments struct {
	config FileConfig
	prefix string
	next   uint64 // number of the segment after this one
	out    *os.File
	path   string
	// bytes and lines are those of the segment, before compression and with those that
	// are held back; written is how long the file is.
	bytes, lines, written int64
	members               bytes.Buffer
	gz, coder             *gzip.Writer
	last                  *gzip.Writer // of the member that is not complete; nil: all are
	err                   error        // of completing one
}

func openSegments(c FileConfig) (file, error) {
	s := &segments{config: c, prefix: strings.TrimSuffix(strings.TrimSuffix(c.Path, segmentEnd), ".jsonl") + "."}
	var err error
	if s.next, err = nextSegment(s.prefix); err != nil {
		return nil, err
	}
	// The level does not matter much for lines that are so alike; the time does. Where
	// most of them are hashes, there is nothing to find, and digits only to pack.
	if s.gz, err = gzip.NewWriterLevel(&s.members, gzip.BestSpeed); err != nil {
		return nil, err
	}
	if s.coder, err = gzip.NewWriterLevel(&s.members, gzip.HuffmanOnly); err != nil {
		return nil, err
	}
	return s, s.begin()
}

// nextSegment returns the number after the largest one that a segment with this
// prefix has.
func nextSegment(prefix string) (next uint64, err error) {
	entries, err := os.ReadDir(filepath.Dir(prefix))
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(prefix))
		if !ok {
			continue
		}
		digits, ok := strings.CutSuffix(rest, segmentEnd)
		if !ok || len(digits) < 6 || digits[0] == '+' {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 63); err == nil {
			next = max(next, n+1)
		}
	}
	return next, nil
}

// begin creates a segment where there is nothing of its name yet.
func (s *segments) begin() error {
	for {
		path := fmt.Sprintf("%s%06d%s", s.prefix, s.next, segmentEnd)
		out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) {
			s.next++
			continue
		}
		if err != nil {
			return err
		}
		s.next++
		s.out, s.path, s.bytes, s.lines, s.written = out, path, 0, 0, 0
		return nil
	}
}

// full implements [file]: a line that is too much for a segment opens another one, and
// has it for itself if it is too long for any.
func (s *segments) full(length int) bool {
	return s.lines > 0 && (s.bytes+int64(length) > s.config.RollBytes || s.config.RollLines > 0 && s.lines >= s.config.RollLines)
}

// takes implements [file].
func (s *segments) takes(length int) {
	s.bytes += int64(length)
	s.lines++
}

// end implements [file]: it closes a segment. The next line begins another one.
func (s *segments) end() error {
	if s.out == nil {
		s.bytes, s.lines = 0, 0
		return nil
	}
	out := s.out
	s.out, s.bytes, s.lines = nil, 0, 0
	return settle(out)
}

// pack implements [file]: lines go on with the member that there is, if it is of their
// kind.
func (s *segments) pack(lines []byte) {
	to := s.gz
	if mostlyDigits(lines) {
		to = s.coder
	}
	if to != s.last {
		s.complete()
		to.Reset(&s.members)
		s.last = to
	}
	to.Write(lines) // what goes wrong is told when it is closed
}

// complete ends the last member.
func (s *segments) complete() {
	if s.last != nil {
		s.err = errors.Join(s.err, s.last.Close())
		s.last = nil
	}
}

// write implements [file]: it appends members.
func (s *segments) write() error {
	s.complete()
	members, err := s.members.Bytes(), s.err
	s.members.Reset()
	if s.err = nil; err != nil {
		return err
	}
	if s.out == nil {
		bytes, count := s.bytes, s.lines
		if err := s.begin(); err != nil {
			return err
		}
		s.bytes, s.lines = bytes, count
	}
	n, err := s.out.Write(members)
	if err == nil {
		s.written += int64(n)
		return nil
	}
	// Nothing may stand behind a torn member.
	if failure := s.out.Truncate(s.written); failure != nil {
		return errors.Join(err, failure, s.end())
	}
	_, failure := s.out.Seek(s.written, 0)
	return errors.Join(err, failure)
}

// mostlyDigits says whether three of four bytes are digits, by a look at some of them.
func mostlyDigits(b []byte) bool {
	const step = 61
	digits, seen := 0, 0
	for i := 0; i < len(b); i += step {
		if seen++; '0' <= b[i] && b[i] <= '9' {
			digits++
		}
	}
	return 4*digits > 3*seen
}

// close implements [file]. A segment that has got nothing leaves nothing behind.
func (s *segments) close() error {
	empty := s.out != nil && s.written == 0
	err := s.end()
	if empty {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
