package chattemplate

import (
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// AsShipped returns the template without the layout of our own that Render has for
// some formats.
func (t *Template) AsShipped() *Template {
	return &Template{cfg: t.cfg, plain: t.plain, tools: t.tools}
}

// Prepare returns what Render hands to the template: its variables, whether it
// is the one for tools, and the tag that ends a last turn to be continued.
func (t *Template) Prepare(r *chat.Request, o Options) (vars *jinja.Dict, toolUse bool, tagged string, err error) {
	p, err := t.prepare(r, o, nil)
	if p.continues {
		tagged = tag
	}
	return p.vars, p.variant == t.tools, tagged, err
}

// ProbeWithin finds out about a template as Compile does, in the given time.
func ProbeWithin(source string, limit time.Duration) error {
	tmpl, err := jinja.Compile(source)
	if err != nil {
		return err
	}
	limits := probeLimits
	limits.Time = limit
	_, err = probe(tmpl, source, Config{}, limits)
	return err
}
