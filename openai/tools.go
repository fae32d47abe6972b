package openai

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

const (
	maxTools        = 1536
	maxToolNameSize = 256 // bytes
)

// readTools reads the tools and keeps each as it came, for the template. Tools
// that are not functions are left out and listed as unknown.
func readTools(r *wire.Reader, b *body) error {
	b.tools, b.toolCount = nil, 0
	if null, err := r.Null(); null {
		return err
	}
	err := r.Array("an array of tools", func(i int) error {
		if b.toolCount++; b.toolCount > maxTools {
			return r.Skip() // only how many there are matters now
		}
		if r.Kind() != '{' {
			return r.Mistyped("a tool object")
		}
		raw, err := r.Raw()
		if err != nil {
			return err
		}
		tool, kind, err := readTool(raw, i)
		switch {
		case err != nil:
			return err
		case kind == "function":
			b.tools = append(b.tools, tool)
		case len(b.unknown) < maxUnknown:
			b.unknown = append(b.unknown, index("tools", i)+".type="+wire.Clip(kind))
		}
		return nil
	})
	if err == nil && b.toolCount > maxTools {
		return wire.Invalid("tools", "Maximum of %d tools are supported, got %d", maxTools, b.toolCount)
	}
	return err
}

func readTool(raw []byte, i int) (chat.Tool, string, error) {
	path := index("tools", i)
	r, tool, kind := wire.NewReader(raw, path), chat.Tool{Kind: chat.ToolFunction, Wire: wire.CleanRaw(raw)}, "function"
	function := false
	err := r.Object("a tool object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = r.Text("a string")
		case "function":
			if null, err := r.Null(); null {
				return err
			}
			function, err = true, r.Object("a function object", func(name []byte) error {
				return readFunction(r, string(name), &tool)
			})
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil || kind != "function" {
		return tool, kind, err
	}
	if !function {
		return tool, kind, wire.Missing(path+".function", "%s.function is required", path)
	}
	return tool, kind, checkFunction(&tool, i, path)
}

func readFunction(r *wire.Reader, name string, tool *chat.Tool) (err error) {
	switch name {
	case "name":
		err = wire.Nullable(r, &tool.Name, wire.Text)
	case "description":
		err = wire.Nullable(r, &tool.Description, wire.Text)
	case "parameters":
		err = wire.Nullable(r, (*[]byte)(&tool.Schema), wire.Clean)
	case "strict":
		err = wire.Optional(r, &tool.Strict, (*wire.Reader).Boolean)
	default:
		err = r.Skip()
	}
	return err
}

func checkFunction(tool *chat.Tool, i int, path string) error {
	name, param := tool.Name, path+".function.name"
	switch {
	case name == "":
		return wire.Missing(param, "Function name at index %d cannot be empty", i)
	case len(name) > maxToolNameSize:
		return wire.Invalid(param, "Function name at index %d exceeds %d byte limit, got %d bytes", i, maxToolNameSize, len(name))
	case strings.ContainsFunc(name, wire.NotInToolName):
		return wire.Invalid(param, "Function at index %d has an invalid name: %q. Control characters, blanks, quotes, < and > are not allowed.", i, name)
	case tool.Schema != nil && tool.Schema[0] != '{':
		return wire.Invalid(path+".function.parameters", "Function parameters at index %d for %q must be a JSON Schema object", i, name)
	}
	return nil
}

// choice reads tool_choice and parallel_tool_calls.
func (b *body) choice() (chat.ToolChoice, error) {
	choice := chat.ToolChoice{Parallel: b.parallelToolCalls}
	if b.toolChoice == nil {
		return choice, nil
	}
	if err := readChoice(b.toolChoice, &choice); err != nil {
		return choice, err
	}
	if choice.Mode == chat.ToolRequired && b.toolCount == 0 {
		return choice, wire.Invalid("tool_choice", "tool_choice is \"required\" but tools is empty")
	}
	for _, name := range choice.Names {
		if !b.hasTool(name) {
			return choice, wire.Invalid("tool_choice", "tool named %q in tool_choice is not present in tools", name)
		}
	}
	return choice, nil
}

func (b *body) hasTool(name string) bool {
	return slices.ContainsFunc(b.tools, func(t chat.Tool) bool { return t.Name == name })
}

func readChoice(value []byte, choice *chat.ToolChoice) error {
	r := wire.NewReader(value, "tool_choice")
	if r.Kind() == '"' {
		mode, err := r.Text("a string")
		if err != nil {
			return err
		}
		return setMode(choice, mode, "tool_choice")
	}
	kind, name, mode := "function", "", "auto"
	var allowed []string
	named := func(key []byte) (err error) {
		if string(key) != "name" {
			return r.Skip()
		}
		name, err = r.Text("a string")
		return err
	}
	err := r.Object(`"none", "auto", "required" or an object that names a function`, func(key []byte) (err error) {
		switch string(key) {
		case "type":
			kind, err = r.Text("a string")
		case "name":
			name, err = r.Text("a string")
		case "function", "custom":
			err = r.Object("an object", named)
		case "allowed_tools":
			err = r.Object("an object", func(key []byte) (err error) {
				switch string(key) {
				case "mode":
					mode, err = r.Text("a string")
				case "tools":
					allowed, err = readAllowed(r)
				default:
					err = r.Skip()
				}
				return err
			})
		default:
			err = r.Skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case kind == "allowed_tools":
		if err := setMode(choice, mode, "tool_choice.allowed_tools.mode"); err != nil {
			return err
		}
		if len(allowed) == 0 { // an empty list of names would allow all of them
			if choice.Mode == chat.ToolRequired {
				return wire.Invalid("tool_choice.allowed_tools.tools", "tool_choice requires a call of a tool but allows none: tool_choice.allowed_tools.tools is empty")
			}
			choice.Mode = chat.ToolNone
		}
		choice.Names = allowed
		return nil
	case kind != "function" && kind != "custom":
		return wire.Invalid("tool_choice.type", "tool_choice.type must be function or allowed_tools, got %q", wire.Clip(kind))
	case name == "":
		return wire.Missing("tool_choice.function.name", "tool_choice.function.name is required")
	}
	choice.Mode, choice.Names = chat.ToolNamed, []string{name}
	return nil
}

func setMode(choice *chat.ToolChoice, mode, param string) error {
	switch chat.ToolMode(mode) {
	case chat.ToolNone, chat.ToolAuto, chat.ToolRequired:
		choice.Mode = chat.ToolMode(mode)
		return nil
	}
	return wire.Invalid(param, "%s must be none, auto or required, or name a function, got %q", param, wire.Clip(mode))
}

// readAllowed reads the names out of [{"type":"function","function":{"name":…}}].
func readAllowed(r *wire.Reader) ([]string, error) {
	var names []string
	count := 0
	err := r.Array("an array of tools", func(int) error {
		name := ""
		err := r.Object("a tool object", func(key []byte) (err error) {
			switch string(key) {
			case "name":
				name, err = r.Text("a string")
			case "function", "custom":
				err = r.Object("an object", func(key []byte) (err error) {
					if string(key) != "name" {
						return r.Skip()
					}
					name, err = r.Text("a string")
					return err
				})
			default:
				err = r.Skip()
			}
			return err
		})
		count++
		if count <= maxTools {
			names = append(names, name)
		}
		return err
	})
	if err == nil && count > maxTools {
		err = wire.Invalid("tool_choice.allowed_tools.tools", "Maximum of %d allowed tools are supported, got %d", maxTools, count)
	}
	return names, err
}
