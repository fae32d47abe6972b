package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// settingsFile is a settings file in YAML, or JSON, which is YAML too. Its keys are the
// names of flags; a part that several share may stand above them:
//
//	http-port: 8001
//	router:
//	  mode: round-robin
//
// A setting that may be given several times may be a list. A mapping in it stands
// for one text of name=value pairs, the names of nested keys joined by dots:
//
//	engine:
//	  - vllm=http://10.0.0.1:8000
//	  - kind: vllm
//	    url: http://10.0.0.2:8000
//	    dp: {size: 2}
//	    aliases: [fast, cheap]
//
// Where the items of such a list have names, a mapping may stand for it:
//
//	tenants:
//	  acme: {max-priority: 5}
type settingsFile struct {
	path   string
	named  map[string]string // settings whose items have names, and the key of these
	values map[string]entry
}

// entry is one value, as it stands there, or several.
type entry struct {
	value string
	list  []any // of strings; nil where it is one value
	line  int
}

func readFile(path string, named map[string]string) (*settingsFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &settingsFile{path: path, named: named, values: map[string]entry{}}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return f, nil // nothing but comments
	}
	return f, f.add("", doc.Content[0])
}

// add flattens a mapping: the names of nested keys are joined by hyphens.
func (f *settingsFile) add(prefix string, n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("%s line %d: want \"name: value\" lines", f.path, n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := prefix + strings.ReplaceAll(key.Value, "_", "-")
		if value.Kind == yaml.AliasNode && value.Alias.Kind == yaml.ScalarNode {
			value = value.Alias // of a mapping it could stand inside itself
		}
		switch {
		case value.Kind == yaml.MappingNode && f.named[name] != "":
		case value.Kind == yaml.MappingNode:
			if err := f.add(name+"-", value); err != nil {
				return err
			}
			continue
		case value.Kind != yaml.ScalarNode && value.Kind != yaml.SequenceNode:
			return fmt.Errorf("%s line %d: %s: want one value", f.path, value.Line, name)
		}
		if old, ok := f.values[name]; ok {
			return fmt.Errorf("%s line %d: %s stands in line %d already", f.path, key.Line, name, old.line)
		}
		if value.Tag == "!!null" {
			continue
		}
		e := entry{value: value.Value, line: value.Line}
		if value.Kind != yaml.ScalarNode {
			var err error
			if e.list, err = f.list(name, value); err != nil {
				return err
			}
			e.line = key.Line
		}
		f.values[name] = e
	}
	return nil
}

// list returns the texts that the items of a list stand for, or those of a mapping
// whose keys are their names.
func (f *settingsFile) list(name string, n *yaml.Node) ([]any, error) {
	list := []any{}
	if n.Kind == yaml.MappingNode {
		return f.mapping(name, n)
	}
	for _, item := range n.Content {
		text, err := f.item(name, item)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// mapping returns the texts that the values of a mapping stand for, each with its key.
func (f *settingsFile) mapping(name string, n *yaml.Node) ([]any, error) {
	list := []any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		pairs := []string{pair(f.named[name], key.Value)}
		if value.Kind == yaml.MappingNode {
			var err error
			if pairs, err = f.pairs(pairs, name, "", value); err != nil {
				return nil, err
			}
		} else if value.Tag != "!!null" {
			return nil, fmt.Errorf("%s line %d: %s: %s: want \"name: value\" lines", f.path, value.Line, name, key.Value)
		}
		list = append(list, strings.Join(pairs, ","))
	}
	return list, nil
}

// item returns the text that an item of a list stands for.
func (f *settingsFile) item(name string, n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.MappingNode:
		pairs, err := f.pairs(nil, name, "", n)
		return strings.Join(pairs, ","), err
	}
	return "", fmt.Errorf("%s line %d: %s: want a value, or a mapping, as item of the list", f.path, n.Line, name)
}

// Text is an item of a list in a file, as it could stand behind a flag.
type Text struct {
	Value string
	Line  int
}

// Texts reads a YAML file that is one list, whose items are written as those of a
// setting that may be given several times. A file without a list is an error, since
// one that is being written has none yet; an empty one is [].
func Texts(path string, data []byte) ([]Text, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s: want a list, an item a line that begins with \"- \"; [] is none", path)
	}
	f, list := &settingsFile{path: path}, []Text{}
	for _, n := range doc.Content[0].Content {
		value, err := f.item("item", n)
		if err != nil {
			return nil, err
		}
		list = append(list, Text{value, n.Line})
	}
	return list, nil
}

// pairs appends what a mapping says as name=value.
func (f *settingsFile) pairs(pairs []string, name, prefix string, n *yaml.Node) ([]string, error) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := prefix+n.Content[i].Value, n.Content[i+1]
		switch {
		case value.Kind == yaml.MappingNode:
			var err error
			if pairs, err = f.pairs(pairs, name, key+".", value); err != nil {
				return nil, err
			}
		case value.Kind == yaml.SequenceNode: // the key again and again
			for _, v := range value.Content {
				if v.Kind != yaml.ScalarNode {
					return nil, fmt.Errorf("%s line %d: %s: %s: want a list of values", f.path, v.Line, name, key)
				}
				pairs = append(pairs, pair(key, v.Value))
			}
		case value.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("%s line %d: %s: %s: want one value", f.path, value.Line, name, key)
		case value.Tag != "!!null":
			pairs = append(pairs, pair(key, value.Value))
		}
	}
	return pairs, nil
}

// pair writes key=value, the value in quotes where it would not end where it ends.
func pair(key, value string) string {
	if strings.HasPrefix(value, `"`) || strings.Contains(value, ",") && !strings.HasPrefix(value, "{") {
		value = strconv.Quote(value)
	}
	return key + "=" + value
}

// Validate implements kong.Resolver: every key must be a setting of some
// command.
func (f *settingsFile) Validate(app *kong.Application) error {
	var known, single, several []string
	walk(app.Node, func(flag *kong.Flag) {
		names := append([]string{flag.Name}, flag.Aliases...)
		known = append(known, names...)
		if flag.IsSlice() {
			several = append(several, names...)
		} else {
			single = append(single, names...)
		}
	})
	// What one command takes once, another may take several times.
	single = slices.DeleteFunc(single, func(name string) bool { return slices.Contains(several, name) })
	var strangers []string
	for name := range f.values {
		if !slices.Contains(known, name) {
			strangers = append(strangers, name)
		}
	}
	if len(strangers) == 0 {
		return f.single(single)
	}
	first := slices.MinFunc(strangers, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.values[a].line, f.values[b].line), cmp.Compare(a, b))
	})
	hint := ""
	if near := nearest(first, known); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("%s line %d: there is no setting %q%s", f.path, f.values[first].line, first, hint)
}

// single checks that settings of one value have one.
func (f *settingsFile) single(names []string) error {
	for _, name := range names {
		if e := f.values[name]; e.list != nil {
			return fmt.Errorf("%s line %d: %s: want one value", f.path, e.line, name)
		}
	}
	return nil
}

// Resolve implements kong.Resolver. It says nothing where the environment says
// something, because kong asks here first.
func (f *settingsFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if fromEnv(flag) != "" {
		return nil, nil
	}
	for _, name := range append([]string{flag.Name}, flag.Aliases...) {
		switch e, ok := f.values[name]; {
		case ok && e.list != nil:
			return e.list, nil
		case ok:
			return e.value, nil
		}
	}
	return nil, nil
}

// fromEnv returns the variable that sets a flag, or "".
func fromEnv(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return name
		}
	}
	return ""
}

// nearest returns the name that differs least, if it does not differ much.
func nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := corner
			if a[i] != b[j] {
				d = min(corner, row[j], row[j+1]) + 1
			}
			corner, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
