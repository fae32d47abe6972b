package admin

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fault is a request that cannot be served, with its status.
type fault struct {
	status  int
	message string
}

func (f *fault) Error() string { return f.message }

func bad(format string, args ...any) error {
	return &fault{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	if f, ok := errors.AsType[*fault](err); ok {
		status = f.status
	} else {
		s.opts.Log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="kvstore"`)
	}
	write(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

// write answers with a value as JSON. Keys may be any bytes; what is no text in
// them is shown as U+FFFD.
func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(false), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client has gone, and nothing is left to do
}

// maxBody bounds requests in bytes.
const maxBody = 8 << 20

// read decodes the body of a request into v. A member that is not known is an
// error: a wish that is misspelt must not look granted.
func read(r *http.Request, v any) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return &fault{http.StatusUnsupportedMediaType, "want a body with Content-Type: application/json"}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return bad("the body could not be read to its end")
	case len(body) > maxBody:
		return &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxBody)}
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return bad("the body is not what this operation takes: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// printable is the beginning of s, fit to be in an answer.
func printable(s string) string {
	return strings.Trim(strconv.QuoteToASCII(s[:min(len(s), 80)]), `"`)
}
