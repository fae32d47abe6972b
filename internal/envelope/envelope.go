// Package envelope makes and reads the opaque texts by which clients carry a
// model's thoughts: signatures of Messages, encrypted content of Responses. What
// a client sends back needs no memory on the server.
//
// The one idea: an envelope says which text was thought, by its hash, or by the
// text itself where the client is not shown it. Reading one never fails a
// request: what was not made here is somebody else's, and no more than that.
package envelope

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Prefixes tell how an envelope was made.
const (
	plain  = "r1."
	sealed = "r1e."
)

// encoding admits one spelling of each envelope.
var encoding = base64.RawURLEncoding.Strict()

// Box makes envelopes and reads them. Envelopes depend on nothing but the key
// and what is put into them. The zero value has no key: everybody can read its
// envelopes. It may be used from any goroutine.
type Box struct {
	aead   cipher.AEAD
	nonces []byte // key of the nonces
}

// New returns a box whose envelopes only those can read who know the key, which
// may be any text; an empty one is no key.
func New(key string) (*Box, error) {
	if key == "" {
		return new(Box), nil
	}
	derived, err := hkdf.Key(sha256.New, []byte(key), nil, "dynago reasoning envelope", 64)
	if err != nil {
		return nil, fmt.Errorf("reasoning envelope: derive keys: %w", err)
	}
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		return nil, fmt.Errorf("reasoning envelope: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("reasoning envelope: %w", err)
	}
	return &Box{aead, derived[32:]}, nil
}

// Sum is the beginning of the SHA-256 of a text.
type Sum [8]byte

// SumOf returns the sum of a text.
func SumOf(text string) Sum {
	whole := sha256.Sum256([]byte(text))
	return Sum(whole[:])
}

// Digest makes the sum of a text that comes in pieces. The zero value has seen
// none.
type Digest struct {
	hash hash.Hash
	buf  []byte
}

// Add takes the next piece.
func (d *Digest) Add(text string) {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.buf = append(d.buf[:0], text...)
	d.hash.Write(d.buf)
}

// Sum returns the sum of all pieces, and begins anew.
func (d *Digest) Sum() Sum {
	if d.hash == nil {
		return SumOf("")
	}
	d.buf = d.hash.Sum(d.buf[:0])
	d.hash.Reset()
	return Sum(d.buf)
}

// Content is what an envelope holds.
type Content struct {
	Text    string // empty if the envelope holds the sum alone
	HasText bool
	Sum     Sum // of the text, wherever it is
	Ordinal int // which thought of its answer, counted from 0
}

// Vouches says whether a text is the one that the envelope was made for.
func (c *Content) Vouches(text string) bool { return c.Sum == SumOf(text) }

// payload is the inside of an envelope.
type payload struct {
	Text    *string `json:"t,omitempty"`
	Sum     string  `json:"h"`
	Ordinal int     `json:"i"`
}

// Sign returns an envelope for a text that travels beside it.
func (b *Box) Sign(s Sum, ordinal int) string {
	return b.wrap(payload{Sum: hex.EncodeToString(s[:]), Ordinal: ordinal})
}

// Seal returns an envelope that holds a text, which is UTF-8.
func (b *Box) Seal(text string, ordinal int) string {
	s := SumOf(text)
	return b.wrap(payload{Text: &text, Sum: hex.EncodeToString(s[:]), Ordinal: ordinal})
}

func (b *Box) wrap(p payload) string {
	var doc bytes.Buffer
	e := json.NewEncoder(&doc)
	e.SetEscapeHTML(false)
	e.Encode(p) //nolint:errcheck // strings and a number always have a JSON form
	inside := compress(bytes.TrimSuffix(doc.Bytes(), []byte("\n")))
	if b.aead == nil {
		return plain + encoding.EncodeToString(inside)
	}
	// The nonce depends on what is sealed, so that none is used for two texts,
	// and an answer has the same envelopes streamed and whole.
	nonces := hmac.New(sha256.New, b.nonces)
	nonces.Write(inside)
	nonce := nonces.Sum(nil)[:b.aead.NonceSize()]
	return sealed + encoding.EncodeToString(b.aead.Seal(nonce, nonce, inside, nil))
}

// Open reads an envelope. It is not ok if the text is no envelope, if it was
// damaged, or if it was made with another key. Envelopes without a key can be
// read by all boxes.
func (b *Box) Open(envelope string) (c Content, ok bool) {
	inside, ok := b.unwrap(envelope)
	if !ok {
		return c, false
	}
	if inside, ok = expand(inside); !ok {
		return c, false
	}
	var p payload
	if json.Unmarshal(inside, &p) != nil {
		return c, false
	}
	if n, err := hex.Decode(c.Sum[:], []byte(p.Sum[:min(len(p.Sum), 2*len(c.Sum))])); err != nil || n != len(c.Sum) {
		return c, false
	}
	c.Ordinal = p.Ordinal
	if p.Text != nil {
		c.Text, c.HasText = *p.Text, true
	}
	return c, !c.HasText || c.Vouches(c.Text)
}

func (b *Box) unwrap(envelope string) (inside []byte, ok bool) {
	if rest, found := strings.CutPrefix(envelope, plain); found {
		inside, err := encoding.DecodeString(rest)
		return inside, err == nil
	}
	rest, found := strings.CutPrefix(envelope, sealed)
	if !found || b.aead == nil {
		return nil, false
	}
	box, err := encoding.DecodeString(rest)
	if err != nil || len(box) < b.aead.NonceSize() {
		return nil, false
	}
	inside, err = b.aead.Open(nil, box[:b.aead.NonceSize()], box[b.aead.NonceSize():], nil)
	return inside, err == nil
}

// mostShrunk is how many times shorter than its text a compressed one may be.
// Nobody thinks in texts that shrink more, and a body of envelopes must not
// become much larger than the limit that bodies have.
const mostShrunk = 8

var (
	// Both may be used from any goroutine; the errors are those of options. A single
	// segment says how long it is.
	compressor, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true))
	decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
)

// compress returns a document in its shorter form. One that begins as no
// document does is compressed.
func compress(doc []byte) []byte {
	small := compressor.EncodeAll(doc, nil)
	if len(small) >= len(doc) || len(small)*mostShrunk < len(doc) {
		return doc
	}
	return small
}

func expand(inside []byte) (doc []byte, ok bool) {
	if len(inside) > 0 && inside[0] == '{' {
		return inside, true
	}
	var h zstd.Header
	if h.Decode(inside) != nil || !h.HasFCS || h.FrameContentSize > uint64(len(inside))*mostShrunk {
		return nil, false
	}
	doc, err := decompressor.DecodeAll(inside, make([]byte, 0, h.FrameContentSize))
	return doc, err == nil
}
