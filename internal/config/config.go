// Package config reads settings from the command line, the environment and a
// YAML file, in this order of precedence, and from defaults where none of them
// says anything.
//
// The one idea: a setting is one struct field with tags. Its flag, its names in
// the environment and in the file, its default, its bounds, its line in --help
// and its row in the output of "env" all come from there, so that they cannot
// disagree. Beside kong's own tags there are
//
//	range:"0..65535"      bounds of a number; either may be missing
//	unit:"s"              what a bare number means for a time.Duration
//	choice:"a,b"          the values of a string; "-" and "_" are the same
//	also:"c=a"            further spellings
//	secret:""             never shown; secret:"a,b": not where one of these stands in it
//	lax:""                a switch whose variable may be any word; one that is neither
//	                      true nor false is false, and whoever reads the setting says so
//	named:"x"             of a list: in a file it may be a mapping, whose keys are the x of
//	                      its items
package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Parser parses settings into the struct it was made for.
type Parser struct {
	kong *kong.Kong
	file *settingsFile
}

// New returns a parser for the commands and settings of cli, a pointer to a
// struct. A field of type [Path] in it names the file.
func New(cli any, options ...kong.Option) (*Parser, error) {
	p := &Parser{}
	k, err := kong.New(cli, append([]kong.Option{
		kong.Bind(p),
		kong.KindMapper(reflect.Bool, boolean{}),
		kong.KindMapper(reflect.String, kong.MapperFunc(text)),
		kong.KindMapper(reflect.Int, kong.MapperFunc(integer)),
		kong.KindMapper(reflect.Int64, kong.MapperFunc(integer)),
		kong.KindMapper(reflect.Uint64, kong.MapperFunc(integer)),
		kong.KindMapper(reflect.Float64, kong.MapperFunc(float)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ValueFormatter(help),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	p.kong = k
	return p, nil
}

// Path is the name of a settings file. It is read before any other setting is
// resolved.
type Path string

// BeforeResolve reads the file.
func (Path) BeforeResolve(p *Parser, ctx *kong.Context, trace *kong.Path) error {
	path := string(ctx.FlagValue(trace.Flag).(Path))
	if path == "" {
		return nil
	}
	named := map[string]string{}
	walk(p.kong.Model.Node, func(f *kong.Flag) {
		if key := f.Tag.Get("named"); key != "" {
			named[f.Name] = key
		}
	})
	f, err := readFile(path, named)
	if err != nil {
		return err
	}
	p.file = f
	ctx.AddResolver(f)
	return f.Validate(ctx.Model)
}

// Parse reads all settings. The error names the setting at fault and where its
// value came from. Variables of settings that are set to nothing are unset.
func (p *Parser) Parse(args []string) (*Parsed, error) {
	// An empty variable is as good as none: that is how a shell, or a container's
	// description, takes a setting back.
	walk(p.kong.Model.Node, func(f *kong.Flag) {
		for _, name := range f.Envs {
			if v, ok := os.LookupEnv(name); ok && v == "" {
				_ = os.Unsetenv(name) // the name was found, so it is legal
			}
		}
	})
	ctx, err := p.kong.Parse(args)
	if err != nil {
		return nil, p.locate(err)
	}
	return &Parsed{Context: ctx, file: p.file}, nil
}

// locate adds the place in the file to an error about a value from there.
func (p *Parser) locate(err error) error {
	name, ok := strings.CutPrefix(err.Error(), "--")
	if !ok || p.file == nil || strings.Contains(name, "(from envar ") {
		return err
	}
	name, _, _ = strings.Cut(name, ":")
	if e, ok := p.file.values[name]; ok {
		return fmt.Errorf("%w (%s line %d)", err, p.file.path, e.line)
	}
	return err
}

// walk visits the flags of a command and all below it.
func walk(n *kong.Node, visit func(*kong.Flag)) {
	for _, f := range n.Flags {
		visit(f)
	}
	for _, child := range n.Children {
		walk(child, visit)
	}
}

// help adds default, bounds and names in the environment to the help of a
// setting.
func help(v *kong.Value) string {
	if v.Flag == nil || v.Name == "help" {
		return v.Help
	}
	var notes []string
	if c := v.Tag.Get("choice"); c != "" {
		notes = append(notes, strings.ReplaceAll(c, ",", ", "))
	}
	if r := v.Tag.Get("range"); r != "" {
		notes = append(notes, r)
	}
	if v.HasDefault && v.Default != "" {
		notes = append(notes, "default "+v.Default)
	}
	if envs := v.Flag.Envs; len(envs) > 0 {
		notes = append(notes, strings.Join(envs, " or "))
	}
	if len(notes) == 0 {
		return v.Help
	}
	return v.Help + " [" + strings.Join(notes, "; ") + "]"
}
