package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynago/dynago/chat"
)

// The API has tools that clients run and that its own models know without being
// told: a request names no more than their type. Models here are told what such
// a tool takes.

// known is one family of such tools.
type known struct {
	prefix      string // of the type; a date follows
	name        string // that it has if the client gives none
	description string
	schema      string
}

var knownTools = []known{
	{
		"bash_", "bash",
		"Run a command in a bash shell that keeps its state between calls. With restart, begin with a new shell instead.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run; required unless restart is true."},"restart":{"type":"boolean","description":"Whether to restart the shell."}}}`,
	},
	{
		"text_editor_", "str_replace_based_edit_tool",
		"View, create and edit text files.",
		`{"type":"object","properties":{"command":{"type":"string","enum":[%s],"description":"What to do."},"path":{"type":"string","description":"Absolute path of the file or directory."},"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: the first and the last line to show, counted from 1; -1 as the last line is the end of the file."},"file_text":{"type":"string","description":"For create: the content of the file."},"old_str":{"type":"string","description":"For str_replace: the text to replace, which must occur exactly once."},"new_str":{"type":"string","description":"For str_replace: the text to put there. For insert, in older versions: the text to insert."},"insert_line":{"type":"integer","description":"For insert: the line after which to insert; 0 is the beginning of the file."},"insert_text":{"type":"string","description":"For insert: the text to insert."}},"required":["command","path"]}`,
	},
	{
		"memory_", "memory",
		"Read and write files of notes under /memories that last beyond this conversation.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"],"description":"What to do."},"path":{"type":"string","description":"Path under /memories, for all commands but rename."},"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: the first and the last line to show."},"file_text":{"type":"string","description":"For create: the content of the file."},"old_str":{"type":"string","description":"For str_replace: the text to replace, which must occur exactly once."},"new_str":{"type":"string","description":"For str_replace: the text to put there."},"insert_line":{"type":"integer","description":"For insert: the line after which to insert; 0 is the beginning of the file."},"insert_text":{"type":"string","description":"For insert: the text to insert."},"old_path":{"type":"string","description":"For rename: the path that there is."},"new_path":{"type":"string","description":"For rename: the path that there shall be."}},"required":["command"]}`,
	},
	{
		"computer_", "computer",
		"Use a screen, a mouse and a keyboard.",
		`{"type":"object","properties":{"action":{"type":"string","enum":["key","type","mouse_move","left_click","left_click_drag","right_click","middle_click","double_click","triple_click","left_mouse_down","left_mouse_up","scroll","hold_key","wait","screenshot","cursor_position","zoom"],"description":"What to do."},"coordinate":{"type":"array","items":{"type":"integer"},"description":"x and y in pixels from the upper left corner."},"start_coordinate":{"type":"array","items":{"type":"integer"},"description":"For left_click_drag: where the drag begins."},"text":{"type":"string","description":"For type: the text. For key and hold_key: the keys, such as ctrl+s. For clicks and scroll: keys held down meanwhile."},"duration":{"type":"number","description":"For hold_key and wait: seconds."},"scroll_direction":{"type":"string","enum":["up","down","left","right"]},"scroll_amount":{"type":"integer","description":"For scroll: how many clicks of the wheel."},"region":{"type":"array","items":{"type":"integer"},"description":"For zoom: left, top, right and bottom in pixels."}},"required":["action"]}`,
	},
}

// screen is what a tool of the computer family says of the screen.
type screen struct{ width, height int64 }

// builtIn completes a tool of a known type, and reports whether it is one. What
// the client says itself stays.
func builtIn(t *chat.Tool, kind string, s screen) bool {
	for _, k := range knownTools {
		date, ok := strings.CutPrefix(kind, k.prefix)
		if !ok || date == "" || date[0] < '0' || date[0] > '9' {
			continue
		}
		if t.Name == "" {
			t.Name = k.name
		}
		if t.Description == "" {
			t.Description = k.description
			if k.name == "computer" && s.width > 0 && s.height > 0 {
				t.Description += fmt.Sprintf(" The screen has %d x %d pixels.", s.width, s.height)
			}
		}
		if t.Schema == nil {
			t.Schema = json.RawMessage(k.schema)
			if k.prefix == "text_editor_" {
				t.Schema = json.RawMessage(strings.Replace(k.schema, "%s", editorCommands(t.Name), 1))
			}
		}
		return true
	}
	return false
}

// editorCommands lists what an editor can do: only the older ones, of another
// name, can undo.
func editorCommands(name string) string {
	commands := `"view","create","str_replace","insert"`
	if name == "str_replace_editor" {
		commands += `,"undo_edit"`
	}
	return commands
}
