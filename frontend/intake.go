package frontend

import (
	"bufio"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/internal/wire"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// body reads the JSON body of a request, whose content type is checked.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, refusal(http.StatusUnsupportedMediaType, "Expected request with Content-Type application/json")
	}
	return s.payload(w, r)
}

// payload reads the body of a request: it is decompressed, and neither form may
// exceed the limit.
func (s *Server) payload(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > s.BodyLimit {
		// Nobody shall send all of it to learn that.
		return nil, s.readFault(r, errTooLarge)
	}
	limited := http.MaxBytesReader(w, r.Body, s.BodyLimit)
	plain, err := decompress(limited, r.Header.Get("Content-Encoding"), s.BodyLimit)
	if err != nil {
		return nil, s.readFault(r, err)
	}
	defer plain.Close()
	hint := r.ContentLength
	if plain != io.ReadCloser(limited) {
		hint *= 4
	}
	body, err := readAll(plain, hint, s.BodyLimit)
	if err != nil {
		return nil, s.readFault(r, err)
	}
	// net/http notices a vanished client only once the raw body is at its end.
	if n, err := io.Copy(io.Discard, limited); n > 0 || err != nil {
		return nil, refusal(http.StatusBadRequest, "Failed to read request body: bytes follow its compressed form")
	}
	// The body is here; from now on the connection may be silent.
	http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // not every connection has deadlines
	return body, nil
}

var (
	errEncoding = errors.New("unknown content encoding")
	errTooLarge = errors.New("too large")
)

// readFault says what went wrong with reading a body.
func (s *Server) readFault(r *http.Request, err error) error {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge || errors.Is(err, errTooLarge) || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded):
		return refusal(http.StatusRequestEntityTooLarge, "Request body exceeds the limit of %d MB set by DYN_HTTP_BODY_LIMIT_MB", s.BodyLimit>>20)
	case errors.Is(err, errEncoding):
		return refusal(http.StatusUnsupportedMediaType, "Content-Encoding must be one of gzip, zstd, deflate and identity")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refusal(http.StatusRequestTimeout, "The request body did not arrive within %v", s.ReadTimeout)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" {
		return refusal(http.StatusBadRequest, "Failed to read request body: either it is incomplete, or it is not %s as its Content-Encoding says", clip(encoding))
	}
	return refusal(http.StatusBadRequest, "Failed to read request body")
}

// isJSON accepts application/json, application/*+json, and nothing at all.
func isJSON(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// maxWindow is how much memory a zstd stream may ask for to look back at; it is
// what the format's own documentation tells decoders to support.
const maxWindow = 8 << 20

// decompress undoes a content encoding.
func decompress(r io.ReadCloser, encoding string, limit int64) (io.ReadCloser, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return r, nil
	case "gzip", "x-gzip":
		return gzip.NewReader(r)
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(uint64(limit)))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case "deflate":
		return inflate(r)
	}
	return nil, errEncoding
}

// inflate reads what clients mean by deflate: the zlib format, as the standard
// has it, or the bare one.
func inflate(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}

// readAll reads at most limit bytes. hint is how many to expect; it comes from
// the client and is trusted only so far.
func readAll(r io.Reader, hint, limit int64) ([]byte, error) {
	b := make([]byte, 0, max(512, min(hint+1, 1<<20, limit+1)))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			// What has come vouches for a part of what is said to come.
			more := min(hint, limit) + 1 - int64(len(b))
			b = slices.Grow(b, int(max(1, min(more, 3*int64(len(b))))))
		}
	}
}

// refusal is an error that the server itself gives, before any codec.
func refusal(status int, format string, args ...any) *wire.Error {
	return &wire.Error{Status: status, Message: fmt.Sprintf(format, args...), Code: codes[status]}
}

// codes name the statuses that only the server itself gives.
var codes = map[int]string{
	http.StatusBadRequest:            wire.CodeInvalidValue,
	http.StatusForbidden:             "forbidden",
	http.StatusNotFound:              "route_not_found",
	http.StatusRequestTimeout:        "request_timeout",
	http.StatusUnsupportedMediaType:  "unsupported_media_type",
	http.StatusRequestEntityTooLarge: wire.CodeRequestTooLarge,

	http.StatusRequestHeaderFieldsTooLarge: "metadata_too_large",
}
