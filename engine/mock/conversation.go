package mock

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/go-json-experiment/json/jsontext"
)

// conversation is what the rules of a script look at.
type conversation struct {
	user string // last text of the user
	// answered says that a tool has answered since the assistant last spoke;
	// result is the last such answer and tool where it came from.
	answered     bool
	result, tool string
	system       string
	model        string
	turn         int // how often the assistant has spoken
	tools        []string
}

func read(r *chat.Request) conversation {
	c := conversation{model: r.Model, system: text(r.System)}
	for _, t := range r.Tools {
		c.tools = append(c.tools, t.Name)
	}
	if r.Prompt != nil {
		c.user = r.Prompt.Text
		return c
	}
	calls := make(map[string]string) // id to name
	for _, t := range r.Turns {
		switch t.Role {
		case chat.RoleAssistant:
			c.turn++
			c.answered, c.result, c.tool = false, "", ""
		case chat.RoleSystem, chat.RoleDeveloper:
			c.system += text(t.Blocks)
		case chat.RoleUser:
			if s := text(t.Blocks); s != "" {
				c.user = s
			}
		}
		for _, b := range t.Blocks {
			switch {
			case b.Use != nil:
				calls[b.Use.ID] = b.Use.Name
			case b.Result != nil:
				c.answered, c.result, c.tool = true, text(b.Result.Blocks), b.Result.Name
				if c.tool == "" {
					c.tool = calls[b.Result.ID]
				}
			}
		}
	}
	return c
}

// text joins the text blocks.
func text(blocks []chat.Block) string {
	var s string
	for _, b := range blocks {
		if b.Kind == chat.Text {
			s += b.Text
		}
	}
	return s
}

// match says whether all conditions hold, and returns what their expressions
// caught.
func (w *when) match(c *conversation) (caught map[string]string, ok bool) {
	switch {
	case !strings.Contains(c.user, w.User),
		!c.answered && (w.Result != "" || w.ResultRegexp != nil || w.Tool != ""),
		!strings.Contains(c.result, w.Result),
		w.Tool != "" && w.Tool != c.tool,
		w.Turn != nil && *w.Turn != c.turn,
		w.HasTools != nil && *w.HasTools != (len(c.tools) > 0),
		w.Offers != "" && !slices.Contains(c.tools, w.Offers),
		!strings.Contains(c.system, w.System),
		w.Model != "" && w.Model != c.model:
		return nil, false
	}
	caught = map[string]string{
		"user": c.user, "result": c.result, "tool": c.tool, "turn": strconv.Itoa(c.turn), "model": c.model,
	}
	return caught, w.UserRegexp.catch("user", c.user, caught) && w.ResultRegexp.catch("result", c.result, caught)
}

// catch adds the groups of p in s under prefix.number and prefix.name.
func (p *pattern) catch(prefix, s string, caught map[string]string) bool {
	if p == nil {
		return true
	}
	m := p.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	for i, name := range p.SubexpNames() {
		caught[prefix+"."+strconv.Itoa(i)] = m[i]
		if name != "" {
			caught[prefix+"."+name] = m[i]
		}
	}
	return true
}

// placeholder is {{name}} or {{name|json}} in an emission.
var placeholder = regexp.MustCompile(`\{\{([a-z]+(?:\.\w+)?)(\|\w+)?\}\}`)

// checkPlaceholders returns an error for a name that no conversation could fill.
func (r *rule) checkPlaceholders(text string) error {
	empty := &conversation{}
	known, _ := (&when{}).match(empty)
	for prefix, p := range map[string]*pattern{"user": r.When.UserRegexp, "result": r.When.ResultRegexp} {
		if p == nil {
			continue
		}
		for i, name := range p.SubexpNames() {
			known[prefix+"."+strconv.Itoa(i)] = ""
			known[prefix+"."+name] = ""
		}
	}
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if _, ok := known[m[1]]; !ok {
			return fmt.Errorf("nothing fills %s: want user, result, tool, turn, model, or a group of user_regexp or result_regexp such as user.1", m[0])
		}
		if m[2] != "" && m[2] != "|json" {
			return fmt.Errorf("%s asks for a form that is unknown: want {{%s}} or {{%s|json}}", m[0], m[1], m[1])
		}
	}
	return nil
}

// fill puts what was caught into an emission; with |json as the inside of a
// JSON string.
func fill(text string, caught map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(s string) string {
		m := placeholder.FindStringSubmatch(s)
		v := caught[m[1]]
		if m[2] == "" {
			return v
		}
		quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(v, "\uFFFD"))
		if err != nil {
			return ""
		}
		return string(quoted[1 : len(quoted)-1])
	})
}

// choose returns the first rule that matches and may still be used, and books
// the use.
func (s *Script) choose(c *conversation) (*rule, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.rules {
		if r.Times > 0 && s.used[i] >= r.Times {
			continue
		}
		if caught, ok := r.When.match(c); ok {
			s.used[i]++
			return r, caught
		}
	}
	return nil, nil
}
