package responses

import (
	"strconv"
	"strings"

	"github.com/dynago/dynago/internal/wire"
)

// Names under which a model sees the tools that have types of their own.
const (
	nameLocalShell = "local_shell"
	nameShell      = "shell"
	nameApplyPatch = "apply_patch"
)

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
				out, err = looseText(r)
			case "stderr":
				errors, err = looseText(r)
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
			kind, err = looseText(r)
		case "exit_code":
			code, err = looseText(r)
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
