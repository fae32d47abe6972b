package responses

// outputKind says what an item is, and by which events it is streamed.
type outputKind uint8

const (
	nothing outputKind = iota
	textOutput
	refusalOutput
	summaryOutput    // a thought as its own summary
	thoughtOutput    // a thought that is not streamed
	rawThoughtOutput // one that is
	functionOutput
	customOutput
	localShellOutput
	shellOutput
	applyPatchOutput
	actionOutput // a call with a form of its own, which is known when it is complete
)

// form is how a kind of item goes over the wire.
type form struct {
	item   string // type of the item
	prefix string // of its id
	whole  string // member with the text in it
	part   string // type of its only part; empty if it has none
	// delta is the event of a piece of text, and done the one that repeats the
	// whole; empty if there are none.
	delta, done string
	// added and finished are the events around the part, and at the members that
	// say which one it is.
	added, finished, at string
}

var forms = [...]form{
	textOutput: {
		item: typeMessage, prefix: "msg_", whole: "text", part: "output_text",
		delta: "response.output_text.delta", done: "response.output_text.done",
		added: partAdded, finished: partDone, at: inContent,
	},
	refusalOutput: {
		item: typeMessage, prefix: "msg_", whole: "refusal", part: "refusal",
		delta: "response.refusal.delta", done: "response.refusal.done",
		added: partAdded, finished: partDone, at: inContent,
	},
	summaryOutput: {
		item: typeReasoning, prefix: "rs_", whole: "text", part: "summary_text",
		delta: "response.reasoning_summary_text.delta", done: "response.reasoning_summary_text.done",
		added: "response.reasoning_summary_part.added", finished: "response.reasoning_summary_part.done", at: `,"summary_index":0`,
	},
	thoughtOutput: {item: typeReasoning, prefix: "rs_", whole: "text", part: "reasoning_text"},
	rawThoughtOutput: {
		item: typeReasoning, prefix: "rs_", whole: "text", part: "reasoning_text",
		delta: "response.reasoning_text.delta", done: "response.reasoning_text.done",
		added: partAdded, finished: partDone, at: inContent,
	},
	functionOutput: {
		item: typeFunctionCall, prefix: "fc_", whole: "arguments",
		delta: "response.function_call_arguments.delta", done: "response.function_call_arguments.done",
	},
	customOutput: {
		item: typeCustomCall, prefix: "ctc_", whole: "input",
		delta: "response.custom_tool_call_input.delta", done: "response.custom_tool_call_input.done",
	},
	localShellOutput: {item: typeLocalShell, prefix: "lsh_", whole: "action"},
	shellOutput:      {item: typeShell, prefix: "sh_", whole: "action"},
	applyPatchOutput: {item: typeApplyPatch, prefix: "apc_", whole: "operation"},
}

const (
	inContent = `,"content_index":0`
	partAdded = "response.content_part.added"
	partDone  = "response.content_part.done"
)

// actions are the kinds of items that calls with a form of their own become, and
// the names of their tools.
var actions = [...]struct {
	kind outputKind
	name string
}{
	localShellCall: {localShellOutput, nameLocalShell},
	shellCall:      {shellOutput, nameShell},
	applyPatchCall: {applyPatchOutput, nameApplyPatch},
}

// event returns the name under which an event is sent: Open Responses has names
// of its own for raw thoughts.
func (e *Encoder) event(name string) string {
	if e.open.kind == rawThoughtOutput && e.show.raw == RawOpenResponses {
		switch name {
		case "response.reasoning_text.delta":
			return "response.reasoning.delta"
		case "response.reasoning_text.done":
			return "response.reasoning.done"
		}
	}
	return name
}
