//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/nvext"
)

const pageOfNvext = "../../docs/nvext.md"

// example is a line of the page that a reader can run, and what comes back.
type example struct {
	line int
	curl string
	want []string // pieces of the answer, in their order
}

// examples reads those of a page: each block of sh and the block behind it.
func examples(t *testing.T, page string) (list []example) {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
	var last *example
	for _, at := range blocks.FindAllStringSubmatchIndex(page, -1) {
		kind, text := page[at[2]:at[3]], page[at[4]:at[5]]
		line := strings.Count(page[:at[0]], "\n") + 1
		switch {
		case kind == "sh":
			list = append(list, example{line: line, curl: text})
			last = &list[len(list)-1]
		case last == nil || last.want != nil:
			t.Fatalf("line %d: an answer to no question", line)
		default:
			last.want = strings.Split(strings.TrimSpace(text), "\n")
		}
	}
	return list
}

// shellWords splits a line as a shell does, as far as the page needs it: words, text in
// single quotes, and lines that go on.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	var list []string
	for rest := strings.TrimSpace(strings.ReplaceAll(line, "\\\n", " ")); rest != ""; rest = strings.TrimSpace(rest) {
		var word string
		if quoted, ok := strings.CutPrefix(rest, "'"); ok {
			word, rest, ok = strings.Cut(quoted, "'")
			if !ok {
				t.Fatalf("a quote that does not end: %s", line)
			}
		} else if i := strings.IndexAny(rest, " \n"); i >= 0 {
			word, rest = rest[:i], rest[i:]
		} else {
			word, rest = rest, ""
		}
		list = append(list, word)
	}
	return list
}

// curl runs a line of the page against the program, and returns what it would print.
func (p *program) curl(line string) string {
	p.t.Helper()
	args := shellWords(p.t, line)
	if len(args) < 2 || args[0] != "curl" {
		p.t.Fatalf("no curl: %s", line)
	}
	var url, body string
	var header []string
	whole := false
	for i := 1; i < len(args); i++ {
		switch a := args[i]; a {
		case "-s", "-N":
		case "-i":
			whole = true
		case "-H", "--json":
			if i++; i == len(args) {
				p.t.Fatalf("%s of nothing: %s", a, line)
			}
			if a == "--json" {
				body = args[i]
				continue
			}
			name, value, ok := strings.Cut(args[i], ": ")
			if !ok {
				p.t.Fatalf("no header: %s", args[i])
			}
			header = append(header, name, value)
		default:
			if path, ok := strings.CutPrefix(a, "http://127.0.0.1:8000"); ok && url == "" {
				url = p.url + path
				continue
			}
			p.t.Fatalf("%s is not for this test: %s", a, line)
		}
	}
	method := "POST"
	if body == "" {
		method = "GET"
	}
	r := p.answered(p.request(p.t.Context(), method, url, body, header...))
	if !whole {
		return r.body
	}
	var out strings.Builder
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\n", r.status, http.StatusText(r.status))
	names := make([]string, 0, len(r.header))
	for name := range r.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&out, "%s: %s\n", name, r.header.Get(name))
	}
	return out.String() + "\n" + r.body
}

// Each line of the page does what the page says.
func TestPageOfNvext(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(pageOfNvext)
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--metadata-upload-prefix", "s3://traces", "--speedup-ratio", "0")
	worker := fmt.Sprint(p.staff().Workers[0].ID)
	list := examples(t, string(page))
	if len(list) < 20 {
		t.Fatalf("the page has %d lines to run", len(list))
	}
	p.does(list, worker)
}

// does runs lines of a page, and looks for what they say that comes back.
func (p *program) does(list []example, worker string) {
	p.t.Helper()
	for _, e := range list {
		if len(e.want) == 0 {
			p.t.Errorf("line %d: nothing comes back", e.line)
		}
		got := p.curl(strings.ReplaceAll(e.curl, "WORKER", worker))
		rest := got
		for _, want := range e.want {
			want = regexp.QuoteMeta(strings.ReplaceAll(want, "WORKER", worker))
			found := regexp.MustCompile(strings.ReplaceAll(want, "…", "[^\n]*")).FindStringIndex(rest)
			if found == nil {
				p.t.Errorf("line %d: no %s in\n%s", e.line, want, got)
				break
			}
			rest = rest[found[1]:]
		}
	}
}

// The page has a line for each field, each header, and each name that fields take.
func TestPageOfNvextIsWhole(t *testing.T) {
	page, err := os.ReadFile(pageOfNvext)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, e := range examples(t, string(page)) {
		lines.WriteString(e.curl)
	}
	var names []string
	var members func(r reflect.Type)
	members = func(r reflect.Type) {
		for r.Kind() == reflect.Pointer || r.Kind() == reflect.Slice {
			r = r.Elem()
		}
		if r.Kind() != reflect.Struct {
			return
		}
		for f := range r.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				names = append(names, `"`+name+`":`)
			}
			members(f.Type)
		}
	}
	members(reflect.TypeFor[nvext.Ext]())
	for _, name := range []string{
		"worker_id", "timing", "routed_experts", "engine_data", "stop_reason", "completion_token_ids", "prompt_logprobs", "tool_call_dispatch",
		"request_id", "formatted_prompt", "token_ids", "query_instance_id:",
	} {
		names = append(names, `"`+name+`"`)
	}
	new(nvext.Ext).WithHeaders(func(name string) []string {
		if strings.HasPrefix(name, "X-Dynamo-") || name == "X-Tenant-Id" {
			names = append(names, "'"+strings.ToLower(name)+": ")
		}
		return nil
	})
	for _, name := range names {
		if !strings.Contains(lines.String(), name) {
			t.Errorf("no line has %s", name)
		}
	}
	if len(names) < 50 {
		t.Errorf("%d names are looked for", len(names))
	}
}
