package jinja_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// Each of these would run for minutes at least, if not until the memory is
// full, while it counts hardly any steps.
var endless = map[string]string{
	"in a list":           `{% set l = range(100000)|list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}`,
	"in a range":          `{% for i in range(90000) %}{{ 'x' in range(99999) }}{{ -1 in range(99999) }}{% endfor %}`,
	"in a text":           `{% set s = 'ab' * 8000000 %}{% for i in range(90000) %}{{ 'b' ~ 'c' in s }}{% endfor %}`,
	"item of a text":      `{% set s = 'é' * 5000000 %}{% for i in range(90000) %}{{ s[-2] is string and s[2000000] }}{{ s[1999999:2000000] }}{% endfor %}`,
	"parts of a text":     `{% set s = 'é' * 2500000 %}{% for i in range(90000) %}{{ s[::2] is string }}{% endfor %}`,
	"length":              `{% set s = 'é' * 5000000 %}{% for i in range(90000) %}{{ s|length }}{% endfor %}`,
	"replace":             `{% set s = 'ab' * 5000000 %}{% for i in range(90000) %}{{ s.replace('c', 'd') is none }}{% endfor %}`,
	"find":                `{% set s = 'ab' * 5000000 %}{% for i in range(90000) %}{{ s.find('ba', 3) == s.count('c') }}{% endfor %}`,
	"strip":               `{% set s = ' ' * 10000000 %}{% for i in range(90000) %}{{ s|trim }}{{ s.split() }}{{ s.isspace() }}{% endfor %}`,
	"title":               `{% set s = 'é ' * 5000000 %}{{ s.title() is none }}{{ s.title() is none }}`,
	"swapcase":            `{% set s = 'é ' * 5000000 %}{{ s.swapcase() is none }}`,
	"the filter title":    `{% set s = 'é ' * 5000000 %}{{ s|title is none }}{{ s|title is none }}`,
	"sort":                `{% set s = 'x' * 100000 %}{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = ns.l + [s ~ i] %}{% endfor %}{% for i in range(90000) %}{{ ns.l|sort is none }}{% endfor %}`,
	"keys of JSON":        `{% set s = 'x' * 2500000 %}{% set d = {s ~ 1: 1, s ~ 2: 2, s ~ 3: 3, s ~ 4: 4} %}{% for i in range(90000) %}{{ d == {} or d|dictsort is none }}{% endfor %}`,
	"unique":              `{% set l = range(50000)|list %}{% for i in range(90000) %}{{ l|unique is none }}{{ l|max + l|min + l|sum }}{% endfor %}`,
	"keys that are pairs": `{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = ns.l + [(1, i)] %}{% endfor %}{{ ns.l|unique|list|length }}`,
	"equal graphs":        `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}`,
	"graphs in order":     `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a < ns.b }}`,
	"a graph as key":      `{% set ns = namespace(t=(1,)) %}{% for i in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1}|length }}`,
	"a deep key":          `{% set ns = namespace(t=(1,)) %}{% for i in range(20000) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ {ns.t: 1}|length }}`,
	"graphs that change":  `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{% for i in [ns.a, ns.b] %}{{ loop.changed(i) }}{% endfor %}`,
	"graphs in a list":    `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ [ns.a].index(ns.b) }}`,
	"graphs that are one": `{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ [ns.a, ns.b]|groupby(0)|length }}`,
	"graphs as text":      `{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a|string|length }}`,
	"names of items":      `{% set ns = namespace(a=[1]) %}{% for i in range(16) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{% for i in range(90000) %}{{ {}[ns.a] is string }}{% endfor %}`,
	"large integers":      `{% set a = 3 ** 20000 %}{% set ns = namespace(n=0) %}{% for i in range(90000) %}{% for j in range(40) %}{% set ns.n = a * a % 1000007 %}{% endfor %}{% endfor %}`,
	"format of one":       `{% set s = 'x' * 2500000 %}{{ ('%.0s' * 1000000) % (([s] * 1000000)|list) }}{% for i in range(90000) %}{{ '%.0s%.0s%.0s%.0s' % (s, s, s, s) }}{{ '{:.0}{:.0}'.format(s, s) }}{% endfor %}`,
	"precise formats":     `{% for i in range(90000) %}{{ ('%.9999g' * 1000) % (1,) if false else '{:.9999g}{:.9999g}{:.9999g}'.format(1.5, 2.5, 3.5) }}{% endfor %}`,
	"filter of a loop":    `{% for i in range(2000) if i in range(90000) and -1 not in range(99999) %}{% if loop.length %}{% endif %}{% endfor %}`,
	"loops in a macro":    `{% macro m(n) %}{% for i in range(300) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}{% endmacro %}{{ m(100) }}`,
	"copies":              `{% set s = 'x' * 15000000 %}{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + [s[::-1]] %}{% endfor %}`,
	"literals":            `{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% for j in range(90000) %}{% set ns.l = [ns.l, ` + strings.Repeat("1,", 1000) + `] %}{% endfor %}{% endfor %}`,
	"frames":              `{% set ns = namespace(l=none) %}{% macro f(l) %}{% macro g() %}{{ l }}{% endmacro %}{% set ns.l = (ns.l, g, varargs) %}` + strings.Repeat("{% set x = 1 %}", 10) + `{% endmacro %}{% for i in range(90000) %}{% for j in range(40) %}{{ f(1, *range(90000)) }}{% endfor %}{% endfor %}`,
	"parts":               `{{ ('x,' * 7500000).split(',')|length }}{{ ('x\n' * 7500000).splitlines()|length }}{{ ('x ' * 7500000).split()|length }}{{ ('x ' * 7500000).rsplit(none, 7500000)|length }}`,
	"characters":          `{% set s = 'x' * 15000000 %}{{ s|list|length }}{% for c in s %}{% endfor %}`,
	"wrapped words":       `{{ ('x ' * 7500000)|wordwrap(1)|length }}{{ ('x ' * 7500000)|wordwrap(1)|length }}`,
	"tags":                `{% set s = '<' * 15000000 %}{% for i in range(90000) %}{{ s|striptags|length }}{{ s|wordcount }}{% endfor %}`,
	"addresses":           `{% set s = '€' * 5000000 %}{% for i in range(90000) %}{{ s|urlencode|length }}{% endfor %}`,
	"a sum of lists":      `{{ ([[1] * 1000] * 100000)|sum(start=[])|length }}`,
	"shadowed names":      strings.Repeat(`{% for a in [1] %}`, 90) + `{% for i in range(90000) %}` + strings.Repeat(`{{ a ~ b }}`, 1000) + `{% endfor %}` + strings.Repeat(`{% endfor %}`, 90),
	"a long body":         `{% for i in range(90000) %}{% for j in range(40) %}` + strings.Repeat(`{% if a %}{% endif %}`, 20_000) + `{% endfor %}{% endfor %}`,
	"a long expression":   `{% for i in range(90000) %}{% for j in range(40) %}{% if a` + strings.Repeat(` and not a or a`, 20_000) + ` %}{% endif %}{% endfor %}{% endfor %}`,
}

func TestTimeLimit(t *testing.T) {
	for name, source := range endless {
		t.Run(name, func(t *testing.T) {
			tmpl, err := jinja.Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			out, err := tmpl.Render(jinja.NewDict(0), jinja.Env{Limits: jinja.Limits{Time: 50 * time.Millisecond, Output: 16 << 20}})
			took := time.Since(began)
			t.Log(took, err)
			var e *jinja.Error
			if !errors.As(err, &e) || e.Kind != jinja.TimeError && e.Kind != jinja.LimitError {
				t.Fatalf("got %d bytes and error %v, want a limit", len(out), err)
			}
			if took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
