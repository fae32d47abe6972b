// Package hostile stands before an engine's server and spoils the streams that
// it sends: in ways that mean nothing, which every adapter has to bear, and in
// ways that cost the answer, which none may take for one.
//
// The one idea: what is spoilt are the bytes of a stream, of events or of lines,
// whichever engine wrote them. Everything else passes as it is.
package hostile

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Spoil is a way to spoil a stream. The zero value passes it as it is.
type Spoil struct {
	// CRLF ends lines as HTTP does.
	CRLF bool
	// Comments puts a comment before every event; before a line of a stream of
	// lines, a blank one.
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

	// Cut, if it is not 0, closes the connection after so many bytes. Short ends
	// the stream there, as if it were whole, and Stall sends nothing more from there
	// on, until the client has gone.
	Cut, Short, Stall int
	// Drip sends comments behind the first event, and nothing else, until the
	// client has gone.
	Drip bool
	// Broken puts an event before every other one that is no JSON.
	Broken bool
	// Status answers with it, and with a body that tells of an error.
	Status int
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

// HarmlessLines are those that streams of lines have.
func HarmlessLines() map[string]Spoil {
	return map[string]Spoil{
		"as it is":       {},
		"crlf":           {CRLF: true},
		"blank lines":    {Comments: true},
		"single bytes":   {Piece: 1},
		"pieces of five": {Piece: 5, CRLF: true, Comments: true},
	}
}

// Harmful are the ways that cost an answer or what is left of it, by name. None of
// them ends without the client's doing but those that end the stream.
func Harmful() map[string]Spoil {
	return map[string]Spoil{
		"a failure":              {Status: http.StatusInternalServerError},
		"closes at once":         {Cut: 1},
		"closes early":           {Cut: 150},
		"half an event":          {Short: 150},
		"no JSON":                {Broken: true},
		"a page":                 {Page: true},
		"another type":           {Type: "text/plain"},
		"hangs before anything":  {Stall: 1},
		"hangs within an event":  {Stall: 150},
		"comments and no events": {Drip: true},
	}
}

// Hangs says whether the client has to leave for the stream to end.
func (s Spoil) Hangs() bool { return s.Stall > 0 || s.Drip }

// Handler returns h with its streams spoilt.
func (s Spoil) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &writer{ResponseWriter: w, s: s, gone: r.Context()}
		h.ServeHTTP(out, r)
		out.close()
	})
}

// writer spoils what is written through it, event by event.
type writer struct {
	http.ResponseWriter
	s     Spoil
	gone  context.Context
	begun bool
	end   string // of an event, or of a line; "": there is no stream to spoil
	held  []byte // of an event that is not whole
	sent  int
	over  bool
}

// WriteHeader decides whether there is a stream to spoil.
func (w *writer) WriteHeader(status int) {
	if w.begun {
		return
	}
	w.begun = true
	h := w.Header()
	switch kind := h.Get("Content-Type"); {
	case status != http.StatusOK:
	case strings.HasPrefix(kind, "text/event-stream"):
		w.end = "\n\n"
	case strings.HasPrefix(kind, "application/x-ndjson"):
		w.end = "\n"
	}
	if w.end != "" {
		switch {
		case w.s.Status != 0:
			h.Set("Content-Type", "application/json")
			status, w.over = w.s.Status, true
		case w.s.Page:
			h.Set("Content-Type", "text/html")
			w.over = true
		case w.s.Type != "":
			h.Set("Content-Type", w.s.Type)
		}
	}
	w.ResponseWriter.WriteHeader(status)
	switch {
	case w.end == "":
	case w.s.Status != 0:
		io.WriteString(w.ResponseWriter, `{"error":{"message":"something is wrong","type":"server_error"}}`) //nolint:errcheck // the client has gone then
	case w.s.Page:
		io.WriteString(w.ResponseWriter, "<html><body>It works!</body></html>") //nolint:errcheck // the client has gone then
	case w.s.Padding > 0:
		w.send([]byte(":" + strings.Repeat("x", w.s.Padding) + "\n\n"))
	}
}

// Write takes bytes of the stream.
func (w *writer) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.end == "":
		return w.ResponseWriter.Write(text)
	case w.over:
		return len(text), nil
	}
	w.held = append(w.held, text...)
	for {
		event, rest, ok := bytes.Cut(w.held, []byte(w.end))
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
	lines := w.end == "\n"
	var out bytes.Buffer
	switch {
	case w.s.Comments && lines:
		out.WriteString("\n")
	case w.s.Comments:
		out.WriteString(": still here\n\n")
	}
	if w.s.Fields {
		out.WriteString("event: message\nid: 7\n")
	}
	if w.s.NoBlank {
		event = bytes.ReplaceAll(event, []byte("data: "), []byte("data:"))
	}
	switch {
	case w.s.Broken && lines:
		out.WriteString("{\"done\":fal\n")
	case w.s.Broken:
		out.WriteString("data: {\"choices\":[{]\n\n")
	}
	out.Write(event)
	out.WriteString(w.end)
	w.send(out.Bytes())
	if w.s.Drip {
		w.drip()
	}
}

// drip sends comments, which a stream of lines has none of but blanks.
func (w *writer) drip() {
	comment := ":\n\n"
	if w.end == "\n" {
		comment = "\n"
	}
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for w.gone.Err() == nil {
		select {
		case <-every.C:
			io.WriteString(w.ResponseWriter, comment) //nolint:errcheck // the client has gone then
			w.Flush()
		case <-w.gone.Done():
		}
	}
	panic(http.ErrAbortHandler)
}

// send writes bytes in pieces, up to where the stream is to end.
func (w *writer) send(text []byte) {
	if w.over {
		return
	}
	if w.s.CRLF {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	most := max(w.s.Cut, w.s.Short, w.s.Stall)
	if w.over = most > 0 && w.sent+len(text) >= most; w.over {
		text = text[:most-w.sent]
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
	if !w.over {
		return
	}
	w.Flush()
	if w.s.Stall > 0 {
		<-w.gone.Done()
	}
	if w.s.Short == 0 {
		panic(http.ErrAbortHandler)
	}
}

// close ends a stream.
func (w *writer) close() {
	if w.end == "" || w.over {
		return
	}
	if len(w.held) > 0 {
		w.send(w.held)
	}
	for range w.s.Done {
		w.send([]byte("data: [DONE]\n\n"))
	}
}
