package mask

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tagNode is a format of a structural tag, as XGrammar has them; see guided.Tag.
type tagNode struct {
	Type          string         `json:"type"`
	Begin         string         `json:"begin"`
	Content       *tagNode       `json:"content"`
	End           string         `json:"end"`
	Triggers      []string       `json:"triggers"`
	Tags          []tagNode      `json:"tags"`
	Separator     string         `json:"separator"`
	AtLeastOne    bool           `json:"at_least_one"`
	StopAfter     bool           `json:"stop_after_first"`
	Elements      []tagNode      `json:"elements"`
	Schema        jsontext.Value `json:"json_schema"`
	Style         string         `json:"style"`
	Pattern       string         `json:"pattern"`
	Value         string         `json:"value"`
	ExcludeTokens []string       `json:"exclude_tokens"`
	Excludes      []string       `json:"excludes"`
}

// tags writes structural tags as expressions.
type tags struct {
	vocabulary *Vocabulary
	rules      *rules
	depth      int
}

const maxTagDepth = 64

// structuralTag writes a structural tag.
func structuralTag(v *Vocabulary, source []byte, r *rules) (*expr, error) {
	var tag struct {
		Type       string   `json:"type"`
		Format     *tagNode `json:"format"`
		Structures []struct {
			Begin  string         `json:"begin"`
			Schema jsontext.Value `json:"schema"`
			End    string         `json:"end"`
		} `json:"structures"`
		Triggers []string `json:"triggers"`
	}
	if err := json.Unmarshal(source, &tag, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("it is no structural tag: %w", err)
	}
	t := &tags{vocabulary: v, rules: r}
	if tag.Format == nil { // the older form
		n := tagNode{Type: "triggered_tags", Triggers: tag.Triggers}
		for _, s := range tag.Structures {
			n.Tags = append(n.Tags, tagNode{Type: "tag", Begin: s.Begin, Content: &tagNode{Type: "json_schema", Schema: s.Schema}, End: s.End})
		}
		tag.Format = &n
	}
	return t.format(tag.Format, "")
}

// format writes a format, together with what closes it.
func (t *tags) format(n *tagNode, closing string) (*expr, error) {
	if t.depth++; t.depth > maxTagDepth {
		return nil, fmt.Errorf("its formats are nested more than %d deep", maxTagDepth)
	}
	defer func() { t.depth-- }()
	switch n.Type {
	case "any_text":
		return t.until(n.Excludes, closing), nil
	case "any_tokens":
		return t.until(n.ExcludeTokens, closing), nil
	case "triggered_tags":
		return t.triggered(n, closing)
	}
	e, err := t.closed(n)
	if err != nil {
		return nil, err
	}
	return seq(e, t.literal(closing)), nil
}

// closed writes a format that knows its own end.
func (t *tags) closed(n *tagNode) (*expr, error) {
	switch n.Type {
	case "const_string":
		return t.literal(n.Value), nil
	case "regex":
		return plain.pattern(n.Pattern, false)
	case "json_schema":
		return t.arguments(n)
	case "sequence":
		parts, err := t.formats(n.Elements)
		return seq(parts...), err
	case "or":
		parts, err := t.formats(n.Elements)
		return alt(parts...), err
	case "tag":
		return t.tag(n)
	case "tags_with_separator":
		return t.separated(n)
	}
	return nil, fmt.Errorf("%s: answers cannot be held to a format of this type", n.Type)
}

func (t *tags) formats(list []tagNode) ([]*expr, error) {
	parts := make([]*expr, len(list))
	for i := range list {
		e, err := t.format(&list[i], "")
		if err != nil {
			return nil, err
		}
		parts[i] = e
	}
	return parts, nil
}

func (t *tags) tag(n *tagNode) (*expr, error) {
	if n.Content == nil {
		return nil, errors.New("tag: it has no content")
	}
	e, err := t.format(n.Content, n.End)
	if err != nil {
		return nil, err
	}
	return frame(seq(t.literal(n.Begin), e)), nil
}

func (t *tags) anyTag(list []tagNode) (*expr, error) {
	if len(list) == 0 {
		return nil, errors.New("there are no tags in it")
	}
	parts, err := t.formats(list)
	return alt(parts...), err
}

// separated is one tag behind the other.
func (t *tags) separated(n *tagNode) (*expr, error) {
	one, err := t.anyTag(n.Tags)
	if err != nil {
		return nil, err
	}
	e := one
	if !n.StopAfter {
		e = seq(one, star(seq(t.literal(n.Separator), one)))
	}
	if !n.AtLeastOne {
		e = option(e)
	}
	return e, nil
}

// triggered is a text in which a trigger always begins a tag. If there has to be
// one, it comes first, behind blanks at most: a text could go on for ever.
func (t *tags) triggered(n *tagNode, closing string) (*expr, error) {
	one, err := t.anyTag(n.Tags)
	if err != nil {
		return nil, err
	}
	for _, tag := range n.Tags {
		if !slices.ContainsFunc(n.Triggers, func(s string) bool { return s != "" && strings.HasPrefix(tag.Begin, s) }) {
			return nil, fmt.Errorf("no trigger is how the tag %q begins", tag.Begin)
		}
	}
	forbidden := slices.Clone(n.Triggers)
	if closing != "" {
		forbidden = append(forbidden, closing)
	}
	free := without(forbidden)
	end := t.literal(closing)
	gap := repeat(anyOf(" \n"), 0, 2)
	switch {
	case n.AtLeastOne && n.StopAfter:
		return seq(gap, one, end), nil
	case n.AtLeastOne:
		return seq(gap, one, star(seq(free, one)), free, end), nil
	case n.StopAfter:
		return seq(free, option(one), end), nil
	}
	return seq(star(seq(free, one)), free, end), nil
}

// literal is a text of which special tokens are written as such.
func (t *tags) literal(text string) *expr {
	at, mark := len(text), ""
	for s := range t.vocabulary.marks {
		if i := strings.Index(text, s); i >= 0 && (i < at || i == at && len(s) > len(mark)) {
			at, mark = i, s
		}
	}
	if mark == "" {
		return lit(text)
	}
	return seq(lit(text[:at]), special(t.vocabulary.marks[mark]), t.literal(text[at+len(mark):]))
}

var anyByte = span(0, 255)

// without is a text that has none of some others in it.
func without(texts []string) *expr {
	free := star(plain.any())
	parts := []*expr{free}
	for _, s := range texts {
		if s != "" {
			parts = append(parts, not(seq(star(anyByte), lit(s), star(anyByte))))
		}
	}
	return and(parts...)
}

// until is a text that has none of some others, and ends with the first closing.
func (t *tags) until(excluded []string, closing string) *expr {
	end := t.literal(closing)
	if closing == "" {
		return without(excluded)
	}
	if hasMark(end) {
		return seq(without(append(slices.Clone(excluded), closing)), end)
	}
	once := not(seq(star(anyByte), lit(closing), repeat(anyByte, 1, noLimit)))
	parts := []*expr{seq(star(plain.any()), end), once}
	if len(excluded) > 0 {
		parts = append(parts, without(excluded))
	}
	return and(parts...)
}

// arguments is what stands in a call.
func (t *tags) arguments(n *tagNode) (*expr, error) {
	source := n.Schema
	if source == nil {
		source = jsontext.Value("true")
	}
	s, err := newSchemas([]byte(source), t.rules)
	if err != nil {
		return nil, err
	}
	markup, ok := markups[n.Style]
	switch {
	case n.Style == "" || n.Style == "json":
		if s.root.kind == 't' { // arguments are an object in any case
			return mapping(anyString, s.any(), 0, noLimit), nil
		}
		return s.goal([]*value{s.root})
	case !ok:
		return nil, fmt.Errorf("answers cannot be held to the style %q", n.Style)
	}
	return markup.write(t, s)
}
