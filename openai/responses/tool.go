package responses

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

const (
	maxTools        = 1536
	maxToolNameSize = 256 // bytes
)

// toolbox holds the tools of a conversation: as the model sees them, and as the
// client knows them.
type toolbox struct {
	// list is what the model may call, in the client's order.
	list []chat.Tool
	// known are those of the list, under the names that the model sees.
	known map[string]tool
	// names are those under which the model sees the tools of a namespace, where
	// they differ.
	names map[toolName]string
	// hosted are the types of tools that somebody else would have to run.
	hosted []string
	count  int
}

// toolName is how a client names a tool; most are in no namespace.
type toolName struct{ namespace, name string }

// tool is what an answer needs to know about a tool.
type tool struct {
	toolName
	call callKind
}

// callKind is how a call of a tool goes over the wire.
type callKind uint8

const (
	functionCall callKind = iota
	customCall
)

// declared is one callable tool as it was read.
type declared struct {
	chat.Tool
	path string
}

// add takes in a JSON array of tools, which stands at path. Tools that are there
// already stay what they are.
func (b *toolbox) add(raw []byte, path string) error {
	if len(raw) == 0 {
		return nil
	}
	var list []declared
	r := wire.NewReader(raw, path)
	err := r.Array("an array of tools", func(i int) error {
		return b.read(r, index(path, i), "", &list)
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return err
	}
	if b.count > maxTools {
		return wire.Invalid(path, "Maximum of %d tools are supported, got %d", maxTools, b.count)
	}
	b.name(list)
	return nil
}

// read reads one tool, or a namespace of tools.
func (b *toolbox) read(r *wire.Reader, path, namespace string, list *[]declared) error {
	t := declared{path: path}
	t.Namespace = namespace
	var kind, definition string
	var format, inner []byte
	raw, err := r.ObjectRaw("a tool object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = r.Text("a string")
		case "name":
			t.Name, err = looseText(r)
		case "description":
			t.Description, err = looseText(r)
		case "parameters":
			t.Schema, err = nullableRaw(r)
		case "strict":
			t.Strict, err = looseBoolean(r)
		case "format":
			format, err = nullableRaw(r)
		case "tools":
			inner, err = nullableRaw(r)
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	b.count++
	switch kind {
	case "function":
		t.Kind, t.Wire = chat.ToolFunction, wire.CleanRaw(raw)
		if t.Schema != nil && t.Schema[0] != '{' {
			return wire.Invalid(path+".parameters", "%s.parameters must be a JSON Schema object", path)
		}
	case "custom":
		t.Kind = chat.ToolCustom
		if t.Grammar, err = readGrammar(format, path+".format"); err != nil {
			return err
		}
		t.Description, definition = withGrammar(t.Description, t.Grammar), "the text to pass to the tool"
		if t.Grammar != nil {
			definition = "must follow the " + t.Grammar.Syntax + " grammar in the description"
		}
		t.Schema = inputSchema(definition)
	case "namespace":
		return b.readNamespace(inner, path, t.Name, list)
	case "":
		return wire.Missing(path+".type", "%s.type is required", path)
	default:
		b.hosted = append(b.hosted, path+".type="+wire.Clip(kind))
		return nil
	}
	if err := checkName(t.Name, path+".name"); err != nil {
		return err
	}
	*list = append(*list, t)
	return nil
}

// readNamespace reads the tools of a group. Groups in groups are not known to
// anybody.
func (b *toolbox) readNamespace(inner []byte, path, name string, list *[]declared) error {
	if err := checkName(name, path+".name"); err != nil || inner == nil {
		return err
	}
	path += ".tools"
	r := wire.NewReader(inner, path)
	return r.Array("an array of tools", func(i int) error {
		return b.read(r, index(path, i), name, list)
	})
}

// name gives each tool the name that the model sees: its own, or, where two
// would be the same, that of its namespace before it.
func (b *toolbox) name(list []declared) {
	count := make(map[string]int, len(list))
	seen := make(map[toolName]bool, len(list))
	for i := range list {
		if as := (toolName{list[i].Namespace, list[i].Name}); !seen[as] {
			seen[as] = true
			count[as.name]++
		}
	}
	if b.known == nil {
		b.known = make(map[string]tool, len(list))
	}
	for i := range list {
		t := &list[i]
		as := toolName{t.Namespace, t.Name}
		if b.knows(as) {
			continue
		}
		if _, taken := b.known[t.Name]; t.Namespace != "" && (taken || count[t.Name] > 1) {
			t.Name = t.Namespace + "__" + t.Name
			for _, taken := b.known[t.Name]; taken; _, taken = b.known[t.Name] {
				t.Name += "_"
			}
			// The name as the client wrote it is no longer the tool's.
			t.Wire = nil
			if b.names == nil {
				b.names = map[toolName]string{}
			}
			b.names[as] = t.Name
		}
		call := functionCall
		if t.Kind == chat.ToolCustom {
			call = customCall
		}
		b.known[t.Name] = tool{as, call}
		b.list = append(b.list, t.Tool)
	}
}

// knows says whether the tool is in the list already.
func (b *toolbox) knows(as toolName) bool {
	t, ok := b.known[b.rendered(as.namespace, as.name)]
	return ok && t.toolName == as
}

// rendered returns the name under which the model sees a tool.
func (b *toolbox) rendered(namespace, name string) string {
	if namespace == "" || b.names == nil {
		return name
	}
	if as, ok := b.names[toolName{namespace, name}]; ok {
		return as
	}
	return name
}

// plain says whether all tools are functions that go by the names that the model
// sees.
func (b *toolbox) plain() bool {
	for _, t := range b.known {
		if t.call != functionCall || t.namespace != "" {
			return false
		}
	}
	return true
}

func checkName(name, path string) error {
	switch {
	case name == "":
		return wire.Missing(path, "%s is required", path)
	case len(name) > maxToolNameSize:
		return wire.Invalid(path, "%s exceeds %d byte limit, got %d bytes", path, maxToolNameSize, len(name))
	case strings.ContainsFunc(name, notInToolName):
		return wire.Invalid(path, "%s is not a valid name: %q. Control characters, blanks, quotes, < and > are not allowed.", path, name)
	}
	return nil
}

func notInToolName(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune("\"'`<>", r)
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
func inputSchema(note string) json.RawMessage {
	s := append([]byte(nil), `{"type":"object","properties":{"input":{"type":"string","description":`...)
	s = wire.AppendString(s, note)
	return append(s, `}},"required":["input"],"additionalProperties":false}`...)
}

// choice reads tool_choice. Names are those that the model sees.
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
			named.name, err = looseText(r)
		case "namespace":
			named.namespace, err = looseText(r)
		case "mode":
			mode, err = looseText(r)
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
		case len(b.list) > 0:
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
	err := r.Array("an array of tools", func(int) error {
		var t allowedTool
		err := r.Object("a tool object", func(key []byte) (err error) {
			switch string(key) {
			case "type":
				t.kind, err = r.Text("a string")
			case "name":
				t.name, err = looseText(r)
			case "namespace":
				t.namespace, err = looseText(r)
			default:
				err = r.Skip()
			}
			return err
		})
		list = append(list, t)
		return err
	})
	return list, err
}

// allow restricts the choice to some tools. Those that cannot be run here are
// left out; if nothing else is allowed, no tool is.
func (b *toolbox) allow(choice chat.ToolChoice, mode string, allowed []allowedTool) (chat.ToolChoice, error) {
	const path = "tool_choice.tools"
	if len(allowed) > maxTools {
		return choice, wire.Invalid(path, "Maximum of %d allowed tools are supported, got %d", maxTools, len(allowed))
	}
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

// find returns the name under which the model sees a tool. A client that leaves
// the namespace out means the only tool of that name.
func (b *toolbox) find(as toolName) (string, bool) {
	if b.knows(as) {
		return b.rendered(as.namespace, as.name), true
	}
	if as.namespace != "" {
		return "", false
	}
	i := slices.IndexFunc(b.list, func(t chat.Tool) bool { return b.known[t.Name].name == as.name })
	if i < 0 {
		return "", false
	}
	return b.list[i].Name, true
}

func unknownTool(path, name string) error {
	return wire.Invalid(path, "tool named %q in tool_choice is not present in tools", wire.Clip(name))
}
