package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
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
type settingsFile struct {
	path   string
	values map[string]entry
}

// entry is one value, as it stands there.
type entry struct {
	value string
	line  int
}

func readFile(path string) (*settingsFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &settingsFile{path: path, values: map[string]entry{}}
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
		switch value.Kind {
		case yaml.MappingNode:
			if err := f.add(name+"-", value); err != nil {
				return err
			}
			continue
		case yaml.ScalarNode:
		default:
			return fmt.Errorf("%s line %d: %s: want one value", f.path, value.Line, name)
		}
		if old, ok := f.values[name]; ok {
			return fmt.Errorf("%s line %d: %s stands in line %d already", f.path, key.Line, name, old.line)
		}
		if value.Tag == "!!null" {
			continue
		}
		f.values[name] = entry{value.Value, value.Line}
	}
	return nil
}

// Validate implements kong.Resolver: every key must be a setting of some
// command.
func (f *settingsFile) Validate(app *kong.Application) error {
	var known []string
	walk(app.Node, func(flag *kong.Flag) {
		known = append(append(known, flag.Name), flag.Aliases...)
	})
	var strangers []string
	for name := range f.values {
		if !slices.Contains(known, name) {
			strangers = append(strangers, name)
		}
	}
	if len(strangers) == 0 {
		return nil
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

// Resolve implements kong.Resolver. It says nothing where the environment says
// something, because kong asks here first.
func (f *settingsFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if fromEnv(flag) != "" {
		return nil, nil
	}
	for _, name := range append([]string{flag.Name}, flag.Aliases...) {
		if e, ok := f.values[name]; ok {
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
