package frontend

import (
	"net/http"
	"slices"
)

// preface is what clients of HTTP/2 open a clear-text connection with, as far as
// net/http takes it for a request.
const preface = "PRI * HTTP/2.0\r\n\r\n"

// handOver gives connections that open with the preface of HTTP/2 to who serves
// them. Those of HTTP/1 pay for it with the look at a number.
func (s *Server) handOver(next http.Handler) http.Handler {
	if s.HTTP2 == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && r.Method == "PRI" {
			s.giveAway(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// giveAway hands a connection over with all that was read of it.
func (s *Server) giveAway(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusHTTPVersionNotSupported)
		return
	}
	behind, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // that many are there
	s.HTTP2(&readConn{conn, slices.Concat([]byte(preface), behind)})
}
