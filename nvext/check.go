package nvext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxID is the greatest length of a session or trajectory id, in bytes after
// trimming.
const maxID = 256

// MaxSalt is the greatest length of a cache salt, in bytes: each session is kept under
// the one of its tenant.
const MaxSalt = 1024

// WithSalt returns e with the cache salt that a body has beside its extension object,
// where that has none of its own. A nil e stays nil without a salt. e may be changed.
func (e *Ext) WithSalt(beside string) (*Ext, error) {
	if n := len(beside); n > MaxSalt {
		return nil, fmt.Errorf("cache_salt must have at most %d bytes, got %d", MaxSalt, n)
	}
	if beside == "" {
		return e, nil
	}
	if e == nil {
		e = new(Ext)
	}
	e.CacheSalt = cmp.Or(e.CacheSalt, beside)
	return e, nil
}

// check holds the rules that types do not express. It trims ids and URLs in
// place.
func (e *Ext) check() error {
	if e.TokenData != nil && len(e.TokenData) == 0 {
		return wrong("token_data", "must not be empty")
	}
	if _, ok := e.AgentHints.NextIn(); !ok {
		return wrong("agent_hints.next_request_in", "must be a time to come such as \"8s\", got %q", clip(e.AgentHints.NextRequestIn))
	}
	if n := len(e.CacheSalt); n > MaxSalt {
		return wrong("cache_salt", "must have at most %d bytes, got %d", MaxSalt, n)
	}
	if c := e.AgentContext; c != nil {
		for _, id := range []struct {
			name     string
			value    *string
			optional bool
		}{
			{"session_type_id", &c.SessionTypeID, false},
			{"session_id", &c.SessionID, false},
			{"trajectory_id", &c.TrajectoryID, false},
			{"parent_trajectory_id", &c.ParentTrajectoryID, true},
		} {
			if id.optional && *id.value == "" {
				continue
			}
			if err := checkID("agent_context."+id.name, id.value); err != nil {
				return err
			}
		}
	}
	if c := e.SessionControl; c != nil {
		if err := c.check(); err != nil {
			return err
		}
	}
	if c := e.CacheControl; c != nil {
		if c.Type != "" && c.Type != "ephemeral" {
			return wrong("cache_control.type", "must be ephemeral, got %q", clip(c.Type))
		}
		switch c.TTL.(type) {
		case nil, string, float64:
		default:
			return wrong("cache_control.ttl", "expected a string such as \"5m\", or a number of seconds")
		}
	}
	if e.Retention != nil {
		if err := e.Retention.check(); err != nil {
			return err
		}
	}
	if m := e.MetadataUpload; m != nil {
		if m.URL = strings.TrimSpace(m.URL); m.URL == "" {
			return wrong("metadata_upload.url", "is required and must not be blank")
		}
	}
	return nil
}

func checkID(path string, id *string) error {
	switch *id = strings.TrimSpace(*id); {
	case *id == "":
		return wrong(path, "is required and must not be blank")
	case len(*id) > maxID:
		return wrong(path, "must have at most %d bytes, got %d", maxID, len(*id))
	}
	return nil
}

func (c *SessionControl) check() error {
	if err := checkID("session_control.session_id", &c.SessionID); err != nil {
		return err
	}
	if c.Action != "" && !slices.Contains([]string{SessionOpen, SessionBind, SessionClose}, c.Action) {
		return wrong("session_control.action", "must be open, bind or close, got %q", clip(c.Action))
	}
	if c.Timeout != nil && *c.Timeout == 0 {
		return wrong("session_control.timeout", "session timeout must be greater than zero")
	}
	return nil
}

func (r *Retention) check() error {
	end, message := uint32(0), -1 // of the ranges before
	for i := range r.Ranges {
		at, this := "retention.ranges["+strconv.Itoa(i)+"]", &r.Ranges[i]
		if err := this.check(at); err != nil {
			return err
		}
		switch {
		case this.Message != nil && (this.Start != 0 || this.End != nil):
			return wrong(at+".message", "stands for start and end; give one or the other")
		case this.Message != nil && int(*this.Message) <= message:
			return wrong(at+".message", "must be greater than that of the range before, got %d after %d", *this.Message, message)
		case this.Message != nil:
			message = int(*this.Message)
			continue
		case this.End == nil && i < len(r.Ranges)-1:
			return wrong(at+".end", "may be left out in the last range only")
		case this.End != nil && *this.End <= this.Start:
			return wrong(at+".end", "must be greater than start, got %d after %d", *this.End, this.Start)
		case this.Start < end:
			return wrong(at+".start", "must not lie before the end of the range before, got %d before %d", this.Start, end)
		}
		if this.End != nil {
			end = *this.End
		}
	}
	if d := r.Decode; d != nil {
		if d.Start != 0 || d.End != nil || d.Message != nil {
			return wrong("retention.decode", "is about the whole answer: start, end and message have no place in it")
		}
		return d.check("retention.decode")
	}
	return nil
}

func (r *RetentionRange) check(at string) error {
	switch {
	case r.Priority == nil:
		return wrong(at+".priority", "is required, from 0 to %d", maxRetentionPriority)
	case *r.Priority > maxRetentionPriority:
		return wrong(at+".priority", "must be from 0 to %d, got %d", maxRetentionPriority, *r.Priority)
	}
	switch r.TTL.(type) {
	case nil, string, float64:
	default:
		return wrong(at+".ttl", "expected a string such as \"5m\", or a number of seconds")
	}
	if r.TTL != nil && r.DurationMS != nil {
		return wrong(at+".ttl", "is the same as duration_ms; give one of them")
	}
	return nil
}

// maxRetentionPriority is the greatest worth, and mostRanges how many ranges may have
// one.
const (
	maxRetentionPriority = 100
	mostRanges           = 64
)

// clip shortens what a client sent for use in a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}
