package frontend

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/router/peers"
)

// Peers takes in what other frontends tell of bindings; [peers.Peers] is one.
type Peers interface {
	// Hear takes in one message. The error is for whoever has sent it.
	Hear(body []byte) (peers.Heard, error)
}

func (s *Server) peerRoutes() []route {
	if s.Peers == nil {
		return nil
	}
	return []route{{"POST", "", peers.Path, s.changing(s.hearPeer)}}
}

// hearPeer answers POST /admin/router/bindings.
func (s *Server) hearPeer(w http.ResponseWriter, r *http.Request) {
	if tenant := exchangeOf(r).tenant; tenant != "" {
		s.refuse(w, refusal(http.StatusForbidden, "The key is that of tenant %s, and this is about the sessions of all: want a key without a tenant", tenant))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, peers.MaxMessage))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		s.refuse(w, refusal(http.StatusRequestEntityTooLarge, "The message is longer than %d bytes", peers.MaxMessage))
		return
	} else if err != nil {
		return // the peer has gone
	}
	heard, err := s.Peers.Hear(body)
	if err != nil {
		s.refuse(w, refusal(http.StatusBadRequest, "%s", err))
		return
	}
	s.object(w, http.StatusOK, heard)
}

// peersDescription is what the OpenAPI document tells of this route.
func peersDescription() openai.Description {
	return openai.Description{
		Operations: []openai.Operation{{
			Method: "post", Path: peers.Path, ID: "tellBindings", Summary: "Tell this frontend where another one has bound sessions",
			Body:   json.RawMessage(`{"type":"object","required":["router_id","bindings"],"properties":{"router_id":{"type":"string","description":"Of the router that tells."},"bindings":{"type":"array","maxItems":256,"items":{"type":"object","required":["model","session_id","worker_id","dp_rank","bound_by","number","ttl_s","timeout_s"],"properties":{"model":{"type":"string"},"session_id":{"type":"string"},"cache_salt":{"type":"string"},"role":{"enum":["prefill","encode"]},"tenant":{"type":"string"},"worker_id":{"type":"integer"},"dp_rank":{"type":"integer"},"epoch":{"type":"string","description":"The life of the worker, where it names that itself."},"bound_by":{"type":"string","description":"The router that has made the binding."},"number":{"type":"integer","description":"Which of that router's it is."},"ttl_s":{"type":"number","description":"How long it lives if nobody uses it; 0 is its end."},"timeout_s":{"type":"number"},"ephemeral":{"type":"boolean"},"explicit":{"type":"boolean"}}}}}}`),
			Answer: `{"type":"object","required":["router_id","adopted","ignored"],"properties":{"router_id":{"type":"string","description":"Of the router that has heard it."},"adopted":{"type":"integer"},"ignored":{"type":"integer"}}}`,
			Refusals: map[int]string{
				http.StatusBadRequest:            "The body is no such message",
				http.StatusForbidden:             "The server listens to other machines, and this route changes it; or the key is a tenant's",
				http.StatusRequestEntityTooLarge: "The message is too long",
			},
		}},
	}
}
