package frontend

import (
	"net/http"
	"strings"

	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// classHeader names the policy class, or the family of classes, of a request.
const classHeader = "X-Dynamo-Meta-Policy-Class"

// sessionHeader tells a client what became of its session, where that may surprise.
const sessionHeader = "X-Dynago-Session"

// beside is what comes with a request beside its body.
type beside struct {
	identity nvext.Identity
	class    string
}

// heed takes in what the headers of a request say, of which some wins over its
// body.
func (j *job) heed(h http.Header) {
	if !j.OpenAI.DisableNVExt {
		j.call.ext = j.call.ext.WithHeaders(h.Values)
	}
	j.beside = beside{
		identity: nvext.Sources{Header: h.Get, Ext: j.call.ext, PromptCacheKey: j.call.promptCacheKey}.Identity(),
		class:    strings.TrimSpace(h.Get(classHeader)),
	}
}

// session returns what an answer says of its session, or "".
func session(n *pipeline.Notes) string {
	if n.Session == router.SessionPinned {
		return "pinned"
	}
	return ""
}
