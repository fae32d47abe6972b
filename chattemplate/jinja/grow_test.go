package jinja_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// A text that grows piece by piece costs its pieces, and all that was made of it
// on the way stays as it was.
func TestGrowingText(t *testing.T) {
	const n = 3000
	piece := strings.Repeat("x", 1000)
	for name, source := range map[string]string{
		"+":          `{% set ns = namespace(t='') %}{% for i in range(3000) %}{% set ns.t = ns.t + p + '.' %}{% endfor %}{{ ns.t }}`,
		"~":          `{% set ns = namespace(t='') %}{% for i in range(3000) %}{% set ns.t = ns.t ~ p ~ '.' %}{% endfor %}{{ ns.t }}`,
		"sum":        `{% set ns = namespace(t='') %}{% for i in range(3000) %}{% set ns.t = ns.t + (p + '.') %}{% endfor %}{{ ns.t }}`,
		"in a macro": `{% macro m(ns) %}{% set ns.t = ns.t ~ p ~ '.' %}{% endmacro %}{% set ns = namespace(t='') %}{% for i in range(3000) %}{{ m(ns) }}{% endfor %}{{ ns.t }}`,
	} {
		vars := jinja.NewDict(1)
		vars.Set("p", piece)
		tmpl, err := jinja.Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		// Copying all that came before would take 4.5 GB here, and 64 MB are allowed.
		out, err := tmpl.Render(vars, jinja.Env{Limits: jinja.Limits{Output: 4 << 20}})
		if want := strings.Repeat(piece+".", n); out != want || err != nil {
			t.Errorf("%s: got %d bytes, %v; want %d", name, len(out), err, len(want))
		}
	}
	const branches = `
{%- set a = 'a' * 5000 %}
{%- set b = a ~ 'b' %}{% set c = b ~ 'c' %}{% set d = b ~ 'd' %}{% set e = c + 'e' + 'e' %}{% set f = c + 'f' %}{% set g = 'g' + f %}
{%- for x in [a, b, c, d, e, f, g] %}{{ x[4998:] }} {{ x | length }};{% endfor %}`
	out, err := render(branches, jinja.NewDict(0))
	if want := "aa 5000;aab 5001;aabc 5002;aabd 5002;aabcee 5004;aabcf 5003;aaabcf 5004;"; out != want || err != nil {
		t.Errorf("got %s, %v; want %s", out, err, want)
	}
}
