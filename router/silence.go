package router

import (
	"context"
	"time"

	"github.com/dynago/dynago/kv"
)

// silence is how long a target has told of nothing, although it served prompts of
// which it has to tell. A rank may publish on a host or a port where nobody listens,
// and everything else about it looks well: it answers, and its other ranks tell. It
// is plain data; zero is a target that tells.
type silence struct {
	since   time.Time // the first of them ended
	prompts int       // since then
	alarmed bool
}

const (
	// tooSilent is how long a target may serve prompts and tell of nothing, and
	// fewestSilent how many prompts that takes: of a single one there may be nothing
	// to tell, if it was cached and the index did not know.
	tooSilent    = time.Minute
	fewestSilent = 4
)

// served notes that a prompt has been computed, and says whether it is now that the
// silence has become too long.
func (s *silence) served(now time.Time) (alarm bool) {
	if s.prompts == 0 {
		s.since = now
	}
	if s.prompts++; s.alarmed || s.prompts < fewestSilent || now.Sub(s.since) < tooSilent {
		return false
	}
	s.alarmed = true
	return true
}

// served notes that a target in a life of it has computed blocks of which it has to
// tell.
func (w *watch) served(t kv.Target, life context.Context, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if life.Err() != nil {
		return
	}
	v := w.view(t)
	if v.prompts == 0 {
		w.quiet.Add(1)
	}
	if v.silence.served(now) {
		w.log.Warn("a rank serves prompts and tells of no KV event: does it publish where its worker's card says? nothing is known of its cache",
			"target", t.String(), "prompts", v.prompts, "for", now.Sub(v.since))
	}
}

// heard notes that a target has told of something.
func (w *watch) heard(t kv.Target) {
	if w.quiet.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.views[t]
	if v == nil || v.prompts == 0 {
		return
	}
	w.quiet.Add(-1)
	if v.alarmed {
		w.log.Info("a rank tells of KV events again", "target", t.String())
	}
	v.silence = silence{}
}
