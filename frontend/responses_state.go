package frontend

import (
	"net/http"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses/store"
)

// responsesRoutes are the routes for what is left of responses.
func (s *Server) responsesRoutes() []route {
	const one = responsesPath + "/{id}"
	return []route{
		{"POST", "", responsesPath + "/compact", s.answer(compactAPI{s})},
		{"POST", "", responsesPath + "/input_tokens", s.countInput},
		{"GET", "", responsesPath, s.talk},
		{"GET", "", one, s.showResponse},
		{"DELETE", "", one, s.deleteResponse},
		{"POST", "", one + "/cancel", s.cancelResponse},
		{"GET", "", one + "/input_items", s.listInputItems},
	}
}

// responseNotFound is the error of an id that this client cannot ask for.
func responseNotFound(id string) *wire.Error {
	return &wire.Error{
		Status: http.StatusNotFound, Message: "Response with id '" + clip(id) + "' not found.",
		Type: "invalid_request_error", Param: "response_id", Code: "response_not_found",
	}
}

// keyOf returns which response a path names, to this client.
func keyOf(r *http.Request) owned { return owned{exchangeOf(r).tenant, r.PathValue("id")} }

// stored returns a response that is not being made here.
func (s *Server) stored(key owned) (*store.Record, error) {
	if s.ResponsesStore != nil {
		if r, ok := s.ResponsesStore.Get(key.tenant, key.id); ok {
			return r, nil
		}
	}
	return nil, responseNotFound(key.id)
}

// madeElsewhere is the error of a response that another server is making, where
// only that one could do what is asked for.
func madeElsewhere(id, what string) *wire.Error {
	return &wire.Error{
		Status: http.StatusConflict, Type: "invalid_request_error", Param: "response_id", Code: "response_in_progress",
		Message: "Response with id '" + clip(id) + "' is being made by another server, which alone can " + what + ": ask again when it has ended, or ask that server",
	}
}

// objectOf returns the object of a stored response. One whose server has ended in
// the middle has failed.
func objectOf(r *store.Record) []byte {
	object := r.AppendObject(nil)
	if !r.Lost {
		return object
	}
	dst := []byte{'{'}
	in := wire.NewReader(object, "")
	in.Object("a response object", func(name []byte) error { //nolint:errcheck // it was read when it was stored
		value, err := in.Raw()
		switch string(name) {
		case "status":
			value = []byte(`"failed"`)
		case "error":
			value = []byte(`{"code":"server_error","message":"The server that made this response has ended"}`)
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, string(name)), ':')
		dst = append(dst, value...)
		return err
	})
	return append(dst, '}')
}

// showResponse answers GET /v1/responses/{id}: with the response as it is now, or
// with its events.
func (s *Server) showResponse(w http.ResponseWriter, r *http.Request) {
	key, query := keyOf(r), r.URL.Query()
	stream, err := flagOf(query.Get("stream"), "stream")
	if err != nil {
		s.refuse(w, err)
		return
	}
	first := 0
	if after := query.Get("starting_after"); after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 || !stream {
			s.refuse(w, wire.Invalid("starting_after", "starting_after must be the number of an event, together with stream=true, got %q", wire.Clip(after)))
			return
		}
		first = n + 1
	}
	if !s.stage.enter() {
		s.refuse(w, s.notReady())
		return
	}
	defer s.stage.leave()
	if k := s.keeper.find(key); k != nil {
		if stream && !k.stored {
			s.refuse(w, wire.Invalid("stream", "The events of a response that is not stored are for the client that has asked for it"))
		} else if stream {
			s.replay(w, r, k, first)
		} else {
			s.respond(w, http.StatusOK, k.object()) //nolint:errcheck // the client has gone, and nothing is left to do
		}
		return
	}
	record, err := s.stored(key)
	if err != nil {
		s.refuse(w, err)
		return
	}
	if !stream {
		s.respond(w, http.StatusOK, objectOf(record)) //nolint:errcheck // the client has gone, and nothing is left to do
		return
	}
	if !record.Finished() && !record.Lost {
		s.refuse(w, madeElsewhere(key.id, "send its events"))
		return
	}
	tape, err := store.OpenTape(record.Events)
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.replay(w, r, finished{tape}, first)
}

// finished is a stream that has ended. It implements [recorded].
type finished struct{ tape *store.Tape }

func (f finished) from(n int) ([]byte, int, <-chan struct{}, error) {
	if n >= f.tape.Len() {
		return nil, n, nil, nil
	}
	events, next, err := f.tape.From(n)
	return events, next, nil, err
}

// deleteResponse answers DELETE /v1/responses/{id}. A response that is being made
// is stopped.
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request) {
	key := keyOf(r)
	found := false
	if k := s.keeper.find(key); k != nil {
		found = true
		if k.halt(r.Context()) != nil {
			return // the client has gone
		}
	}
	if record, err := s.stored(key); err == nil {
		if !record.Finished() && !record.Lost {
			s.refuse(w, madeElsewhere(key.id, "delete it"))
			return
		}
		found = s.ResponsesStore.Delete(key.tenant, key.id) || found
	}
	if !found {
		s.refuse(w, responseNotFound(key.id))
		return
	}
	body := wire.AppendString([]byte(`{"id":`), key.id)
	s.respond(w, http.StatusOK, append(body, `,"object":"response","deleted":true}`...)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// cancelResponse answers POST /v1/responses/{id}/cancel with the response as it
// has become. One that has ended stays as it is.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request) {
	key := keyOf(r)
	if k := s.keeper.find(key); k != nil {
		if k.halt(r.Context()) != nil {
			return // the client has gone
		}
		s.respond(w, http.StatusOK, k.object()) //nolint:errcheck // the client has gone, and nothing is left to do
		return
	}
	record, err := s.stored(key)
	if err != nil {
		s.refuse(w, err)
		return
	}
	if !record.Finished() && !record.Lost {
		s.refuse(w, madeElsewhere(key.id, "cancel it"))
		return
	}
	s.respond(w, http.StatusOK, objectOf(record)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// flagOf reads a query parameter that is true or false; absent is false.
func flagOf(text, name string) (bool, error) {
	switch text {
	case "":
		return false, nil
	case "true", "True", "1":
		return true, nil
	case "false", "False", "0":
		return false, nil
	}
	return false, wire.Invalid(name, "%s must be true or false, got %q", name, wire.Clip(text))
}
