package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/dynago/dynago/trace"
)

// Follower reads files that grow, and those that come beside them. It has no clock:
// who uses it calls [Follower.Next] from time to time.
type Follower struct {
	names    []string
	complain Complain
	places   map[string]*place
}

// place is how far one file has been read.
type place struct {
	offset int64 // in the file, where the next line or member begins
	line   int   // lines before that
}

// Follow returns a follower of what [Find] finds for names, now or later.
func Follow(complain Complain, names ...string) *Follower {
	return &Follower{names: names, complain: complain, places: map[string]*place{}}
}

// Next hands to yield the records that have been written since it was called last, in
// the order of their files. A line without its end, or a compressed member without its
// end, is left for the next call. It returns a [*MissingError] as long as there is
// nothing at all to follow.
func (f *Follower) Next(yield func(Row)) error {
	var missing error
	any := false
	for _, name := range f.names {
		paths, err := Find(name)
		if _, ok := errors.AsType[*MissingError](err); ok {
			missing = err
			continue
		}
		if err != nil {
			return err
		}
		any = true
		for _, path := range paths {
			if err := f.file(path, yield); err != nil {
				return err
			}
		}
	}
	if any {
		return nil
	}
	return missing
}

// file reads what is new of one file.
func (f *Follower) file(path string, yield func(Row)) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has been cleared away since it was found
	}
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	p := f.places[path]
	if p == nil || info.Size() < p.offset { // another file has taken its name
		p = new(place)
		f.places[path] = p
	}
	if info.Size() == p.offset {
		return nil
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, p.offset, info.Size()-p.offset), 1<<16)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return f.members(path, in, p, yield)
	}
	return f.plain(path, in, p, yield)
}

// plain reads lines up to the last one that has an end.
func (f *Follower) plain(path string, in *bufio.Reader, p *place, yield func(Row)) error {
	counted := &counter{in: in}
	l := lines{in: bufio.NewReaderSize(counted, 1<<16)}
	begin := p.offset
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) {
			return unlessEOF(path, err)
		}
		p.line++
		p.offset = begin + counted.n - int64(l.in.Buffered())
		f.row(path, p.line, line, err, yield)
	}
}

// members reads whole compressed members.
func (f *Follower) members(path string, in *bufio.Reader, p *place, yield func(Row)) error {
	counted := &counter{in: in}
	gz, err := gzip.NewReader(counted)
	if err != nil {
		return unlessEOF(path, err)
	}
	for {
		gz.Multistream(false)
		rows, read, err := f.member(path, gz, p.line)
		if err != nil {
			return unlessEOF(path, err)
		}
		for _, r := range rows {
			yield(r)
		}
		p.line += read
		p.offset += counted.n
		counted.n = 0
		if err := gz.Reset(counted); err != nil {
			return unlessEOF(path, err)
		}
	}
}

// member returns the rows of one member, and how many lines it has.
func (f *Follower) member(path string, gz io.Reader, before int) (rows []Row, read int, err error) {
	l := lines{in: bufio.NewReaderSize(gz, 1<<16)}
	for {
		line, err := l.next()
		if err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if len(line) > 0 || err == nil {
			read++
			f.row(path, before+read, line, err, func(r Row) { rows = append(rows, r) })
		}
		if errors.Is(err, io.EOF) {
			return rows, read, nil
		}
	}
}

// row decodes one line.
func (f *Follower) row(path string, number int, line []byte, err error, yield func(Row)) {
	record, ok := (*trace.Record)(nil), false
	if !errors.Is(err, errTooLong) {
		record, ok, err = trace.Decode(line)
	}
	if err != nil {
		f.complain.about("%s, line %d is passed over: %w", path, number, err)
	}
	if ok {
		yield(Row{record, path, number})
	}
}

// unlessEOF returns nil for the errors of a file that has not been written to its end.
func unlessEOF(path string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("trace: %s: %w", path, err)
}

// counter counts what is taken out of a reader. A decompressor that can take single
// bytes takes none behind its end.
type counter struct {
	in *bufio.Reader
	n  int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) ReadByte() (byte, error) {
	b, err := c.in.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}
