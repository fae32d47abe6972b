package responses

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

const (
	maxTools        = 1536
	maxToolNameSize = 256 // bytes
)

// toolbox holds the tools of a conversation.
type toolbox struct {
	// list is all of them, in the client's order. What nobody here can run is in it
	// for those who count that.
	list []chat.Tool
	// known are those that the model may call, and how it does so on the wire.
	known map[toolName]callKind
	// hosted are the others, for the log.
	hosted []string
	count  int
}

// toolName is how a client names a tool; most are in no namespace.
type toolName struct{ namespace, name string }

// callKind is how a call of a tool goes over the wire.
type callKind uint8

const (
	functionCall callKind = iota
	customCall
	localShellCall
	shellCall
	applyPatchCall
)

// add takes in a JSON array of tools, which stands at path. Tools that are there
// already stay what they are.
func (b *toolbox) add(raw []byte, path string) error {
	if len(raw) == 0 {
		return nil
	}
	r := wire.NewReader(raw, path)
	err := r.Array("an array of tools", func(i int) error {
		return b.read(r, index(path, i), "")
	})
	if err == nil {
		err = r.End()
	}
	if err == nil && b.count > maxTools {
		err = wire.Invalid(path, "Maximum of %d tools are supported, got %d", maxTools, b.count)
	}
	return err
}

// read reads one tool, or, if it is in none itself, a namespace of tools.
func (b *toolbox) read(r *wire.Reader, path, namespace string) error {
	if b.count++; b.count > maxTools {
		return r.Skip() // only how many there are matters now
	}
	t := chat.Tool{Namespace: namespace}
	var kind string
	var format, inner, environment []byte
	raw, err := r.ObjectRaw("a tool object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = r.Text("a string")
		case "name":
			t.Name, err = wire.Loose(r)
		case "description":
			t.Description, err = wire.Loose(r)
		case "parameters":
			err = wire.Nullable(r, (*[]byte)(&t.Schema), wire.Clean)
		case "strict":
			t.Strict, err = looseBoolean(r)
		case "format":
			err = wire.Nullable(r, &format, wire.Clean)
		case "tools":
			err = wire.Nullable(r, &inner, wire.Clean)
		case "environment":
			err = wire.Nullable(r, &environment, wire.Clean)
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	call := functionCall
	switch kind {
	case "function":
		t.Kind, t.Wire = chat.ToolFunction, wire.CleanRaw(raw)
		if t.Schema != nil && t.Schema[0] != '{' {
			return wire.Invalid(path+".parameters", "%s.parameters must be a JSON Schema object", path)
		}
	case "custom":
		t.Kind, call = chat.ToolCustom, customCall
		if t.Grammar, err = readGrammar(format, path+".format"); err != nil {
			return err
		}
		t.Description, t.Schema = withGrammar(t.Description, t.Grammar), inputSchema(t.Grammar)
	case "namespace":
		if namespace == "" {
			return b.readNamespace(inner, path, t.Name)
		}
		b.hosted = append(b.hosted, path+".type="+wire.Clip(kind)) // groups in groups are not known to anybody
		return nil
	case "":
		return wire.Missing(path+".type", "%s.type is required", path)
	default:
		builtin, ok := builtins[kind]
		if !ok || isHosted(environment) {
			b.hosted = append(b.hosted, path+".type="+wire.Clip(kind))
			b.list = append(b.list, chat.Tool{Kind: chat.ToolServer, Name: kind, Wire: wire.CleanRaw(raw)})
			return nil
		}
		t, call = builtin.Tool, builtin.call
	}
	if err := checkName(t.Name, path+".name"); err != nil {
		return err
	}
	as := toolName{t.Namespace, t.Name}
	if _, ok := b.known[as]; ok {
		return nil
	}
	if b.known == nil {
		b.known = map[toolName]callKind{}
	}
	b.known[as] = call
	b.list = append(b.list, t)
	return nil
}

// readNamespace reads the tools of a group.
func (b *toolbox) readNamespace(inner []byte, path, name string) error {
	if err := checkName(name, path+".name"); err != nil || inner == nil {
		return err
	}
	path += ".tools"
	r := wire.NewReader(inner, path)
	return r.Array("an array of tools", func(i int) error {
		return b.read(r, index(path, i), name)
	})
}

func checkName(name, path string) error {
	switch {
	case name == "":
		return wire.Missing(path, "%s is required", path)
	case len(name) > maxToolNameSize:
		return wire.Invalid(path, "%s exceeds %d byte limit, got %d bytes", path, maxToolNameSize, len(name))
	case strings.ContainsFunc(name, wire.NotInToolName):
		return wire.Invalid(path, "%s is not a valid name: %q. Control characters, blanks, quotes, < and > are not allowed.", path, name)
	}
	return nil
}

// readGrammar reads the format of a custom tool. Free text has no grammar.
func readGrammar(format []byte, path string) (*chat.Grammar, error) {
	if format == nil {
		return nil, nil
	}
	var kind string
	var g chat.Grammar
	r := wire.NewReader(format, path)
	err := r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = r.Text("a string")
		case "syntax":
			g.Syntax, err = r.Text("a string")
		case "definition":
			g.Definition, err = r.Text("a string")
		default:
			err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case kind != "grammar":
		return nil, nil // text, and whatever else there may be one day
	case g.Syntax != "lark" && g.Syntax != "regex":
		return nil, wire.Invalid(path+".syntax", "%s.syntax must be lark or regex, got %q", path, wire.Clip(g.Syntax))
	case g.Definition == "":
		return nil, wire.Missing(path+".definition", "%s.definition is required", path)
	}
	return &g, nil
}

// withGrammar shows the model the grammar that its input shall follow: not every
// engine can hold it to one.
func withGrammar(description string, g *chat.Grammar) string {
	if g == nil {
		return description
	}
	if description != "" {
		description += "\n\n"
	}
	return description + "The input must follow this " + g.Syntax + " grammar:\n" + g.Definition
}

// inputSchema describes the arguments of a custom tool as a model writes them:
// templates and models know functions alone.
func inputSchema(g *chat.Grammar) json.RawMessage {
	note := "the text to pass to the tool"
	if g != nil {
		note = "must follow the " + g.Syntax + " grammar in the description"
	}
	s := append([]byte(nil), `{"type":"object","properties":{"input":{"type":"string","description":`...)
	s = wire.AppendString(s, note)
	return append(s, `}},"required":["input"],"additionalProperties":false}`...)
}

// choice reads tool_choice. A tool in a namespace is named as namespace__name.
func (b *toolbox) choice(raw []byte, parallel *bool) (chat.ToolChoice, error) {
	choice := chat.ToolChoice{Parallel: parallel}
	if raw == nil {
		return choice, nil
	}
	const path = "tool_choice"
	r := wire.NewReader(raw, path)
	if r.Kind() == '"' {
		mode, err := r.Text("a string")
		if err != nil {
			return choice, err
		}
		return b.mode(choice, mode, path)
	}
	var kind, mode string
	var named toolName
	var allowed []allowedTool
	err := r.Object(`"none", "auto", "required" or an object`, func(key []byte) (err error) {
		switch string(key) {
		case "type":
			kind, err = r.Text("a string")
		case "name":
			named.name, err = wire.Loose(r)
		case "namespace":
			named.namespace, err = wire.Loose(r)
		case "mode":
			mode, err = wire.Loose(r)
		case "tools":
			allowed, err = readAllowed(r)
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return choice, err
	}
	switch kind {
	case "function", "custom":
		if named.name == "" {
			return choice, wire.Missing(path+".name", "%s.name is required", path)
		}
		name, ok := b.find(named)
		if !ok {
			return choice, unknownTool(path+".name", named.name)
		}
		choice.Mode, choice.Names = chat.ToolNamed, []string{name}
	case "allowed_tools":
		return b.allow(choice, mode, allowed)
	case "":
		return choice, wire.Missing(path+".type", "%s.type is required", path)
	}
	// What is left are tools that cannot be run here.
	return choice, nil
}

func (b *toolbox) mode(choice chat.ToolChoice, mode, path string) (chat.ToolChoice, error) {
	switch chat.ToolMode(mode) {
	case chat.ToolNone, chat.ToolAuto:
		choice.Mode = chat.ToolMode(mode)
		return choice, nil
	case chat.ToolRequired:
		switch {
		case len(b.known) > 0:
			choice.Mode = chat.ToolRequired
		case len(b.hosted) == 0:
			return choice, wire.Invalid(path, "%s is \"required\" but tools is empty", path)
		}
		return choice, nil
	}
	return choice, wire.Invalid(path, "%s must be none, auto or required, or an object, got %q", path, wire.Clip(mode))
}

// allowedTool is one of the tools in allowed_tools.
type allowedTool struct {
	kind string
	toolName
}

func readAllowed(r *wire.Reader) ([]allowedTool, error) {
	var list []allowedTool
	count := 0
	err := r.Array("an array of tools", func(int) error {
		if count++; count > maxTools {
			return r.Skip()
		}
		var t allowedTool
		err := r.Object("a tool object", func(key []byte) (err error) {
			switch string(key) {
			case "type":
				t.kind, err = r.Text("a string")
			case "name":
				t.name, err = wire.Loose(r)
			case "namespace":
				t.namespace, err = wire.Loose(r)
			default:
				err = r.Skip()
			}
			return err
		})
		list = append(list, t)
		return err
	})
	if err == nil && count > maxTools {
		err = wire.Invalid("tool_choice.tools", "Maximum of %d allowed tools are supported, got %d", maxTools, count)
	}
	return list, err
}

// allow restricts the choice to some tools. Those that cannot be run here are
// left out; if nothing else is allowed, no tool is.
func (b *toolbox) allow(choice chat.ToolChoice, mode string, allowed []allowedTool) (chat.ToolChoice, error) {
	const path = "tool_choice.tools"
	for i, t := range allowed {
		if t.kind != "function" && t.kind != "custom" {
			continue
		}
		name, ok := b.find(t.toolName)
		if !ok {
			return choice, unknownTool(index(path, i)+".name", t.name)
		}
		choice.Names = append(choice.Names, name)
	}
	if len(choice.Names) == 0 {
		choice.Mode = chat.ToolNone
		return choice, nil
	}
	if mode == "" {
		mode = string(chat.ToolAuto)
	}
	return b.mode(choice, mode, "tool_choice.mode")
}

// find returns the name of a tool in a choice. A client that leaves the namespace
// out means the first tool of that name.
func (b *toolbox) find(as toolName) (string, bool) {
	if _, ok := b.known[as]; !ok {
		i := slices.IndexFunc(b.list, func(t chat.Tool) bool {
			return as.namespace == "" && t.Callable() && t.Name == as.name
		})
		if i < 0 {
			return "", false
		}
		as.namespace = b.list[i].Namespace
	}
	if as.namespace != "" {
		return as.namespace + "__" + as.name, true
	}
	return as.name, true
}

func unknownTool(path, name string) error {
	return wire.Invalid(path, "tool named %q in tool_choice is not present in tools", wire.Clip(name))
}
