// Package hostile stands before an engine's server and spoils the streams that
// it sends: in ways that mean nothing, which every adapter has to bear, and in
// ways that cost the answer, which none may take for one.
//
// The one idea: what is spoilt are the bytes of an event stream, whichever
// engine wrote them. Everything else passes as it is.
package hostile

import (
	"bytes"
	"net/http"
	"strings"
)

// Spoil is a way to spoil a stream. The zero value passes it as it is.
type Spoil struct {
	// CRLF ends lines as HTTP does.
	CRLF bool
	// Comments puts a comment before every event.
	Comments bool
	// NoBlank leaves out the blank behind "data:".
	NoBlank bool
	// Fields puts an event name and an id before every event.
	Fields bool
	// Piece is how many bytes are sent at a time; 0: as they come.
	Piece int
	// Done ends the stream with so many [DONE].
	Done int
	// Padding puts so many bytes into a comment before the first event.
	Padding int

	// Cut, if it is not 0, closes the connection after so many bytes.
	Cut int
	// Page sends a page of HTML in place of a stream, with status 200.
	Page bool
	// Type is a content type in place of the right one.
	Type string
}

// Harmless are the ways that must change no answer, by name.
func Harmless() map[string]Spoil {
	return map[string]Spoil{
		"as it is":       {},
		"crlf":           {CRLF: true},
		"comments":       {Comments: true},
		"no blank":       {NoBlank: true},
		"fields":         {Fields: true},
		"single bytes":   {Piece: 1},
		"pieces of five": {Piece: 5, CRLF: true},
		"done":           {Done: 1},
		"done twice":     {Done: 2},
		"a long line":    {Padding: 1 << 20},
		"all of it":      {CRLF: true, Comments: true, NoBlank: true, Fields: true, Piece: 3, Done: 2, Padding: 5000},
	}
}

// Handler returns h with its event streams spoilt.
func (s Spoil) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &writer{ResponseWriter: w, s: s}
		h.ServeHTTP(out, r)
		out.close()
	})
}

// writer spoils what is written through it, event by event.
type writer struct {
	http.ResponseWriter
	s      Spoil
	begun  bool
	stream bool
	held   []byte // of an event that is not whole
	sent   int
}

// WriteHeader decides whether there is a stream to spoil.
func (w *writer) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	h := w.Header()
	if w.stream = status == http.StatusOK && strings.HasPrefix(h.Get("Content-Type"), "text/event-stream"); w.stream {
		switch {
		case w.s.Page:
			h.Set("Content-Type", "text/html")
		case w.s.Type != "":
			h.Set("Content-Type", w.s.Type)
		}
	}
	w.ResponseWriter.WriteHeader(status)
	if w.stream && w.s.Padding > 0 {
		w.send([]byte(":" + strings.Repeat("x", w.s.Padding) + "\n\n"))
	}
}

// Write takes bytes of the stream.
func (w *writer) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case !w.stream:
		return w.ResponseWriter.Write(text)
	case w.s.Page:
		return len(text), nil
	}
	w.held = append(w.held, text...)
	for {
		event, rest, ok := bytes.Cut(w.held, []byte("\n\n"))
		if !ok {
			return len(text), nil
		}
		w.event(event)
		w.held = append([]byte(nil), rest...)
	}
}

// Flush sends what is written, as far as events are whole.
func (w *writer) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func (w *writer) event(event []byte) {
	var out bytes.Buffer
	if w.s.Comments {
		out.WriteString(": still here\n\n")
	}
	if w.s.Fields {
		out.WriteString("event: message\nid: 7\n")
	}
	if w.s.NoBlank {
		event = bytes.ReplaceAll(event, []byte("data: "), []byte("data:"))
	}
	out.Write(event)
	out.WriteString("\n\n")
	w.send(out.Bytes())
}

// send writes bytes in pieces, up to where the connection is to be cut.
func (w *writer) send(text []byte) {
	if w.s.CRLF {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	cut := w.s.Cut > 0 && w.sent+len(text) >= w.s.Cut
	if cut {
		text = text[:w.s.Cut-w.sent]
	}
	w.sent += len(text)
	for len(text) > 0 {
		n := len(text)
		if w.s.Piece > 0 {
			n = min(n, w.s.Piece)
		}
		w.ResponseWriter.Write(text[:n]) //nolint:errcheck // the client has gone then
		if text = text[n:]; w.s.Piece > 0 && w.sent < 1<<16 {
			w.Flush()
		}
	}
	if cut {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
}

// close ends a stream.
func (w *writer) close() {
	switch {
	case !w.stream:
	case w.s.Page:
		w.ResponseWriter.Write([]byte("<html><body>It works!</body></html>")) //nolint:errcheck // the client has gone then
	default:
		if len(w.held) > 0 {
			w.send(w.held)
		}
		for range w.s.Done {
			w.send([]byte("data: [DONE]\n\n"))
		}
	}
}
