package parser

import (
	"encoding/json"
	"strings"

	"github.com/dynago/dynago/chat"
)

// kimiForm is how Kimi K2 and its successors up to K2.6 write calls. The header
// is the id of the call, which holds the name: functions.NAME:INDEX.
var kimiForm = markedForm{
	begin:   "<|tool_call_begin|>",
	sep:     "<|tool_call_argument_begin|>",
	end:     "<|tool_call_end|>",
	closers: []string{"<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
}

var kimiK2 = &callGrammar{
	name:  "kimi_k2",
	open:  []string{"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"},
	close: kimiForm.closers,
	inner: []string{kimiForm.begin},
	strip: []string{kimiForm.sep, kimiForm.end},
	ids:   chat.FunctionIDs,
	body: func(o *Options) body {
		return newMarkedCalls(kimiForm, func(id, args string) (string, bool) {
			return nameInID(id, args, o.Tools)
		})
	},
}

// nameInID returns the name of the tool that an id stands for, and whether more
// than the id, the arguments, can tell nothing else. Models imitate ids that
// clients have rewritten: what has the form of an id is taken at its word; else
// the tools of the request tell what is meant, by their names or by the keys of
// the arguments.
func nameInID(id, args string, tools []chat.Tool) (name string, sure bool) {
	name, _, whole := chat.SplitID(id)
	if whole && (knownTool(tools, name) || len(tools) == 0) {
		return name, true
	}
	if i := toolOfID(id, tools); i >= 0 {
		return tools[i].Name, true
	}
	if whole && !strings.HasPrefix(name, "call") {
		return name, true
	}
	if args != "" || len(tools) == 0 {
		if i := toolOfArgs(args, tools); i >= 0 {
			return tools[i].Name, true
		}
		return strings.TrimPrefix(id, "functions."), true
	}
	return "", id == ""
}

func knownTool(tools []chat.Tool, name string) bool {
	for i := range tools {
		if tools[i].Name == name {
			return true
		}
	}
	return false
}

// toolOfID returns the place of the tool whose name is in an id, however the id
// is spelled, or -1. Of two that could be meant it is the one whose name does not
// take the index for a part of it.
func toolOfID(id string, tools []chat.Tool) int {
	found := -1
	for i := range tools {
		index, ok := chat.IndexInID(id, tools[i].Name)
		switch {
		case !ok:
		case index >= 0:
			return i
		default:
			found = i
		}
	}
	return found
}

// toolOfArgs returns the place of the only tool that has all keys of the
// arguments and requires no others, or -1.
func toolOfArgs(args string, tools []chat.Tool) int {
	var given map[string]json.RawMessage
	if json.Unmarshal([]byte(args), &given) != nil {
		return -1
	}
	found := -1
	for i := range tools {
		if !takes(&tools[i], given) {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// takes says whether a tool can be called with these arguments.
func takes(t *chat.Tool, args map[string]json.RawMessage) bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if len(t.Schema) > 0 && json.Unmarshal(t.Schema, &schema) != nil {
		return false
	}
	for key := range args {
		if _, ok := schema.Properties[key]; !ok {
			return false
		}
	}
	for _, key := range schema.Required {
		if _, ok := args[key]; !ok {
			return false
		}
	}
	return true
}
