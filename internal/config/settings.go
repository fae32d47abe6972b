package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
)

// Parsed is what a command line came to.
type Parsed struct {
	*kong.Context
	file *settingsFile
}

// Setting is one setting and where its value came from.
type Setting struct {
	Name    string
	Envs    []string
	Group   string
	Value   string // "" = not set
	Default string
	Source  string // flag, default, the variable's name, or file and line
	Help    string
	Secret  bool // Value only says whether there is one
}

// Settings returns the settings of the chosen command, in their order.
func (p *Parsed) Settings() []Setting {
	given := map[*kong.Value]bool{}
	for _, path := range p.Path {
		if path.Flag != nil && !path.Resolved {
			given[path.Flag.Value] = true
		}
	}
	var list []Setting
	for _, group := range p.Selected().AllFlags(false) {
		for _, flag := range group {
			if flag.Name == "help" || flag.Tag.Get("action") != "" {
				continue
			}
			s := Setting{
				Name: flag.Name, Envs: flag.Envs, Value: show(flag), Default: flag.Default,
				Source: p.source(flag, given[flag.Value]), Help: flag.Help,
			}
			if s.Secret = secret(flag.Tag, s.Value); s.Secret && s.Value != "" {
				s.Value = "(secret)"
			}
			if flag.Group != nil {
				s.Group = flag.Group.Title
			}
			list = append(list, s)
		}
	}
	return list
}

func (p *Parsed) source(flag *kong.Flag, given bool) string {
	if given {
		return "flag"
	}
	if env := fromEnv(flag); env != "" {
		return env
	}
	if p.file != nil {
		for _, name := range append([]string{flag.Name}, flag.Aliases...) {
			if e, ok := p.file.values[name]; ok {
				return fmt.Sprintf("%s line %d", p.file.path, e.line)
			}
		}
	}
	return "default"
}

// secret says whether a value may not be shown: always, or where one of the words
// in the tag stands in it.
func secret(tag *kong.Tag, value string) bool {
	words := tag.Get("secret")
	return tag.Has("secret") && (words == "" || slices.ContainsFunc(strings.Split(words, ","), func(word string) bool {
		return strings.Contains(value, word)
	}))
}

// show writes a value as it could be given.
func show(flag *kong.Flag) string {
	v := flag.Target
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	if list, ok := v.Interface().([]string); ok {
		return kong.JoinEscaped(list, flag.Tag.Sep)
	}
	return fmt.Sprint(v.Interface())
}

// Dump writes the settings as a file that sets them again, but for secrets.
func (p *Parsed) Dump(w io.Writer) error {
	group := ""
	for _, s := range p.Settings() {
		if s.Group != group {
			group = s.Group
			if _, err := fmt.Fprintf(w, "\n# %s\n", group); err != nil {
				return err
			}
		}
		value, err := yaml.Marshal(s.Value)
		if err != nil {
			return fmt.Errorf("dump %s: %w", s.Name, err)
		}
		line := s.Name + ": " + strings.TrimSpace(string(value))
		if s.Value == "" || s.Secret {
			line = "# " + s.Name + ":"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
