package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// file is what lines are written to: one file that grows, or segments.
type file interface {
	// full says whether one more line of so many bytes is too much for the place where
	// the line before it went; if so, and what is held back for that is written, end
	// closes it. takes notes a line that comes next.
	full(bytes int) bool
	end() error
	takes(bytes int)
	// pack takes whole lines, and keeps what it makes of them until write writes it, all
	// of it or none.
	pack(lines []byte)
	write() error
	// close makes what was written last.
	close() error
}

// File is the sink that writes files of lines. What is held back when the process dies
// is lost; what was written is whole up to there.
type File struct {
	config FileConfig
	born   time.Time
	to     file
	lines  []byte // not packed yet
	packed int    // bytes
	held   int    // lines that are held back, packed or not
}

// packBytes is how much is packed at once. What was just written lies in the processor's
// cache: to pack much more later costs a quarter of the time that a long row takes.
const packBytes = 64 << 10

// OpenFile opens the file, or the first segment, that records go to.
func OpenFile(c FileConfig) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return nil, fmt.Errorf("trace file: %w", err)
	}
	open := openSegments
	if c.Plain {
		open = openPlain
	}
	to, err := open(c)
	if err != nil {
		return nil, fmt.Errorf("trace file: %w", err)
	}
	return &File{config: c, born: time.Now(), to: to}, nil
}

// Name implements [Sink].
func (*File) Name() string { return SinkFile }

// Interval implements [Ticker].
func (f *File) Interval() time.Duration { return f.config.FlushInterval }

// Tick implements [Ticker]: it writes what is held back.
func (f *File) Tick(context.Context) error { return f.flush() }

// Write implements [Sink].
func (f *File) Write(_ context.Context, records []*Record) error {
	age := time.Since(f.born).Milliseconds()
	var errs []error
	for _, r := range records {
		if err := f.add(r, age); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// add appends the line of one record. Files have records inside an object that says
// how old the file's writer was.
func (f *File) add(r *Record, age int64) (err error) {
	before := len(f.lines)
	f.lines = append(f.lines, `{"timestamp":`...)
	f.lines = strconv.AppendInt(f.lines, age, 10)
	f.lines = append(f.lines, `,"event":`...)
	if f.lines, err = r.Append(f.lines); err != nil {
		f.lines = f.lines[:before]
		return &Lost{1, err}
	}
	f.lines = append(f.lines, '}', '\n')

	line := f.lines[before:]
	if f.to.full(len(line)) {
		f.lines = f.lines[:before]
		err = errors.Join(f.flush(), f.to.end())
		f.lines = append(f.lines[:0], line...)
	}
	f.to.takes(len(line))
	f.held++
	switch {
	case f.packed+len(f.lines) >= f.config.BufferBytes:
		err = errors.Join(err, f.flush())
	case len(f.lines) >= packBytes:
		f.pack()
	}
	return err
}

// pack packs what is not packed yet.
func (f *File) pack() {
	f.to.pack(f.lines)
	f.packed += len(f.lines)
	f.lines = f.lines[:0]
	if cap(f.lines) > 4*packBytes {
		f.lines = nil // one long line shall not stay
	}
}

// flush writes what is held back, or drops it.
func (f *File) flush() error {
	if f.packed+len(f.lines) == 0 {
		return nil
	}
	f.pack()
	err := f.to.write()
	if err != nil {
		err = &Lost{f.held, err}
	}
	f.packed, f.held = 0, 0
	return err
}

// Close implements [Sink].
func (f *File) Close(context.Context) error { return errors.Join(f.flush(), f.to.close()) }

// plain is one file that grows.
type plain struct {
	out   *os.File
	lines []byte
	most  int // capacity of lines that may stay
}

// perm are the rights of new files: rows say what agents do, and may say what people
// have written.
const perm = 0o600

func openPlain(c FileConfig) (file, error) {
	out, err := os.OpenFile(c.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	if err := mend(out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &plain{out: out, most: 2*c.BufferBytes + packBytes}, nil
}

// mend ends the last line of a file that somebody else has begun. One that was torn
// when its writer died goes: its record is lost anyway, and readers would stumble.
func mend(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	const most = 64 << 20 // of a line
	size := info.Size()
	from := max(0, size-most)
	tail, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return err
	}
	last := tail[bytes.LastIndexByte(tail, '\n')+1:]
	switch {
	case len(last) == 0:
		return nil
	case len(last) == most || jsontext.Value(last).IsValid():
		_, err = f.Write([]byte{'\n'})
		return err
	}
	return f.Truncate(size - int64(len(last)))
}

func (*plain) full(int) bool { return false }

func (*plain) end() error { return nil }

func (*plain) takes(int) {}

func (p *plain) pack(lines []byte) { p.lines = append(p.lines, lines...) }

func (p *plain) write() error {
	lines := p.lines
	if p.lines = lines[:0]; cap(lines) > p.most {
		p.lines = nil
	}
	return whole(p.out, lines)
}

func (p *plain) close() error { return settle(p.out) }

// whole appends b to a file, and takes a part of it back if the rest does not fit.
func whole(f *os.File, b []byte) error {
	n, err := f.Write(b)
	if err == nil || n == 0 {
		return err
	}
	info, failure := f.Stat()
	if failure == nil {
		failure = f.Truncate(info.Size() - int64(n))
	}
	return errors.Join(err, failure)
}

// settle closes a file whose content is to outlive a crash of the machine. Pipes and
// devices have nothing to settle.
func settle(f *os.File) error {
	err := f.Sync()
	if info, failure := f.Stat(); failure != nil || !info.Mode().IsRegular() {
		err = nil
	}
	if err = errors.Join(err, f.Close()); errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}
