package frontend

import (
	_ "embed"
	"net/http"

	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/openai/responses"
)

//go:embed docs.html
var docsPage []byte

// docs is a small page that shows /openapi.json. It loads nothing from
// elsewhere, so it works on a machine without a network.
func (s *Server) docs(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'")
	w.Write(docsPage) //nolint:errcheck // the client has gone, and nothing is left to do
}

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	more := []openai.Description{responses.Description()}
	if !s.NoMessages {
		more = append(more, messagesDescription())
	}
	if s.KServe {
		more = append(more, v2Description(s.OverloadStatus))
	}
	if s.Prefetcher != nil {
		more = append(more, prefetchDescription())
	}
	if s.Tracing != nil && s.Tracing.Tools != nil {
		more = append(more, toolDescription())
	}
	if !s.NoAdmin && !s.SeparateAdmin {
		more = append(more, kvStatsDescription())
		if s.Roster != nil {
			more = append(more, workersDescription())
		}
		if s.Caretaker != nil {
			more = append(more, careDescription())
		}
		if s.Inventory != nil {
			more = append(more, inventoryDescription())
		}
		if s.Peers != nil {
			more = append(more, peersDescription())
		}
	}
	s.respond(w, http.StatusOK, openai.OpenAPI("dynago", s.Version, s.OverloadStatus, more...)) //nolint:errcheck // the client has gone, and nothing is left to do
}

// schemaRef refers to a schema by its name.
func schemaRef(name string) string { return `{"$ref":"#/components/schemas/` + name + `"}` }
