package responses

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// Names under which a model sees the tools that have types of their own.
const (
	nameLocalShell = "local_shell"
	nameShell      = "shell"
	nameApplyPatch = "apply_patch"
)

// builtin is a tool that the client runs and the API describes.
type builtin struct {
	chat.Tool
	call callKind
}

var builtins = map[string]builtin{
	nameLocalShell: {function(nameLocalShell, "Run a command on the user's machine, and return what it prints.",
		`{"type":"object","properties":{`+
			`"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments, as in [\"bash\",\"-lc\",\"ls\"]"},`+
			`"working_directory":{"type":"string","description":"Where to run it"},`+
			`"timeout_ms":{"type":"integer","description":"How long it may take, in milliseconds"},`+
			`"env":{"type":"object","additionalProperties":{"type":"string"},"description":"Environment variables to set"}},`+
			`"required":["command"],"additionalProperties":false}`), localShellCall},
	nameShell: {function(nameShell, "Run shell commands, and return what each of them prints and how it ends.",
		`{"type":"object","properties":{`+
			`"commands":{"type":"array","items":{"type":"string"},"description":"The command lines"},`+
			`"timeout_ms":{"type":"integer","description":"How long each may take, in milliseconds"},`+
			`"max_output_length":{"type":"integer","description":"The most characters to return of each"}},`+
			`"required":["commands"],"additionalProperties":false}`), shellCall},
	nameApplyPatch: {function(nameApplyPatch, "Create, change or delete one file.",
		`{"type":"object","properties":{`+
			`"type":{"type":"string","enum":["create_file","update_file","delete_file"]},`+
			`"path":{"type":"string","description":"The file"},`+
			`"diff":{"type":"string","description":"A diff in the V4A format: lines that begin with +, - or a blank, below @@ lines; of a file to create, all its lines after +. None to delete one."}},`+
			`"required":["type","path"],"additionalProperties":false}`), applyPatchCall},
}

func function(name, description, schema string) chat.Tool {
	return chat.Tool{Kind: chat.ToolFunction, Name: name, Description: description, Schema: json.RawMessage(schema)}
}

// isHosted says whether a shell is to run somewhere else than with the client.
func isHosted(environment []byte) bool {
	kind, r := "", wire.NewReader(environment, "")
	if environment == nil || r.Kind() != '{' {
		return false
	}
	r.Object("an object", func(name []byte) (err error) { //nolint:errcheck // it was read once before
		if string(name) != "type" {
			return r.Skip()
		}
		kind, err = wire.Loose(r)
		return err
	})
	return kind != "local"
}

// appendAction appends what a model wants to be done, in the form of its item. It
// is not ok if the arguments are not what was asked for: then nobody shall act on
// them.
func appendAction(dst []byte, call callKind, args string) (_ []byte, ok bool) {
	raw := []byte(args)
	given := map[string]byte{} // kinds of the members
	r := wire.NewReader(raw, "")
	dst = append(dst, '{')
	if call == localShellCall {
		dst = append(dst, `"type":"exec"`...)
	}
	kind, words := "", true
	err := r.Object("an object", func(name []byte) error {
		key := string(name)
		given[key] = byte(r.Kind())
		value, err := r.Raw()
		if err != nil || call == localShellCall && key == "type" {
			return err
		}
		switch key {
		case "type":
			kind = string(value)
		case "command", "commands":
			words = isWords(value)
		}
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(wire.AppendString(dst, key), ':')
		dst = append(dst, wire.OneLine(wire.CleanRaw(value))...)
		return nil
	})
	if err == nil {
		err = r.End()
	}
	absent := func(name, value string) {
		if given[name] == 0 {
			dst = append(append(append(append(dst, `,"`...), name...), `":`...), value...)
		}
	}
	switch call {
	case localShellCall:
		ok = given["command"] == '[' && words
		absent("env", "{}")
	case shellCall:
		ok = given["commands"] == '[' && words
		absent("timeout_ms", "null")
		absent("max_output_length", "null")
	case applyPatchCall:
		change := kind == `"create_file"` || kind == `"update_file"`
		ok = given["path"] == '"' && (change && given["diff"] == '"' || kind == `"delete_file"`)
	}
	return append(dst, '}'), ok && err == nil
}

// isWords says whether a value is an array of strings.
func isWords(value []byte) bool {
	r := wire.NewReader(value, "")
	return r.Array("an array", func(int) error {
		_, err := r.Text("a string")
		return err
	}) == nil
}

// argsOf returns the arguments that an action was made of: without what
// [appendAction] adds to them.
func argsOf(call callKind, action []byte) string {
	if call == applyPatchCall || len(action) == 0 {
		return string(wire.CleanRaw(action))
	}
	r := wire.NewReader(action, "")
	if r.Kind() != '{' {
		return string(wire.CleanRaw(action))
	}
	out := []byte{'{'}
	r.Object("an object", func(name []byte) error { //nolint:errcheck // it was read once before
		key := string(name)
		value, err := r.Raw()
		switch {
		case err != nil:
			return err
		case call == localShellCall && key == "type", key == "env" && string(value) == "{}", string(value) == "null":
			return nil
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		out = append(wire.AppendString(out, key), ": "...)
		out = append(out, wire.CleanRaw(value)...)
		return nil
	})
	return string(append(out, '}'))
}

// shellOutput makes what several commands have answered one text, as a terminal
// would show it.
func (d *draft) shellOutput() {
	if d.results == nil {
		return
	}
	var b strings.Builder
	line := func(s string) {
		if s == "" {
			return
		}
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(s)
	}
	r := wire.NewReader(d.results, "")
	err := r.Array("an array of outputs", func(int) error {
		var out, errors, outcome, code string
		err := r.Object("an object", func(name []byte) (err error) {
			switch string(name) {
			case "stdout":
				out, err = wire.Loose(r)
			case "stderr":
				errors, err = wire.Loose(r)
			case "outcome":
				outcome, code, err = readOutcome(r)
			default:
				err = r.Skip()
			}
			return err
		})
		line(out)
		line(errors)
		switch {
		case outcome == "timeout":
			line("[timed out]")
		case code != "" && code != "0":
			line("[exit code " + code + "]")
		}
		return err
	})
	if err != nil { // something else, which is shown as it is
		b.Reset()
		b.Write(wire.CleanRaw(d.results))
	}
	d.results, d.output = nil, []part{{index: -1, kind: "text", text: b.String()}}
}

// readOutcome reads how a command has ended.
func readOutcome(r *wire.Reader) (kind, code string, err error) {
	if r.Kind() != '{' {
		return "", "", r.Skip()
	}
	err = r.Object("an object", func(name []byte) (err error) {
		switch string(name) {
		case "type":
			kind, err = wire.Loose(r)
		case "exit_code":
			code, err = wire.Loose(r)
			if _, bad := strconv.Atoi(code); bad != nil {
				code = ""
			}
		default:
			err = r.Skip()
		}
		return err
	})
	return kind, code, err
}
