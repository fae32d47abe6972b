package selection

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
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

func conflict(format string, args ...any) error {
	return &fault{http.StatusConflict, fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) error {
	return &fault{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// read decodes the JSON body of a request into v. Members that it does not know
// are left out, so that dispatchers made for newer versions work.
func read(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	if !isJSON(r.Header.Get("Content-Type")) {
		return &fault{http.StatusUnsupportedMediaType, "want a body with Content-Type: application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", limit)}
		}
		return bad("the body could not be read to its end")
	}
	// Nobody has to wait for more of the request.
	http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // not every connection has deadlines
	return decode(body, v)
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return bad("the body is not what this operation takes: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// writeTime is how long a client may take to accept an answer.
const writeTime = time.Minute

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(false))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) //nolint:errcheck // not every connection has deadlines
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client has gone, and nothing is left to do
}

// done answers where there is nothing to tell.
func done(w http.ResponseWriter) {
	answer(w, http.StatusOK, struct {
		Status string `json:"status"`
	}{"ok"})
}

// problem is the shape of all errors.
type problem struct {
	Error   string `json:"error"`
	Details any    `json:"details,omitzero"`
}

func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, problem{Error: message})
}

// refuse answers with an error.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, p := statusOf(err)
	if status == http.StatusInternalServerError {
		s.Logger.Error("a request to the router failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds(err), 10))
	}
	answer(w, status, p)
}

// seconds is when to come back: what the queue guesses, and at least one.
func seconds(err error) int64 {
	wait := time.Second
	if e, ok := errors.AsType[*engine.Error](err); ok {
		wait = max(wait, e.RetryAfter)
	}
	return int64((wait + time.Second - 1) / time.Second)
}

// statusOf is the one place where errors become statuses. They differ from those
// of the frontend: who dispatches tells by them whether to wait or to scale.
func statusOf(err error) (int, problem) {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.status, problem{Error: f.message}
	}
	p := problem{Error: err.Error()}
	e, ok := errors.AsType[*engine.Error](err)
	if ok && e.Message != "" {
		p.Error = e.Message
	}
	if missing, ok := errors.AsType[*router.MissingTaints](err); ok {
		p.Error, p.Details = missing.Error(), missing
	}
	if full, ok := errors.AsType[*router.QueueRejection](err); ok {
		return http.StatusServiceUnavailable, problem{Error: full.Error(), Details: full}
	}
	if ok {
		switch e.Code {
		case router.CodeDuplicateRequest:
			return http.StatusConflict, p
		case router.CodeRequestNotFound:
			return http.StatusNotFound, p
		}
	}
	switch engine.KindOf(err) {
	case engine.InvalidArgument, engine.Unsupported:
		return http.StatusBadRequest, p
	case engine.ResourceExhausted, engine.WorkerOverloaded, engine.DeadlineExceeded:
		return http.StatusTooManyRequests, p
	case engine.NotFound, engine.Unavailable, engine.Disconnected:
		return http.StatusServiceUnavailable, p
	case engine.Cancelled:
		return statusClientGone, p
	}
	return http.StatusInternalServerError, p
}

// statusClientGone is what proxies log for clients that left; nobody reads it.
const statusClientGone = 499
