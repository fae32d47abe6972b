package nvext

import (
	"slices"
	"strconv"
	"strings"
)

// maxID is the greatest length of a session or trajectory id, in bytes after
// trimming.
const maxID = 256

// check holds the rules that types do not express. It trims ids and URLs in
// place.
func (e *Ext) check() error {
	if e.TokenData != nil && len(e.TokenData) == 0 {
		return wrong("token_data", "must not be empty")
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
	if c.Action != "" && !slices.Contains([]string{"open", "bind", "close"}, c.Action) {
		return wrong("session_control.action", "must be open, bind or close, got %q", clip(c.Action))
	}
	if c.Timeout != nil && *c.Timeout == 0 {
		return wrong("session_control.timeout", "session timeout must be greater than zero")
	}
	return nil
}

func (r *Retention) check() error {
	const most = 64
	if len(r.Ranges) > most {
		return wrong("retention.ranges", "must hold at most %d ranges, got %d", most, len(r.Ranges))
	}
	for i := range r.Ranges {
		at, this := "retention.ranges["+strconv.Itoa(i)+"]", &r.Ranges[i]
		switch {
		case this.Priority > maxRetentionPriority:
			return wrong(at+".priority", "must be from 0 to %d, got %d", maxRetentionPriority, this.Priority)
		case this.End == nil && i < len(r.Ranges)-1:
			return wrong(at+".end", "may be left out in the last range only")
		case this.End != nil && *this.End <= this.Start:
			return wrong(at+".end", "must be greater than start, got %d after %d", *this.End, this.Start)
		case i > 0 && *r.Ranges[i-1].End > this.Start:
			return wrong(at+".start", "must not lie before the end of the range before, got %d before %d", this.Start, *r.Ranges[i-1].End)
		}
	}
	if r.Decode != nil && r.Decode.Priority > maxRetentionPriority {
		return wrong("retention.decode.priority", "must be from 0 to %d, got %d", maxRetentionPriority, r.Decode.Priority)
	}
	return nil
}

const maxRetentionPriority = 100

// clip shortens what a client sent for use in a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "\uFFFD") + "…"
}
