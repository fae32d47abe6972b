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
	debug    bool // the answer tells what the prompt shares with the one before
}

// heed takes in what the headers of a request say, of which some wins over its
// body.
func (j *job) heed(h http.Header) {
	if !j.OpenAI.DisableNVExt {
		j.call.ext = j.call.ext.WithHeaders(h.Values)
	}
	j.beside = beside{
		identity: nvext.Sources{Header: h.Get, Ext: j.call.ext, UserID: j.call.userID, PromptCacheKey: j.call.promptCacheKey}.Identity(),
		class:    strings.TrimSpace(h.Get(classHeader)),
		debug:    wantsDebug(h.Get(debugHeader)),
	}
}

// tell sets the headers that tell of the way to the answer.
func (j *job) tell(set func(name, value string), n *pipeline.Notes) {
	if s := session(n); s != "" {
		set(sessionHeader, s)
	}
	if j.beside.debug {
		set(debugHeader, debugReport(j.beside.identity.Key, n))
	}
}

// session returns what an answer says of its session, or "".
func session(n *pipeline.Notes) string {
	switch {
	case n.Degraded:
		return "degraded"
	case n.Session == router.SessionPinned:
		return "pinned"
	}
	return ""
}
