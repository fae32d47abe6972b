package frontend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/pipeline"
)

// Alias lets clients ask for a model by other names: those that they are set to,
// for instance, such as claude-*.
type Alias struct {
	// Pattern is a name, in which each * stands for any letters, also none.
	Pattern string
	Name    string // of the model
}

// ParseAlias reads PATTERN=NAME.
func ParseAlias(s string) (Alias, error) {
	pattern, name, ok := strings.Cut(s, "=")
	a := Alias{strings.TrimSpace(pattern), strings.TrimSpace(name)}
	if !ok || a.Pattern == "" || a.Name == "" || strings.Contains(a.Name, "*") {
		return Alias{}, fmt.Errorf("%q: want PATTERN=NAME, such as claude-*=my/model", s)
	}
	return a, nil
}

// literal tells that the alias is one name.
func (a Alias) literal() bool { return !strings.Contains(a.Pattern, "*") }

// matches tells that a client may mean the alias by a name.
func (a Alias) matches(name string) bool {
	parts := strings.Split(a.Pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[last])
}

// resolve returns the name of the model that a client asks for: one that there is,
// or else what the first alias that matches stands for.
func (s *Server) resolve(name string) string {
	if len(s.Aliases) == 0 || s.names.primary(name) != "" {
		return name
	}
	if i := slices.IndexFunc(s.Aliases, func(a Alias) bool { return a.matches(name) }); i >= 0 {
		return s.Aliases[i].Name
	}
	return name
}

// resolved returns a request of which the model's name is resolved.
func (s *Server) resolved(r *chat.Request) *chat.Request {
	name := s.resolve(r.Model)
	if name == r.Model {
		return r
	}
	c := *r
	c.Model = name
	return &c
}

// filled returns a request with what the operator's template says and it does not.
// Completions are let alone; chat completions are filled while they are decoded.
func (s *Server) filled(r *chat.Request) *chat.Request {
	if s.OpenAI.Template == nil || r.API != chat.APIResponses && r.API != chat.APIMessages {
		return r
	}
	c := *r
	s.OpenAI.Template.Fill(&c.Sampling)
	return &c
}

// listed returns the aliases that are one name, as models that can be asked for
// now. Names that models have themselves are not among them.
func (s *Server) listed(models []pipeline.ModelInfo, created int64) (list []openai.Model) {
	named := func(name string) int {
		return slices.IndexFunc(models, func(m pipeline.ModelInfo) bool { return m.ID == name || slices.Contains(m.Aliases, name) })
	}
	seen := map[string]bool{}
	for _, a := range s.Aliases {
		if i := named(a.Name); a.literal() && !seen[a.Pattern] && i >= 0 && models[i].Ready && named(a.Pattern) < 0 {
			seen[a.Pattern] = true
			list = append(list, s.modelOf(a.Pattern, models[i], created))
		}
	}
	return list
}
