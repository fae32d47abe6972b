package kserve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// Arrays of numbers are most of what large requests consist of, so they are read
// from the text straight into the bytes of the tensor: there is no value for an
// element on the way, and the bytes are allocated once.

// jsonArray reads the elements of a tensor from the text of an array, which is
// known to be well-formed JSON.
type jsonArray struct {
	src []byte
	pos int
	out []byte
	// most is how many elements the shape has room for, and n how many there are.
	most, n int64
	read    func(*jsonArray, []byte) error
}

// jsonKinds are how elements of each datatype are read and written, and the fewest
// bytes that one has. JSON has none of FP16 and BF16.
var jsonKinds = map[string]struct {
	size  int
	read  func(*jsonArray, []byte) error
	write func([]byte, *engine.Tensor) ([]byte, error)
}{
	"BOOL":   {1, (*jsonArray).boolean, writeBools},
	"UINT8":  {1, readUnsigned[uint8], writeUnsigned[uint8]},
	"UINT16": {2, readUnsigned[uint16], writeUnsigned[uint16]},
	"UINT32": {4, readUnsigned[uint32], writeUnsigned[uint32]},
	"UINT64": {8, readUnsigned[uint64], writeUnsigned[uint64]},
	"INT8":   {1, readSigned[int8], writeSigned[int8]},
	"INT16":  {2, readSigned[int16], writeSigned[int16]},
	"INT32":  {4, readSigned[int32], writeSigned[int32]},
	"INT64":  {8, readSigned[int64], writeSigned[int64]},
	"FP32":   {4, (*jsonArray).float32, writeFloats[float32]},
	"FP64":   {8, (*jsonArray).float64, writeFloats[float64]},
	"BYTES":  {4, (*jsonArray).text, writeTexts},
}

// readJSON sets the data of an input to the elements that stand in the JSON value src:
// an array of all of them, or arrays in arrays as its shape says. What is wrong with
// datatype and shape, or does not fit them, is a fault; err is what no tensor can
// have.
func readJSON(t *engine.Tensor, src []byte) (fault, err error) {
	kind, ok := jsonKinds[t.Datatype]
	if _, known := engine.ElementSize(t.Datatype); !known {
		return refused("Invalid data type '%s' of input tensor '%s'", t.Datatype, t.Name), nil
	} else if !ok {
		return refused("input tensor '%s': JSON has no numbers of %s, send them as bytes, with the parameter %s and the header Inference-Header-Content-Length", t.Name, t.Datatype, binarySize), nil
	}
	count, fault := elements(t.Shape)
	if fault != nil {
		count = 1 // for models that have words of their own for what is wrong
	}
	a := jsonArray{src: src, most: count, read: kind.read}
	// No more elements than commas and one: the text may be shorter than it claims.
	room := min(count, int64(len(src))/2+1) * int64(kind.size)
	if t.Datatype == engine.Bytes {
		// Quotes and a comma make room for all but one byte of a length.
		room = room/4 + int64(len(src))
	}
	a.out = make([]byte, 0, room)
	switch c := a.next(); {
	case c != '[' && len(t.Shape) == 0:
		err = a.element()
	case c != '[':
		err = errors.New("data must be an array")
	case fault == nil && a.nested():
		err = a.axis(t.Shape)
	default:
		err = a.leaf(-1)
	}
	t.Data = a.out
	switch {
	case err != nil:
		return nil, refused("input tensor '%s': %s", t.Name, err)
	case fault != nil:
		return fault, nil
	}
	return checkCount(t, a.n), nil
}

// next skips blanks and returns the byte that stands behind them, or 0.
func (a *jsonArray) next() byte {
	for ; a.pos < len(a.src); a.pos++ {
		if c := a.src[a.pos]; c > ' ' {
			return c
		}
	}
	return 0
}

// nested says whether the first item of the array that begins here is an array.
func (a *jsonArray) nested() bool {
	ahead := jsonArray{src: a.src, pos: a.pos + 1}
	return ahead.next() == '['
}

// axis reads an array of arrays, or of elements at the last axis.
func (a *jsonArray) axis(shape []int64) error {
	switch len(shape) {
	case 0:
		return errors.New("data is nested deeper than its shape")
	case 1:
		return a.leaf(shape[0])
	}
	items := int64(0)
	for a.pos++; ; items++ {
		switch c, err := a.item(); {
		case err != nil:
			return err
		case c == ']' && items != shape[0]:
			return miscut(items, shape[0])
		case c == ']':
			return nil
		case c != '[':
			return errors.New("data is nested less deep than its shape, and is not flat")
		}
		if err := a.axis(shape[1:]); err != nil {
			return err
		}
	}
}

// leaf reads an array of elements: as many as are wanted, or any number if that is
// negative.
func (a *jsonArray) leaf(want int64) error {
	before := a.n
	for a.pos++; ; {
		switch c, err := a.item(); {
		case err != nil:
			return err
		case c == ']' && want >= 0 && a.n-before != want:
			return miscut(a.n-before, want)
		case c == ']':
			return nil
		}
		if err := a.element(); err != nil {
			return err
		}
	}
}

// item goes to the next item of an array and returns its first byte, or goes behind
// the end of the array and returns the bracket.
func (a *jsonArray) item() (byte, error) {
	c := a.next()
	if c == ',' {
		a.pos++
		c = a.next()
	}
	if a.pos == len(a.src) {
		return 0, errCut
	}
	if c == ']' {
		a.pos++
	}
	return c, nil
}

func miscut(items, want int64) error {
	return fmt.Errorf("an array in data has %d items where its shape has %d", items, want)
}

var errCut = errors.New("data ends too early")

// element reads one element. Those beyond the shape are counted and not kept.
func (a *jsonArray) element() error {
	token := a.token()
	a.n++
	if a.n > a.most {
		return nil
	}
	return a.read(a, token)
}

// token returns the scalar that begins here.
func (a *jsonArray) token() []byte {
	begin := a.pos
	if a.src[begin] == '"' {
		a.pos++
		for a.pos < len(a.src) {
			// Nothing but an escape can hide the end of a string.
			i := bytes.IndexByte(a.src[a.pos:], '"')
			if i < 0 {
				a.pos = len(a.src)
				break
			}
			end := a.pos + i
			slashes := 0
			for slashes < i && a.src[end-1-slashes] == '\\' {
				slashes++
			}
			a.pos = end + 1
			if slashes%2 == 0 {
				break
			}
		}
		return a.src[begin:a.pos]
	}
	for a.pos++; a.pos < len(a.src) && !delimits[a.src[a.pos]]; a.pos++ {
	}
	return a.src[begin:a.pos]
}

// delimits marks the bytes that end a number or a word in an array.
var delimits = [256]bool{' ': true, '\t': true, '\n': true, '\r': true, ',': true, ']': true, '[': true}

// wrong is the error of an element that is not what its datatype wants.
func (a *jsonArray) wrong(token []byte, want string) error {
	return fmt.Errorf("element %d of data must be %s, got %s", a.n-1, want, wire.Clip(token))
}

func (a *jsonArray) boolean(token []byte) error {
	switch string(token) {
	case "true":
		a.out = append(a.out, 1)
	case "false":
		a.out = append(a.out, 0)
	default:
		return a.wrong(token, "true or false")
	}
	return nil
}

type (
	word interface {
		uint8 | uint16 | uint32 | uint64
	}
	integer interface{ int8 | int16 | int32 | int64 }
)

func readUnsigned[T word](a *jsonArray, token []byte) error {
	most := uint64(^T(0))
	n, ok := digits(token, most)
	if !ok {
		return a.wrong(token, "a whole number from 0 to "+strconv.FormatUint(most, 10))
	}
	a.append(n, int(unsafe.Sizeof(T(0))))
	return nil
}

func readSigned[T integer](a *jsonArray, token []byte) error {
	size := int(unsafe.Sizeof(T(0)))
	most := uint64(1)<<(8*size-1) - 1
	magnitude, sign := token, uint64(0)
	if token[0] == '-' {
		magnitude, sign = token[1:], 1
	}
	n, ok := digits(magnitude, most+sign)
	if !ok {
		return a.wrong(token, fmt.Sprintf("a whole number from -%d to %d", most+1, most))
	}
	if sign == 1 {
		n = -n
	}
	a.append(n, size)
	return nil
}

// digits reads a decimal number that is at most most.
func digits(token []byte, most uint64) (n uint64, ok bool) {
	if len(token) == 0 || len(token) > 20 {
		return 0, false
	}
	for _, c := range token {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = 10*n + d
	}
	return n, n <= most
}

// append adds the low bytes of a word.
func (a *jsonArray) append(n uint64, size int) {
	switch size {
	case 1:
		a.out = append(a.out, byte(n))
	case 2:
		a.out = binary.LittleEndian.AppendUint16(a.out, uint16(n))
	case 4:
		a.out = binary.LittleEndian.AppendUint32(a.out, uint32(n))
	default:
		a.out = binary.LittleEndian.AppendUint64(a.out, n)
	}
}

func (a *jsonArray) float32(token []byte) error {
	f, ok := exact(token)
	// A second rounding is wrong only where the first one ended half-way between two.
	const half, below = 1 << 28, 1<<29 - 1
	if !ok || math.Float64bits(f)&below == half {
		var err error
		if f, err = a.float(token, 32); err != nil {
			return err
		}
	}
	a.out = binary.LittleEndian.AppendUint32(a.out, math.Float32bits(float32(f)))
	return nil
}

func (a *jsonArray) float64(token []byte) error {
	f, ok := exact(token)
	if !ok {
		var err error
		if f, err = a.float(token, 64); err != nil {
			return err
		}
	}
	a.out = binary.LittleEndian.AppendUint64(a.out, math.Float64bits(f))
	return nil
}

// float reads any number.
func (a *jsonArray) float(token []byte, bits int) (float64, error) {
	if c := token[0]; c != '-' && (c < '0' || c > '9') {
		return 0, a.wrong(token, "a number")
	}
	f, err := strconv.ParseFloat(unsafe.String(&token[0], len(token)), bits) // which keeps the text in an error alone
	if err != nil {
		return 0, a.wrong(token, "a number that FP"+strconv.Itoa(bits)+" can hold")
	}
	return f, nil
}

// exact reads a decimal fraction whose digits and whose power of ten float64 holds as
// they are, so that one division rounds it as it should be: Clinger's fast path.
// Most numbers in tensors are such, and this halves the time.
func exact(token []byte) (f float64, ok bool) {
	const most = 15 // digits that fit in 53 bits
	digits := token
	if token[0] == '-' {
		digits = token[1:]
	}
	if len(digits) > most+1 {
		return 0, false
	}
	mantissa, point := uint64(0), -1
	for i, c := range digits {
		if d := c - '0'; d <= 9 {
			mantissa = 10*mantissa + uint64(d)
		} else if c == '.' && point < 0 {
			point = i
		} else {
			return 0, false
		}
	}
	f = float64(mantissa)
	if point >= 0 {
		f /= powers[len(digits)-1-point]
	} else if len(digits) > most {
		return 0, false
	}
	if len(digits) < len(token) {
		f = -f
	}
	return f, len(digits) > 0
}

var powers = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func (a *jsonArray) text(token []byte) error {
	if token[0] != '"' {
		return a.wrong(token, "a string")
	}
	length := len(a.out)
	a.out = appendText(append(a.out, 0, 0, 0, 0), token)
	binary.LittleEndian.PutUint32(a.out[length:], uint32(len(a.out)-length-4))
	return nil
}

// appendText appends the text of a JSON string. What is no UTF-8, and half a surrogate
// pair, becomes U+FFFD; NUL stays what it is, since these are bytes and not the words
// of a conversation.
func appendText(dst, token []byte) []byte {
	inside := token[1 : len(token)-1]
	for len(inside) > 0 {
		plain := bytes.IndexByte(inside, '\\')
		if plain < 0 {
			plain = len(inside)
		}
		dst = appendValid(dst, inside[:plain])
		inside = inside[plain:]
		if len(inside) > 0 {
			r, size := wire.Unescape(inside)
			if bytes.HasPrefix(inside, nul) {
				r = 0
			}
			dst = utf8.AppendRune(dst, r)
			inside = inside[size:]
		}
	}
	return dst
}

// nul is how JSON spells the byte 0.
var nul = []byte(`\u0000`)

// appendValid adds text with each byte that is no UTF-8 replaced.
func appendValid(dst, text []byte) []byte {
	if utf8.Valid(text) {
		return append(dst, text...)
	}
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		dst = utf8.AppendRune(dst, r)
		text = text[size:]
	}
	return dst
}
