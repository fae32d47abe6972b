package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"

	"github.com/dynago/dynago/trace"
)

// maxLine is how long a line may be, in bytes. Longer ones are passed over.
const maxLine = 64 << 20

// Complain is told what a reader passes over, and where.
type Complain func(problem error)

// Row is a record and where it stands.
type Row struct {
	*trace.Record
	File string
	Line int // from 1 on
}

// Read yields the records of files, one file after the other. Lines that are no
// records are passed over in silence if nobody has meant them to be any (blank ones,
// other schemas), and with a complaint if somebody has. An error is one of the machine,
// and the last thing that is yielded.
func Read(paths []string, complain Complain) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, path := range paths {
			source, err := Open(path, complain)
			if err != nil {
				yield(Row{}, err)
				return
			}
			more := source.rows(yield)
			source.Close() //nolint:errcheck // it was only read
			if !more {
				return
			}
		}
	}
}

// Source is the plain text of one file, whole lines of it. A torn end is not part of it.
// It is an io.ReadCloser for those that decode lines by themselves.
type Source struct {
	file     *os.File
	lines    lines
	complain Complain
	rest     []byte // of the line that Read has begun
	number   int    // lines so far
	err      error
}

// Open opens a file, compressed by gzip, in one member or several, or not.
func Open(path string, complain Complain) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	s := &Source{file: file, complain: complain}
	in := bufio.NewReaderSize(file, 1<<16)
	s.lines.in = in
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		plain, err := gzip.NewReader(in)
		if err != nil {
			s.complain.about("%s: its beginning is torn: %w", path, err)
			s.lines.in, s.err = nil, io.EOF
			return s, nil
		}
		s.lines.in = bufio.NewReaderSize(plain, 1<<16)
	}
	return s, nil
}

func (c Complain) about(format string, args ...any) {
	if c != nil {
		c(fmt.Errorf(format, args...))
	}
}

// Name returns the path of the file.
func (s *Source) Name() string { return s.file.Name() }

// Close closes the file.
func (s *Source) Close() error { return s.file.Close() }

// Read implements io.Reader.
func (s *Source) Read(to []byte) (int, error) {
	if len(s.rest) == 0 {
		line, err := s.next()
		if err != nil {
			return 0, err
		}
		s.rest = append(append(s.rest[:0], line...), '\n')
	}
	n := copy(to, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// rows yields the records of the file, and says whether more are wanted.
func (s *Source) rows(yield func(Row, error) bool) bool {
	for {
		line, err := s.next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(Row{}, err)
			return false
		}
		record, ok, err := trace.Decode(line)
		switch {
		case err != nil:
			s.complain.about("%s, line %d is passed over: %w", s.Name(), s.number, err)
		case ok && !yield(Row{record, s.Name(), s.number}, nil):
			return false
		}
	}
}

// next returns the next whole line, which is good until the next call, or io.EOF.
func (s *Source) next() ([]byte, error) {
	for s.err == nil {
		line, err := s.lines.next()
		s.number++
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, errTooLong):
			s.complain.about("%s, line %d is passed over: it is longer than %d MiB", s.Name(), s.number, maxLine>>20)
			continue
		case errors.Is(err, io.EOF):
			s.err = io.EOF
			// Who writes files of one row may leave the last line open.
			if jsontext.Value(line).IsValid() {
				return line, nil
			}
			if len(bytes.TrimSpace(line)) > 0 {
				s.complain.about("%s, line %d is passed over: it is torn, as a writer leaves it that is killed", s.Name(), s.number)
			}
		case torn(err):
			s.err = io.EOF
			s.complain.about("%s ends before line %d, what follows is torn: %w", s.Name(), s.number, err)
		default:
			s.err = fmt.Errorf("trace: %s, line %d: %w", s.Name(), s.number, err)
		}
	}
	return nil, s.err
}

// torn says whether an error is about what a compressed file holds, rather than about
// the machine.
func torn(err error) bool {
	_, machine := errors.AsType[*fs.PathError](err)
	return !machine
}

var errTooLong = errors.New("line is too long")

// lines cuts a stream into lines.
type lines struct {
	in   *bufio.Reader
	line []byte // one that does not fit the buffer
}

// next returns the next line without its end, which is good until the next call. With
// an error comes what stands before it.
func (l *lines) next() ([]byte, error) {
	l.line = l.line[:0]
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.line)+len(part) > maxLine {
			long, l.line = true, l.line[:0]
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			if !long {
				l.line = append(l.line, part...)
			}
			continue
		}
		if err == nil && long {
			return nil, errTooLong
		}
		whole := part
		if len(l.line) > 0 {
			l.line = append(l.line, part...)
			whole = l.line
		}
		if long {
			whole = nil
		}
		return bytes.TrimSuffix(whole, []byte{'\n'}), err
	}
}
