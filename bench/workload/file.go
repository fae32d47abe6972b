package workload

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"unsafe"

	"github.com/dynago/dynago/kv"
	"golang.org/x/sys/unix"
)

// The file of a corpus is the corpus as it lies in memory, all numbers
// little-endian; bench/corpus/README.md describes it.
const (
	magic       = "KVHIST01"
	headerBytes = 8 + 4*8
	opBytes     = 32
	localBytes  = 8
	blockBytes  = 16
)

// The structures must lie in memory as they do in the file.
var (
	_ [opBytes]byte    = [unsafe.Sizeof(Op{})]byte{}
	_ [blockBytes]byte = [unsafe.Sizeof(kv.Block{})]byte{}
)

// WriteTo writes the corpus in its file format.
func (c *Corpus) WriteTo(w io.Writer) (int64, error) {
	if err := littleEndian(); err != nil {
		return 0, err
	}
	header := []byte(magic)
	for _, n := range []int{c.Workers, len(c.Ops), len(c.Locals), len(c.Blocks)} {
		header = binary.LittleEndian.AppendUint64(header, uint64(n))
	}
	var written int64
	for _, part := range [][]byte{header, bytesOf(c.Ops), bytesOf(c.Locals), bytesOf(c.Blocks)} {
		n, err := w.Write(part)
		if written += int64(n); err != nil {
			return written, fmt.Errorf("corpus: %w", err)
		}
	}
	return written, nil
}

// WriteFile writes the corpus to a file.
func (c *Corpus) WriteFile(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("corpus: %w", err)
	}
	w := bufio.NewWriter(file)
	_, err = c.WriteTo(w)
	return errors.Join(err, w.Flush(), file.Close())
}

// Open maps the corpus of a file into memory, where it takes nothing of the heap.
// All of it has been read when Open returns.
func Open(path string) (*Corpus, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if info.Size() < headerBytes {
		return nil, fmt.Errorf("corpus: %s: %w", path, errTruncated)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("corpus: %s: map into memory: %w", path, err)
	}
	touch(mapped)
	c, err := parse(mapped)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("corpus: %s: %w", path, err), unix.Munmap(mapped))
	}
	c.unmap = func() error { return unix.Munmap(mapped) }
	return c, nil
}

// touch reads a byte of every page, so that none has to be fetched later, while a
// clock runs.
func touch(mapped []byte) {
	var sum byte
	for i := 0; i < len(mapped); i += os.Getpagesize() {
		sum += mapped[i]
	}
	runtime.KeepAlive(sum) // or the compiler would drop the loads
}

// Close gives up the memory of a corpus that was opened. Nothing of it may be
// used afterwards.
func (c *Corpus) Close() error {
	if c.unmap == nil {
		return nil
	}
	unmap := c.unmap
	*c = Corpus{}
	return unmap()
}

var errTruncated = errors.New("the file is cut off, or longer than its header says")

// parse views a file as a corpus. It must begin at a multiple of 8.
func parse(file []byte) (*Corpus, error) {
	if err := littleEndian(); err != nil {
		return nil, err
	}
	if len(file) < headerBytes || !bytes.HasPrefix(file, []byte(magic)) {
		return nil, fmt.Errorf("does not begin with %s and four numbers", magic)
	}
	var n [4]uint64
	for i := range n {
		n[i] = binary.LittleEndian.Uint64(file[8+8*i:])
	}
	rest := file[headerBytes:]
	ops, rest, ok1 := cut[Op](rest, n[1])
	locals, rest, ok2 := cut[kv.LocalHash](rest, n[2])
	blocks, rest, ok3 := cut[kv.Block](rest, n[3])
	if !ok1 || !ok2 || !ok3 || len(rest) > 0 {
		return nil, errTruncated
	}
	if n[0] == 0 || n[0] > 1<<32 {
		return nil, fmt.Errorf("%d workers", n[0])
	}
	c := &Corpus{Workers: int(n[0]), Ops: ops, Locals: locals, Blocks: blocks}
	for i, op := range ops {
		of := len(blocks)
		if op.Kind == Query {
			of = len(locals)
		}
		if op.Kind > Remove || uint64(op.Worker) >= n[0] || op.First > uint64(of) || uint64(op.N) > uint64(of)-op.First {
			return nil, fmt.Errorf("operation %d: unknown kind, or a worker or hashes that do not exist", i)
		}
	}
	return c, nil
}

// cut views the first n elements of b, and returns what follows them.
func cut[T any](b []byte, n uint64) (elements []T, rest []byte, ok bool) {
	var zero T
	over, size := bits.Mul64(n, uint64(unsafe.Sizeof(zero)))
	if over > 0 || size > uint64(len(b)) {
		return nil, nil, false
	}
	if n > 0 {
		elements = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
	}
	return elements, b[size:], true
}

// bytesOf views elements as the bytes that they are.
func bytesOf[T any](elements []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), len(elements)*int(unsafe.Sizeof(zero)))
}

func littleEndian() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("a corpus can be read and written on little-endian machines only")
	}
	return nil
}
