package pipeline

import (
	"bytes"

	"github.com/dynago/dynago/chat"
	"github.com/go-json-experiment/json/jsontext"
)

// notShown returns what of a request its model is not shown, by kind: blocks that
// nobody here knows, and tools that only another provider can run. A kind is the
// type that the client named, if it is one that the APIs have.
func notShown(r *chat.Request) map[string]int {
	var kinds map[string]int
	count := func(kind string) {
		if kinds == nil {
			kinds = map[string]int{}
		}
		kinds[kind]++
	}
	var blocks func(list []chat.Block)
	blocks = func(list []chat.Block) {
		for i := range list {
			switch b := &list[i]; {
			case b.Kind == chat.Opaque:
				count(kindOf(b.Wire, "block"))
			case b.Result != nil:
				blocks(b.Result.Blocks)
			}
		}
	}
	blocks(r.System)
	for i := range r.Turns {
		blocks(r.Turns[i].Blocks)
	}
	for i := range r.Tools {
		if t := &r.Tools[i]; !t.Callable() {
			count(kindOf(t.Wire, "tool"))
		}
	}
	return kinds
}

// kindOf returns the type that a JSON object names, or other where the APIs have
// no such type: clients cannot invent values of labels.
func kindOf(wire []byte, other string) string {
	d := jsontext.NewDecoder(bytes.NewReader(wire))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return other
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return other
		}
		if name.String() != "type" {
			if d.SkipValue() != nil {
				return other
			}
			continue
		}
		kind, err := d.ReadToken()
		if err != nil || kind.Kind() != '"' {
			return other
		}
		if known := knownKinds[undated(kind.String())]; known {
			return undated(kind.String())
		}
		return other
	}
	return other
}

// undated is a type without the date of its version.
func undated(kind string) string {
	for len(kind) > 1 && (kind[len(kind)-1] == '_' || kind[len(kind)-1] >= '0' && kind[len(kind)-1] <= '9') {
		kind = kind[:len(kind)-1]
	}
	return kind
}

// knownKinds are the types of blocks and tools in the APIs, undated, that have no
// form here.
var knownKinds = setOf(
	// Messages: blocks
	"redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
	"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
	"mcp_tool_use", "mcp_tool_result", "container_upload", "fallback", "compaction", "document", "image",
	// Messages: tools
	"web_search", "web_fetch", "code_execution", "tool_search_tool_regex", "tool_search_tool_bm", "mcp_toolset",
	"advisor", "computer", "computer_toolset", "browser_toolset", "memory", "bash", "text_editor",
	// Responses: items and parts
	"item_reference", "reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call",
	"computer_call_output", "mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response",
	"tool_search_call", "tool_search_output", "additional_tools", "program", "program_output", "compaction_trigger", "ghost_snapshot",
	"input_audio", "input_file", "input_image",
	// Responses: tools
	"web_search_preview", "file_search", "code_interpreter", "image_generation", "computer_use_preview", "mcp", "tool_search",
	"programmatic_tool_calling", "local_shell", "shell", "apply_patch", "namespace",
	// Chat completions
	"video_url", "audio_url", "image_url", "file", "thinking", "refusal", "custom",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
