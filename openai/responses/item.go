package responses

import (
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// Types of items that are more than passed over.
const (
	typeMessage      = "message"
	typeReasoning    = "reasoning"
	typeFunctionCall = "function_call"
	typeCustomCall   = "custom_tool_call"
	typeLocalShell   = "local_shell_call"
	typeShell        = "shell_call"
	typeApplyPatch   = "apply_patch_call"
	typeCompaction   = "compaction"
	itemReference    = "item_reference"
)

// Item is one item of a conversation. It is immutable, and copies share what it
// refers to.
type Item struct {
	ID   string // as its maker named it, or empty
	Type string // message, reasoning, function_call, …
	// Wire is the item as it goes over the wire: one JSON object.
	Wire []byte

	side  side
	role  chat.Role // of a message
	phase string
	// blocks are what the item says: the content of a message, one thought, call
	// or result, or nothing.
	blocks []chat.Block
	// sealed is an envelope with the text of the only block. Where it cannot be
	// opened, what the block says beside it counts.
	sealed string
	// marks are the blocks up to which the client expects the prompt to stay
	// cached.
	marks []int
	// tools were found by a search, or are added in the course of the
	// conversation: a JSON array.
	tools []byte
	// fault is why the item cannot be served where a client can still mend it;
	// further back it is only not shown.
	fault *wire.Error
	// strange lists the types of what was ignored in it.
	strange []string
}

// side says which turn an item belongs to.
type side uint8

const (
	nobody    side = iota // not rendered, and interrupts nothing
	speaker               // a turn of its own, of the role of the message
	assistant             // the turn of the model
	result                // what a tool has answered
	reference
)

// ParseItem reads an item that was kept as its bytes, which it aliases.
func ParseItem(raw []byte) (Item, error) {
	r := wire.NewReader(raw, "item")
	item, err := readItem(r, -1, new(wire.Tally))
	if err == nil {
		err = r.End()
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		err = broken.Cause
	}
	return item, err
}

// draft is an item whose members are read and whose type may not be known yet.
// Members mean the same in all types that have them.
type draft struct {
	Item
	at                            int // in the input, or -1
	count                         *wire.Tally
	role, status                  string
	content, summary, output      []part
	contentFault                  error
	callID, name, namespace, args string
	input                         string
	action, operation, results    []byte
}

// readItem reads item number at of the input.
func readItem(r *wire.Reader, at int, count *wire.Tally) (Item, error) {
	d := draft{at: at, count: count}
	raw, err := r.ObjectRaw("an item object", func(name []byte) error { return d.member(r, string(name)) })
	if err != nil {
		return Item{}, err
	}
	d.Wire = wire.CleanRaw(raw)
	err = d.finish()
	return d.Item, err
}

// path returns where the item stands.
func (d *draft) path() string {
	if d.at < 0 {
		return "item"
	}
	return index("input", d.at)
}

func (d *draft) member(r *wire.Reader, name string) (err error) {
	switch name {
	case "type":
		d.Type, err = wire.Loose(r)
	case "id":
		d.ID, err = wire.Loose(r)
	case "role":
		d.role, err = wire.Loose(r)
	case "phase":
		d.phase, err = wire.Loose(r)
	case "status":
		d.status, err = wire.Loose(r)
	case "content":
		d.content, d.contentFault, err = readParts(r, d.count)
	case "summary":
		d.summary, _, err = readParts(r, d.count)
	case "output":
		d.output, d.results = nil, nil
		if r.Kind() == '[' {
			d.results, err = r.Raw()
			return err
		}
		var text string
		text, err = wire.Loose(r)
		d.output = []part{{index: -1, kind: "text", text: text}}
	case "encrypted_content":
		d.sealed, err = wire.Loose(r)
	case "call_id":
		d.callID, err = wire.Loose(r)
	case "name":
		d.name, err = wire.Loose(r)
	case "namespace":
		d.namespace, err = wire.Loose(r)
	case "arguments":
		d.args, err = wire.Loose(r)
	case "input":
		d.input, err = wire.Loose(r)
	case "action":
		d.action, err = r.Raw()
	case "operation":
		d.operation, err = r.Raw()
	case "tools":
		d.tools, err = r.Raw()
	default:
		err = r.Skip()
	}
	return err
}

// finish makes the item what its type says.
func (d *draft) finish() error {
	switch {
	case d.Type != "":
	case d.role != "":
		d.Type = typeMessage
	case d.ID != "":
		d.Type = itemReference
	default:
		return d.missing("type")
	}
	switch d.Type {
	case typeMessage:
		return d.message()
	case typeReasoning:
		d.reasoning()
	case typeFunctionCall:
		return d.call(d.name, chat.ToolFunction, d.args)
	case typeCustomCall:
		return d.call(d.name, chat.ToolCustom, d.input)
	case typeLocalShell:
		return d.call(nameLocalShell, chat.ToolFunction, argsOf(localShellCall, d.action))
	case typeShell:
		return d.call(nameShell, chat.ToolFunction, argsOf(shellCall, d.action))
	case typeApplyPatch:
		return d.call(nameApplyPatch, chat.ToolFunction, argsOf(applyPatchCall, d.operation))
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output":
		return d.answer(false)
	case "shell_call_output":
		d.shellOutput()
		return d.answer(false)
	case "apply_patch_call_output":
		if d.output == nil {
			d.output = []part{{index: -1, kind: "text", text: d.status}}
		}
		return d.answer(d.status == "failed")
	case typeCompaction:
		d.side, d.Item.role = speaker, chat.RoleUser
		d.blocks = []chat.Block{{Kind: chat.Text}}
	case itemReference:
		if d.ID == "" {
			return d.missing("id")
		}
		d.side = reference
	case "additional_tools", "tool_search_output":
		// Their tools are taken in when the conversation is put together.
	case "compaction_trigger", "ghost_snapshot":
		d.tools = nil
	default:
		d.tools = nil
		d.strange = append(d.strange, "type="+wire.Clip(d.Type))
	}
	return nil
}

func (d *draft) missing(member string) error {
	path := d.path() + "." + member
	return wire.Missing(path, "%s is required", path)
}

func (d *draft) message() error {
	switch chat.Role(d.role) {
	case chat.RoleAssistant:
		d.side = assistant
	case chat.RoleUser, chat.RoleSystem, chat.RoleDeveloper:
		d.side = speaker
	case "":
		return d.missing("role")
	default:
		path := d.path() + ".role"
		return wire.Invalid(path, "%s must be one of user, assistant, system, developer, got %q", path, wire.Clip(d.role))
	}
	if d.contentFault != nil {
		return d.contentFault
	}
	d.Item.role = chat.Role(d.role)
	d.blocks = d.contents(d.content, "content")
	return nil
}

// reasoning makes the item a thought. What the model thought is better than a
// summary of it.
func (d *draft) reasoning() {
	d.side = assistant
	text, said := strings.Builder{}, d.content
	if said == nil {
		said = d.summary
	}
	for i := range said {
		if i > 0 && text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(said[i].text)
	}
	d.blocks = []chat.Block{{Kind: chat.Thought, Text: text.String()}}
}

// call makes the item the call of a tool. What the arguments are is not looked
// at: a bad call must not end the session.
func (d *draft) call(name string, kind chat.ToolKind, args string) error {
	if d.callID == "" {
		d.callID = d.ID
	}
	d.side = assistant
	switch {
	case name == "": // some models call nothing
		d.blocks = []chat.Block{{Kind: chat.Opaque, Wire: d.Wire}}
		d.strange = append(d.strange, "name")
		return nil
	case d.callID == "":
		return d.missing("call_id")
	}
	d.blocks = []chat.Block{{Kind: chat.ToolCall, Use: &chat.ToolUse{
		ID: d.callID, Name: name, Namespace: d.namespace, Kind: kind, Args: args,
	}}}
	return nil
}

// answer makes the item the result of a call.
func (d *draft) answer(failed bool) error {
	if d.callID == "" {
		d.callID = d.ID
	}
	if d.callID == "" {
		return d.missing("call_id")
	}
	if d.results != nil {
		parts, _, err := readParts(wire.NewReader(d.results, d.path()+".output"), d.count)
		if err != nil {
			return err
		}
		d.output = parts
	}
	d.side = result
	d.blocks = []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{
		ID: d.callID, IsError: failed, Blocks: d.contents(d.output, "output"),
	}}}
	d.marks = nil // of the blocks inside
	return nil
}
