package frontend

import (
	"net/http"

	"github.com/dynago/dynago/openai"
)

// tokenize answers POST /tokenize and /v1/tokenize.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	s.quick(w, r, func(body []byte) ([]byte, error) {
		c, err := openai.DecodeTokenize(body, s.OpenAI)
		if err != nil {
			return nil, err
		}
		ids, contextLength, err := s.Backend.Tokenize(s.resolved(c.Request), c.GenerationPrompt)
		if err != nil {
			return nil, err
		}
		return openai.AppendTokens(nil, ids, contextLength), nil
	})
}

// detokenize answers POST /detokenize and /v1/detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	s.quick(w, r, func(body []byte) ([]byte, error) {
		c, err := openai.DecodeDetokenize(body, s.OpenAI)
		if err != nil {
			return nil, err
		}
		text, err := s.Backend.Detokenize(s.resolve(c.Model), c.Tokens)
		if err != nil {
			return nil, err
		}
		return openai.AppendPrompt(nil, text), nil
	})
}

// quick serves a route that answers a body at once and asks no worker.
func (s *Server) quick(w http.ResponseWriter, r *http.Request, answer func(body []byte) ([]byte, error)) {
	if !s.stage.enter() {
		s.refuseTo(w, exchangeOf(r), s.notReady())
		return
	}
	defer s.stage.leave()
	body, err := s.body(w, r)
	if err != nil {
		s.refuseTo(w, exchangeOf(r), err)
		return
	}
	out, err := answer(body)
	if err != nil {
		s.refuseTo(w, exchangeOf(r), err)
		return
	}
	s.respond(w, http.StatusOK, out) //nolint:errcheck // the client has gone, and nothing is left to do
}
