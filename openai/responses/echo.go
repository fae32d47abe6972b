package responses

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// echoOf returns the members of a response object that repeat the request.
func (b *body) echoOf(c *Call) []byte { return wire.OneLine(b.appendEcho(nil, c)) }

// appendEcho appends the members of a response object that repeat the request.
// Clients that check the object want all of them, also where nothing was said.
func (b *body) appendEcho(dst []byte, c *Call) []byte {
	dst = slices.Grow(dst, 1024+len(value(b.instructions))+len(b.tools)+len(b.toolChoice)+len(b.format)+len(b.metadataRaw))
	dst = appendText(append(dst, `,"instructions":`...), b.instructions)
	dst = appendText(append(dst, `,"previous_response_id":`...), nonEmpty(b.previousID))
	dst = appendRaw(append(dst, `,"metadata":`...), b.metadataRaw, "{}")
	dst = appendTools(append(dst, `,"tools":`...), b.tools)
	dst = appendRaw(append(dst, `,"tool_choice":`...), b.toolChoice, `"auto"`)
	dst = appendBoolean(append(dst, `,"parallel_tool_calls":`...), b.parallel == nil || *b.parallel)
	dst = appendNumber(append(dst, `,"temperature":`...), b.temperature, 1)
	dst = appendNumber(append(dst, `,"top_p":`...), b.topP, 1)
	dst = appendNumber(append(dst, `,"presence_penalty":`...), b.presencePenalty, 0)
	dst = appendNumber(append(dst, `,"frequency_penalty":`...), b.frequencyPenalty, 0)
	dst = strconv.AppendInt(append(dst, `,"top_logprobs":`...), int64(c.show.topLogprobs), 10)
	dst = appendInteger(append(dst, `,"max_output_tokens":`...), b.maxOutputTokens)
	dst = appendInteger(append(dst, `,"max_tool_calls":`...), b.maxToolCalls)
	dst = b.appendReasoning(append(dst, `,"reasoning":`...))
	dst = b.appendTextShape(append(dst, `,"text":`...))
	dst = append(append(dst, `,"truncation":"`...), truncationOf(b.truncation)...)
	dst = appendBoolean(append(dst, `","store":`...), c.Store)
	dst = appendBoolean(append(dst, `,"background":`...), c.Background)
	if b.serviceTier == nil {
		dst = append(dst, `,"service_tier":"auto"`...)
	} else {
		dst = appendText(append(dst, `,"service_tier":`...), b.serviceTier)
	}
	dst = appendText(append(dst, `,"prompt_cache_key":`...), b.promptCacheKey)
	dst = appendText(append(dst, `,"prompt_cache_retention":`...), b.promptCacheRetention)
	dst = appendText(append(dst, `,"safety_identifier":`...), b.safetyIdentifier)
	dst = appendText(append(dst, `,"user":`...), b.user)
	return append(dst, `,"prompt":null,"conversation":null,"billing":null`...)
}

func (b *body) appendReasoning(dst []byte) []byte {
	dst = appendText(append(dst, `{"effort":`...), b.reasoning.effort)
	dst = appendText(append(dst, `,"summary":`...), b.reasoning.summary)
	if b.reasoning.context != nil {
		dst = appendText(append(dst, `,"context":`...), b.reasoning.context)
	}
	return append(dst, '}')
}

func (b *body) appendTextShape(dst []byte) []byte {
	dst = append(dst, `{"format":`...)
	if b.format == nil {
		dst = append(dst, `{"type":"text"}`...)
	} else {
		dst = appendWith(dst, b.format, "json_schema",
			member{"description", "null"}, member{"strict", "false"})
	}
	if b.verbosity != nil {
		dst = appendText(append(dst, `,"verbosity":`...), b.verbosity)
	}
	return append(dst, '}')
}

// appendTools appends the tools as they came. Functions are shown with all the
// members that clients want to see, with what is enforced.
func appendTools(dst, tools []byte) []byte {
	if tools == nil {
		return append(dst, "[]"...)
	}
	dst = append(dst, '[')
	r := wire.NewReader(tools, "")
	r.Array("an array", func(i int) error { //nolint:errcheck // it was read once before
		if i > 0 {
			dst = append(dst, ',')
		}
		tool, err := r.Raw()
		if err == nil {
			dst = appendWith(dst, tool, "function",
				member{"description", "null"}, member{"parameters", "null"}, member{"strict", "false"})
		}
		return err
	})
	return append(dst, ']')
}

// member is one of an object, with its value as JSON.
type member struct{ name, value string }

// appendWith appends a JSON object, and, if it is of the type, those of the
// members that it does not have.
func appendWith(dst, object []byte, kind string, members ...member) []byte {
	is := ""
	r := wire.NewReader(object, "")
	r.Object("an object", func(name []byte) (err error) { //nolint:errcheck // it was read once before
		if string(name) == "type" {
			is, err = wire.Loose(r)
			return err
		}
		members = slices.DeleteFunc(members, func(m member) bool { return m.name == string(name) })
		return r.Skip()
	})
	if is != kind {
		return append(dst, object...)
	}
	dst = append(dst, bytes.TrimRight(object, " \t\r\n")...)
	dst = dst[:len(dst)-1]
	for _, m := range members {
		dst = wire.AppendString(append(dst, ','), m.name)
		dst = append(append(dst, ':'), m.value...)
	}
	return append(dst, '}')
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func truncationOf(s string) string {
	if s == "" {
		return "disabled"
	}
	return s
}

func appendText(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, "null"...)
	}
	return wire.AppendString(dst, *s)
}

func appendRaw(dst, raw []byte, absent string) []byte {
	if raw == nil {
		return append(dst, absent...)
	}
	return append(dst, raw...)
}

func appendBoolean(dst []byte, v bool) []byte { return strconv.AppendBool(dst, v) }

func appendNumber(dst []byte, v *float64, absent float64) []byte {
	if v == nil {
		v = &absent
	}
	return strconv.AppendFloat(dst, *v, 'g', -1, 64)
}

func appendInteger(dst []byte, v *int64) []byte {
	if v == nil {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, *v, 10)
}
