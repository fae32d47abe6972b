package frontend

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// sessionHeader tells a client what became of its session, where that may surprise.
const sessionHeader = "X-Dynago-Session"

// beside is what comes with a request beside its body.
type beside struct {
	identity nvext.Identity
	meta     map[string]string // for workers
	caps     *nvext.Caps       // of the tenant; nil: none
	debug    bool              // the answer tells what the prompt shares with the one before
}

// heed takes in what the headers of a request say, of which some wins over its
// body, and holds the whole to what its tenant may ask for. Where the extension is
// turned off, headers say who asks and nothing else.
func (j *job) heed(h http.Header) error {
	if j.OpenAI.DisableNVExt {
		j.turnedOff(h)
	} else if err := j.extend(h); err != nil {
		return err
	}
	sources := nvext.Sources{
		Ext: j.call.ext, UserID: j.call.userID, PromptCacheKey: j.call.promptCacheKey,
		SequenceID: j.call.sequenceID, SequenceEnd: j.call.sequenceEnd,
	}
	if len(h) > 0 {
		sources.Header = h.Get
	}
	j.beside.identity = sources.Identity()
	j.record.traced = j.traced(sources)
	if j.Logger.Enabled(context.Background(), slog.LevelDebug) {
		if bad := sources.Unusable(); len(bad) > 0 {
			j.Logger.Debug("ids of sessions cannot be used and are passed over", "request_id", j.x.id, "where", bad)
		}
	}
	return nil
}

// extend adds to the extension of the body what headers say. Many calls over gRPC
// have none, for which nothing is looked up.
func (j *job) extend(h http.Header) (err error) {
	if len(h) > 0 {
		if j.beside.meta, err = metadata(h, j.MetadataHeader); err != nil {
			return err
		}
		j.beside.debug = wantsDebug(h.Get(debugHeader))
		var bad []string
		if j.call.ext, bad = j.call.ext.WithHeaders(h.Values); len(bad) > 0 {
			j.Logger.Debug("headers cannot be read and are passed over", "request_id", j.x.id, "headers", bad)
		}
	}
	j.upload()
	j.cap()
	return nil
}

// cap holds hints to the caps of the tenant. What is capped of retention is so where
// that is made.
func (j *job) cap() {
	j.beside.caps = j.Tenants[j.x.tenant]
	if j.call.ext == nil {
		return
	}
	var beyond []string
	j.call.ext.AgentHints, beyond = j.beside.caps.Hints(j.call.ext.AgentHints)
	for _, name := range beyond {
		j.metrics.capped.WithLabelValues(j.x.tenant, name).Inc()
	}
}

// turnedOff says that the operator does not let a client have what it asks for.
func (j *job) turnedOff(h http.Header) {
	if headers := nvext.HasHeaders(h.Values); j.call.extDropped || headers {
		j.Logger.Warn("nvext is turned off: the request is served without", "request_id", j.x.id, "body", j.call.extDropped, "headers", headers)
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
	case n.Session == router.SessionUnknown:
		return "unknown"
	}
	return ""
}

// inSession returns what workers are told of the session that a request is of.
func inSession(id *nvext.Identity, ext *nvext.Ext) kv.Directives {
	d := kv.Directives{Session: kv.Session{ID: id.Key, Parent: id.Parent}, EvictSession: id.Final}
	if ext == nil || ext.SessionControl == nil {
		return d
	}
	c := ext.SessionControl
	d.EvictSession = d.EvictSession || c.Ends()
	d.Session.Ephemeral = c.Ephemeral != nil && *c.Ephemeral
	if c.Timeout != nil {
		d.Session.Timeout = time.Duration(*c.Timeout) * time.Second
	}
	return d
}
