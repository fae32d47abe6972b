package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/go-json-experiment/json/jsontext"
)

// asks takes what a client asked of router and caches from the extension object
// of its request, which is member field of the line.
func (l *line[T]) asks(field string, object jsontext.Value, r *Request) error {
	if len(object) == 0 {
		return nil
	}
	ext, _, err := nvext.Decode(object, false)
	if wrong, ok := errors.AsType[*nvext.Error](err); ok {
		return l.fault(field+strings.TrimPrefix(wrong.Path, "nvext"), "%s", wrong.Want)
	}
	if err != nil {
		return l.fault(field, "%v", err)
	}
	if ext == nil {
		return nil
	}
	r.KV.Namespace.Salt = ext.CacheSalt
	if h := ext.AgentHints; h != nil {
		// What the row itself says of its priority is said to the router.
		if r.KV.Priority = h.Priority; h.Priority != nil && r.Priority == 0 {
			r.Priority = float64(*h.Priority)
		}
		if h.StrictPriority != nil && r.StrictPriority == 0 {
			r.StrictPriority = *h.StrictPriority
		}
		r.KV.NextIn, _ = h.NextIn() // one that cannot be read was refused above
	}
	if c := ext.CacheControl; c != nil {
		ttl, ok := c.Lifetime()
		if !ok {
			return l.fault(field+".cache_control.ttl", "got %v, want a time such as \"5m\", or a number of seconds", c.TTL)
		}
		r.KV.Pins = []kv.Pin{{UpTo: uint32(r.Prompt.Len()), TTL: ttl}}
	}
	if s := ext.SessionControl; s != nil {
		r.KV.Session.ID = s.SessionID
		if s.Timeout != nil {
			r.KV.Session.Timeout = time.Duration(*s.Timeout) * time.Second
		}
		r.KV.Session.Ephemeral = s.Ephemeral != nil && *s.Ephemeral
		r.KV.EvictSession = s.Ends()
	}
	if k := ext.Retention; k != nil {
		for i, g := range k.Ranges {
			if g.Message != nil {
				return l.fault(fmt.Sprintf("%s.retention.ranges[%d].message", field, i), "a row has tokens, and no messages: give start and end")
			}
			ttl, _ := g.Lifetime()
			r.KV.Ranges = append(r.KV.Ranges, kv.Range{Start: g.Start, End: g.End, Priority: *g.Priority, TTL: ttl})
		}
		if d := k.Decode; d != nil {
			r.KV.DecodePriority = d.Priority
			r.KV.DecodeTTL, _ = d.Lifetime()
		}
	}
	return nil
}

// extension returns the object from which asks would read what a request asks, or
// nil if that is nothing.
func extension(r *Request) (*nvext.Ext, error) {
	d := &r.KV
	var ext nvext.Ext
	any := false
	ext.CacheSalt = d.Namespace.Salt
	if any = ext.CacheSalt != ""; d.Priority != nil || d.NextIn > 0 {
		any, ext.AgentHints = true, &nvext.Hints{Priority: d.Priority}
		if d.NextIn > 0 {
			ext.AgentHints.NextRequestIn = d.NextIn.String()
		}
	}
	for i, p := range d.Pins {
		if i > 0 || p.Hard || int(p.UpTo) != r.Prompt.Len() || p.TTL%time.Second != 0 {
			return nil, fmt.Errorf("a pin of %d of %d tokens for %v", p.UpTo, r.Prompt.Len(), p.TTL)
		}
		any, ext.CacheControl = true, &nvext.CacheControl{Type: "ephemeral", TTL: float64(p.TTL / time.Second)}
	}
	if s := d.Session; s != (kv.Session{}) || d.EvictSession {
		any, ext.SessionControl = true, &nvext.SessionControl{SessionID: cmp.Or(s.ID, r.Session)}
		if s.Timeout > 0 {
			seconds := uint32(min(s.Timeout/time.Second, math.MaxUint32))
			ext.SessionControl.Timeout = &seconds
		}
		if s.Ephemeral {
			ext.SessionControl.Ephemeral = &s.Ephemeral
		}
		if d.EvictSession {
			ext.SessionControl.Action = nvext.SessionClose
		}
	}
	if len(d.Ranges) > 0 || d.DecodePriority != nil {
		any, ext.Retention = true, &nvext.Retention{}
		for _, g := range d.Ranges {
			ext.Retention.Ranges = append(ext.Retention.Ranges, nvext.RetentionRange{Start: g.Start, End: g.End, Priority: &g.Priority, DurationMS: inWholeMS(g.TTL)})
		}
		if d.DecodePriority != nil {
			ext.Retention.Decode = &nvext.RetentionRange{Priority: d.DecodePriority, DurationMS: inWholeMS(d.DecodeTTL)}
		}
	}
	if d.Class != kv.ClassNormal || d.SkipWrite {
		return nil, errors.New("blocks that are to go first, or not to be written")
	}
	if !any {
		return nil, nil
	}
	return &ext, nil
}

func inWholeMS(d time.Duration) *uint64 {
	if d <= 0 {
		return nil
	}
	ms := uint64(d / time.Millisecond)
	return &ms
}
