package nvext

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Identity says which agent a request comes from. It is passive: it says nothing
// of how the request is served, unless sessions are asked for.
type Identity struct {
	Run    string // the whole run of an agent
	Type   string // what kind of run that is
	Chain  string // the one chain of turns that the request continues
	Parent string // the chain that has started this one
	// Key is what sessions go by: the one that the client controls, else the chain.
	Key   string
	Final bool // nothing more of the chain will come
}

// Sources are all places where a request may say which agent it comes from. Each
// may be left out.
type Sources struct {
	// Header returns the value of a header, whatever the case of its name.
	Header         func(name string) string
	Ext            *Ext
	UserID         string // member metadata.user_id of Messages
	PromptCacheKey string // member prompt_cache_key
	SequenceID     string // parameter sequence_id of KServe
	SequenceEnd    bool   // its parameter sequence_end: nothing more of the sequence will come
}

// Identity returns what the sources say. The first of them that names a chain
// names its parent as well; they are never mixed. An id that is blank, longer than
// 256 bytes or no UTF-8 is as good as none.
func (s Sources) Identity() Identity {
	var id Identity
	id.Chain, id.Parent = s.chain()
	if id.Parent == id.Chain {
		id.Parent = ""
	}
	if id.Chain == "" {
		id.Chain = clean(s.SequenceID)
		id.Final = s.SequenceEnd
	}
	id.Key = id.Chain
	if id.Chain == "" {
		return Identity{}
	}
	if s.Ext != nil {
		if c := s.Ext.AgentContext; c != nil {
			id.Run, id.Type = c.SessionID, c.SessionTypeID
			id.Final = c.TrajectoryFinal != nil && *c.TrajectoryFinal
		}
		if c := s.Ext.SessionControl; c != nil {
			id.Key = c.SessionID
		}
	}
	if final := s.Final(); final != nil {
		id.Final = *final
	}
	return id
}

// truth reads a word that means yes or no; others are as good as none.
func truth(word string) *bool {
	switch strings.ToLower(word) {
	case "1", "true", "on", "yes":
		return new(true)
	case "0", "false", "off", "no":
		return new(false)
	}
	return nil
}

// idHeaders are the headers that name a chain or its parent.
var idHeaders = []string{
	"X-Dynamo-Session-Id", "X-Dynamo-Trajectory-Id", "X-Dynamo-Parent-Session-Id", "X-Dynamo-Parent-Trajectory-Id",
	"X-Claude-Code-Session-Id", "X-Claude-Code-Agent-Id", "X-Claude-Code-Parent-Agent-Id",
	"Thread-Id", "X-Codex-Parent-Thread-Id", "X-Session-Id", "X-Parent-Session-Id", "Session-Id", "X-Session-Affinity",
}

// Unusable names the headers, and the members of the body, that have an id which is as
// good as none although it is not blank.
func (s Sources) Unusable() (names []string) {
	bad := func(id string) bool { return clean(id) == "" && strings.TrimSpace(id) != "" }
	for _, name := range idHeaders {
		if s.Header != nil && bad(s.Header(name)) {
			names = append(names, strings.ToLower(name))
		}
	}
	if bad(userSession(s.UserID)) {
		names = append(names, "metadata.user_id")
	}
	if bad(s.PromptCacheKey) {
		names = append(names, "prompt_cache_key")
	}
	if bad(s.SequenceID) {
		names = append(names, "sequence_id")
	}
	return names
}

// chain returns the chain of the first source that has one, and the parent that
// the same source names. Sequences are the last source of all, and not in it.
func (s Sources) chain() (chain, parent string) {
	if id := s.header("X-Dynamo-Session-Id", "X-Dynamo-Trajectory-Id"); id != "" {
		return id, s.header("X-Dynamo-Parent-Session-Id", "X-Dynamo-Parent-Trajectory-Id")
	}
	if s.Ext != nil {
		if c := s.Ext.AgentContext; c != nil && c.TrajectoryID != "" {
			return c.TrajectoryID, c.ParentTrajectoryID
		}
		if c := s.Ext.SessionControl; c != nil && c.SessionID != "" {
			return c.SessionID, ""
		}
	}
	if root := s.header("X-Claude-Code-Session-Id"); root != "" {
		return s.claude(root)
	}
	if id := s.header("Thread-Id"); id != "" { // Codex
		return id, s.header("X-Codex-Parent-Thread-Id")
	}
	if id := s.header("X-Session-Id"); id != "" { // OpenCode
		return id, s.header("X-Parent-Session-Id")
	}
	return cmp.Or(
		s.header("Session-Id"),
		s.header("X-Session-Affinity"),
		clean(userSession(s.UserID)),
		clean(s.PromptCacheKey),
	), ""
}

// claude returns the chain of a request of Claude Code. An agent below the root has
// a chain of its own, and the root for a parent if it names no other.
func (s Sources) claude(root string) (chain, parent string) {
	agent := s.header("X-Claude-Code-Agent-Id")
	if agent == "" || agent == root {
		return root, ""
	}
	parent = s.header("X-Claude-Code-Parent-Agent-Id")
	if parent == "" || parent == agent {
		parent = root
	}
	return agent, parent
}

// header returns the first of these headers that has an id.
func (s Sources) header(names ...string) string {
	if s.Header == nil {
		return ""
	}
	for _, name := range names {
		if id := clean(s.Header(name)); id != "" {
			return id
		}
	}
	return ""
}

// userSession returns the member session_id of an object that a client has put into
// a string.
func userSession(userID string) string {
	if !strings.HasPrefix(strings.TrimSpace(userID), "{") {
		return ""
	}
	var user struct {
		Session any `json:"session_id"`
	}
	if json.Unmarshal([]byte(userID), &user) != nil {
		return ""
	}
	id, _ := user.Session.(string)
	return id
}

// clean trims an id, and drops one that cannot be used.
func clean(id string) string {
	if id = strings.TrimSpace(id); len(id) > maxID || !utf8.ValidString(id) {
		return ""
	}
	return id
}
