package kserve

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

const parameterNVExt = "nvext"

// form is how the value of a parameter, or of a member of sampling_parameters, may be
// written.
type form uint8

const (
	asItIs   form = iota
	asNumber      // also as a decimal string
	asBool        // also as the string true or false
	asTexts       // a string, or an array of strings as JSON in a string
)

// parameterForms are the parameters that say how tokens are chosen. All others are
// passed over, as is the custom with parameters.
var parameterForms = map[string]form{
	"max_tokens": asNumber, "min_tokens": asNumber, "n": asNumber, "seed": asNumber,
	"temperature": asNumber, "top_p": asNumber, "top_k": asNumber, "min_p": asNumber,
	"presence_penalty": asNumber, "frequency_penalty": asNumber, "repetition_penalty": asNumber,
	"ignore_eos": asBool, "stop": asTexts,
}

// memberForms are further members of sampling_parameters that clients, whose values
// all are strings, write as such.
var memberForms = map[string]form{
	"best_of": asNumber, "logprobs": asNumber, "prompt_logprobs": asNumber,
	"echo": asBool, "skip_special_tokens": asBool, "include_stop_str_in_output": asBool,
	"detokenize": asBool, "add_special_tokens": asBool,
}

// parameters reads what the parameters of a call say.
func (d *completionDecoder) parameters(all engine.Parameters) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		var err error
		switch form := parameterForms[name]; {
		case name == parameterNVExt:
			err = d.extension(value)
		case name == "timeout":
			d.out.Timeout, err = microseconds(value)
		case name == "sequence_id":
			d.out.SequenceID = sequenceID(value)
		case name == "sequence_end":
			d.out.SequenceEnd, _ = value.(bool)
		case form != asItIs:
			err = d.parameter(name, value, form)
		case !reserved(name):
			d.passOver("parameters." + name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reserved says whether a parameter is one that Triton keeps for itself, and that says
// nothing to models. Its priority, where 1 is the highest, is none of ours: it is
// passed over like any stranger, so that the log tells of it.
func reserved(name string) bool {
	switch name {
	case "sequence_start", "headers", "binary_data_output":
		return true
	}
	return strings.HasPrefix(name, "triton_")
}

// passOver notes a parameter that means nothing here, unless there are many: it goes
// into a log line.
func (d *completionDecoder) passOver(name string) {
	if c := d.out; len(c.Unknown) < 32 {
		c.Unknown = append(c.Unknown, wire.CleanText(name))
	}
}

// parameter takes one that says how tokens are chosen.
func (d *completionDecoder) parameter(name string, value any, f form) error {
	text, err := jsonOf(value, f)
	if err != nil {
		return refused("parameter '%s' must be %s", name, err)
	}
	return d.set(name, text)
}

// extension takes the extension object, which comes as JSON in a string.
func (d *completionDecoder) extension(value any) error {
	if d.options.DisableNVExt {
		d.out.ExtDropped = true
		return nil
	}
	text, ok := value.(string)
	if !ok {
		return refused("invalid nvext: expected a string that holds a JSON object, got %s", described(value))
	}
	return d.set(parameterNVExt, []byte(text))
}

// microseconds reads how long a client is willing to wait.
func microseconds(value any) (time.Duration, error) {
	text, err := jsonOf(value, asNumber)
	if n, ok := wire.ParseInteger(text); err == nil && ok && n >= 0 {
		return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond, nil
	}
	return 0, refused("parameter 'timeout' must be a number of microseconds, got %s", described(value))
}

// sequenceID returns the name of a sequence. Clients that have none send 0.
func sequenceID(value any) string {
	switch id := value.(type) {
	case string:
		return id
	case int64:
		if id != 0 {
			return strconv.FormatInt(id, 10)
		}
	case uint64:
		if id != 0 {
			return strconv.FormatUint(id, 10)
		}
	}
	return ""
}

// jsonOf writes the value of a parameter as JSON. The error says what it has to be.
func jsonOf(value any, f form) ([]byte, error) {
	switch f {
	case asBool:
		switch v := value.(type) {
		case bool:
			return jsonBool(v), nil
		case string:
			if truth := truth(v); truth != nil {
				return truth, nil
			}
		}
		return nil, fmt.Errorf("true or false, got %s", described(value))
	case asTexts:
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("a string, or a JSON array of strings in a string, got %s", described(value))
		}
		if list := stringArray(text); list != nil {
			return list, nil
		}
		return wire.AppendString(nil, text), nil
	}
	switch v := value.(type) {
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case uint64:
		return strconv.AppendUint(nil, v, 10), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("a finite number")
		}
		return strconv.AppendFloat(nil, v, 'g', -1, 64), nil
	case string:
		if n := decimal(v); n != nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("a number, or a decimal number in a string, got %s", described(value))
}

// loosened returns a member of sampling_parameters in the form that completions take:
// a number or a truth value in a string without the string.
func loosened(name string, value []byte) []byte {
	if len(value) == 0 || value[0] != '"' {
		return value
	}
	f := parameterForms[name]
	if f == asItIs {
		f = memberForms[name]
	}
	loose := []byte(nil)
	switch f {
	case asNumber:
		loose = decimal(wire.Unquote(value))
	case asBool:
		loose = truth(wire.Unquote(value))
	}
	if loose == nil {
		return value
	}
	return loose
}

// decimal returns the number that a text is, as JSON, or nil.
func decimal(text string) []byte {
	v := jsontext.Value(text)
	if v.Kind() != '0' || !v.IsValid() {
		return nil
	}
	return v
}

// truth returns the truth value that a text is, as JSON, or nil. Python's spelling is
// one.
func truth(text string) []byte {
	switch strings.TrimSpace(text) {
	case "true", "True":
		return jsonBool(true)
	case "false", "False":
		return jsonBool(false)
	}
	return nil
}

// stringArray returns a text that is an array of strings, or nil.
func stringArray(text string) []byte {
	if !strings.HasPrefix(strings.TrimSpace(text), "[") {
		return nil
	}
	var list []string
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return []byte(text)
}

func jsonBool(b bool) []byte { return strconv.AppendBool(nil, b) }

// described names a value as a client knows it.
func described(value any) string {
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case string:
		return "the string " + strconv.Quote(wire.Clip(v))
	}
	return fmt.Sprint(value)
}

// reject turns the error of a completions request into that of a call.
func reject(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return refused("%s", err)
	}
	reason := e.Message
	if e.Param == parameterNVExt || strings.HasPrefix(e.Param, parameterNVExt+".") {
		reason = "invalid nvext: " + strings.TrimPrefix(reason, "nvext: ")
	}
	out := refused("%s", reason)
	out.Param = e.Param
	return out
}
