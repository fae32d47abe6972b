package jinja_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/chattemplate/jinja"
)

func TestLimits(t *testing.T) {
	limits := jinja.Limits{Output: 10_000, Steps: 10_000, Depth: 20}
	const graph = `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}`
	const small = `{% set ns = namespace(s=[1]) %}{% for i in range(12) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}`
	for name, source := range map[string]string{
		"output":            `{% for i in range(5000) %}abc{% endfor %}`,
		"steps":             `{% for i in range(90000) %}{% endfor %}`,
		"nested steps":      `{% for i in range(500) %}{% for j in range(500) %}{% endfor %}{% endfor %}`,
		"range":             `{{ range(1000000000) }}`,
		"depth":             `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`,
		"loop depth":        `{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`,
		"repeat":            `{{ 'ab' * 1000000000 }}`,
		"repeat list":       `{{ [1] * 1000000000 }}`,
		"doubling":          `{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
		"doubling by +":     `{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
		"doubling a list":   `{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`,
		"doubling by join":  `{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s]|join %}{% endfor %}`,
		"replace":           `{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', 'xxxx') %}{% endfor %}`,
		"captured":          `{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set s %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = s %}{% endfor %}`,
		"power":             `{{ 10 ** 10000000 }}`,
		"product":           `{% set ns = namespace(n=3) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}`,
		"padding":           `{{ 'a'.center(1000000000) }}`,
		"zfill":             `{{ 'a'.zfill(1000000000) }}`,
		"indent":            `{{ 'a\nb'|indent(1000000000) }}`,
		"format width":      `{{ '%1000000000d' % 1 }}`,
		"str.format width":  `{{ '{:1000000000}'.format(1) }}`,
		"expandtabs":        `{{ '\t'.expandtabs(1000000000) }}`,
		"batch":             `{{ [1]|batch(1000000000, 'x')|list }}`,
		"slices":            `{{ [1]|slice(1000000000)|list }}`,
		"nested value":      `{% set ns = namespace(s=[]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`,
		"nested JSON":       `{% set ns = namespace(s=[]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}`,
		"literals":          `{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = [ns.l, 1, 2, 3, 4, 5] %}{% endfor %}`,
		"pairs":             `{% set ns = namespace(l=none) %}{% for i in range(5000) %}{% set ns.l = {1: ns.l, 2: 2, 3: 3} %}{% endfor %}`,
		"parts":             `{% for i in range(20) %}{% set l = ('x,' * 1000).split(',') %}{% endfor %}`,
		"lines":             `{% for i in range(20) %}{% set l = ('x\n' * 1000).splitlines() %}{% endfor %}`,
		"characters":        `{% for i in range(20) %}{% set l = ('x' * 1000)|list %}{% endfor %}`,
		"frames":            `{% macro m(a, b, c, d, e, f) %}{% endmacro %}{% for i in range(3000) %}{{ m() }}{% endfor %}`,
		"reversed":          `{% set s = 'x' * 9000 %}{% for i in range(20) %}{% set t = s[::-1] %}{% endfor %}`,
		"namespace in self": `{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`,
		"width of json":     `{% set ns = namespace(l=range(500)|list) %}{% for i in range(9) %}{{ ns.l|tojson(indent=64) }}{% endfor %}`,
		// 2^60 numbers in 60 lists.
		"graph":         graph + `{{ ns.s }}`,
		"graph as JSON": graph + `{{ ns.s|tojson }}`,
		// 2^12 numbers, whose text is not what the template goes on with.
		"raised":        small + `{{ raise_exception(ns.s) }}`,
		"words":         small + `{{ ns.s|wordcount }}`,
		"case":          small + `{{ ns.s is upper }}`,
		"name of item":  small + `{{ {}[ns.s] is undefined }}`,
		"clipped":       small + `{{ '%.1s' % (ns.s,) }}`,
		"clipped field": small + `{{ '{!r:.1}'.format(ns.s) }}`,
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := jinja.Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			out, err := tmpl.Render(jinja.NewDict(0), jinja.Env{Limits: limits})
			var e *jinja.Error
			if !errors.As(err, &e) || e.Kind != jinja.LimitError {
				t.Fatalf("got %d bytes and error %v, want a LimitError", len(out), err)
			}
		})
	}
}

func TestNestedSource(t *testing.T) {
	for _, source := range []string{
		"{{ " + strings.Repeat("(", 10_000) + "1" + strings.Repeat(")", 10_000) + " }}",
		"{{ " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + " }}",
		"{{ " + strings.Repeat("not ", 10_000) + "1 }}",
		"{{ " + strings.Repeat("-", 10_000) + "1 }}",
		strings.Repeat("{% if 1 %}", 10_000) + strings.Repeat("{% endif %}", 10_000),
		strings.Repeat("x", 1<<20+1),
	} {
		_, err := jinja.Compile(source)
		var e *jinja.Error
		if !errors.As(err, &e) || e.Kind != jinja.SyntaxError {
			t.Errorf("%.40s…: %v, want a TemplateSyntaxError", source, err)
		}
	}
}

func TestErrorLines(t *testing.T) {
	for source, want := range map[string]int{
		"a\nb\n{{ zz.x }}":                                            3,
		"{% if true %}\n\n{{ 1 + 'a' }}{% endif %}":                   3,
		"{% for x in [1] %}\n{{ raise_exception('no') }}{% endfor %}": 2,
		"{% macro f() %}\n{{ zz.x }}{% endmacro %}\n\n{{ f() }}":      2,
		"\n{% set a = zz.b %}":                                        2,
		"\n\n{% if zz.b %}{% endif %}":                                3,
		"\n{#\n\n#}{{ 1 / 0 }}":                                       4,
		"\n{% raw %}\n{% endraw %}{{ zz.b }}":                         3,
		"a\n{{ 'x\ny' }}{{ zz.b }}":                                   3,
		"\n\n{% foo %}":                                               3,
		"\n{{ 1 +\n }}":                                               3,
		"\n{{ 'abc }}":                                                2,
		"\n{% if true %}\nx":                                          3,
		"a\n{% include 'x' %}":                                        2,
		"\r\n\r{{ zz.x }}":                                            3,
	} {
		_, err := render(source, jinja.NewDict(0))
		var e *jinja.Error
		if !errors.As(err, &e) || e.Line != want {
			t.Errorf("%q: %v, want an error in line %d", source, err, want)
		}
	}
}

func TestRaisedMessage(t *testing.T) {
	_, err := render("{{ raise_exception('Only \"user\" <roles>\\nhere') }}", jinja.NewDict(0))
	var e *jinja.Error
	if !errors.As(err, &e) || e.Kind != jinja.Raised || e.Message != "Only \"user\" <roles>\nhere" {
		t.Fatalf("got %v", err)
	}
}

// Templates are shared by all requests: renders at once must not see each
// other, and one that fails must leave nothing behind.
func TestConcurrentRenders(t *testing.T) {
	tmpl, err := jinja.Compile(`{% macro m(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(t='') %}{% for i in l %}{% set ns.t = ns.t ~ m(i) %}{% endfor %}{{ ns.t }}{% if bad %}{{ zz.x }}{% endif %}`)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for range 200 {
				v := jinja.NewDict(2)
				v.Set("l", jinja.NewList(g, g+1))
				v.Set("bad", g%4 == 3)
				out, err := tmpl.Render(v, jinja.Env{})
				want := "<" + string(rune('0'+g)) + "><" + string(rune('1'+g)) + ">"
				if g%4 == 3 {
					if err == nil {
						t.Errorf("%d: rendered %q, want an error", g, out)
					}
					continue
				}
				if out != want || err != nil {
					t.Errorf("%d: got %q, %v", g, out, err)
				}
			}
		})
	}
	wg.Wait()
}

// None has two names: that of its type, and its own where something of it is missing.
func TestNone(t *testing.T) {
	for source, want := range map[string]string{
		"{% for x in none %}{% endfor %}": "'NoneType' object is not iterable",
		"{{ 1 in none }}":                 "argument of type 'NoneType' is not iterable",
		"{{ none + 1 }}":                  "unsupported operand type(s) for +: 'NoneType' and 'int'",
		"{{ none() }}":                    "'NoneType' object is not callable",
		"{{ none.a.b }}":                  "'None' has no attribute 'a'",
		"{{ {}.a.b }}":                    "'dict object' has no attribute 'a'",
	} {
		_, err := render(source, jinja.NewDict(0))
		var e *jinja.Error
		if !errors.As(err, &e) || e.Message != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// As in Python, fields are either all numbered or none is.
func TestFieldNumbers(t *testing.T) {
	for source, want := range map[string]string{
		"{{ '{}{}'.format(1, 2) }}":         "12",
		"{{ '{1}{0}{1}'.format(1, 2) }}":    "212",
		"{{ '{}{a}{}'.format(1, 2, a=3) }}": "132",
		"{{ '{}{1}'.format(1, 2) }}":        "",
		"{{ '{0}{}'.format(1, 2) }}":        "",
	} {
		out, err := render(source, jinja.NewDict(0))
		if out != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", source, out, err, want)
		}
	}
}
