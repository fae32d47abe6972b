// Package harmony is the vocabulary of Harmony, the format in which the gpt-oss
// models read and write conversations: its control tokens, and the ways in which a
// call is addressed.
//
// The one idea: the layout and the parser of Harmony are two packages that do not
// know each other, and what one writes the other must read. A model may spell the
// header of a call in many ways; the parser puts the [Form] it met into the id of
// the call, which clients hand back, and the layout writes the call in that form
// again, so that the next prompt begins with what the model generated, byte for
// byte.
package harmony

import (
	"slices"
	"strings"
)

// The control tokens. A message is
//
//	<|start|>assistant to=RECIPIENT<|channel|>CHANNEL <|constrain|>FORMAT<|message|>BODY<|end|>
//
// with <|call|> instead of <|end|> where a tool is the recipient, and <|return|>
// where the model has finished its answer.
const (
	Start     = "<|start|>"
	Channel   = "<|channel|>"
	Message   = "<|message|>"
	Constrain = "<|constrain|>"
	End       = "<|end|>"
	Call      = "<|call|>"
	Return    = "<|return|>"
)

// Tokens returns the control tokens, without all of which a vocabulary cannot
// write Harmony.
func Tokens() []string { return []string{Start, Channel, Message, Constrain, End, Call, Return} }

// Writes tells that the source of a chat template writes Harmony.
func Writes(template string) bool {
	for _, token := range []string{Start, Channel, Message} {
		if !strings.Contains(template, token) {
			return false
		}
	}
	return true
}

// Form is one way to spell the header of a call of a function. The zero value is
// that of OpenAI's own renderer.
type Form uint8

// What a form consists of: the channel, where the recipient stands, and what is
// said of the body.
var (
	formChannels = []string{"commentary", "analysis"}
	formFormats  = []string{" " + Constrain + "json", Constrain + "json", " json", " code", ""}
	recipient    = " to=functions."
)

// forms is the number of forms: each channel, the recipient on either side of it,
// and each format.
var forms = len(formChannels) * 2 * len(formFormats)

// Header returns what stands around the name of the function, between "assistant"
// and <|message|>.
func (f Form) Header() (before, after string) {
	n := int(f) % forms
	format := formFormats[n%len(formFormats)]
	n /= len(formFormats)
	channel := Channel + formChannels[n%len(formChannels)]
	if n/len(formChannels) == 0 {
		return recipient, channel + format
	}
	return channel + recipient, format
}

// FormOf returns the form of a header for the function of this name, if it is one
// of those that can be written again.
func FormOf(header, name string) (Form, bool) {
	for f := range forms {
		before, after := Form(f).Header()
		if len(header) == len(before)+len(name)+len(after) && header[:len(before)] == before && strings.HasSuffix(header, name+after) {
			return Form(f), true
		}
	}
	return 0, false
}

// tag stands before the letter of a form at the end of an id.
const tag = "_hm"

// Tag returns an id that tells the form, too. The zero form needs no telling.
func (f Form) Tag(id string) string {
	if f == 0 {
		return id
	}
	return id + tag + string(rune('a'+int(f)%forms))
}

// FormOfID returns the form that an id tells, or the zero form.
func FormOfID(id string) Form {
	i := len(id) - 1
	if i < len(tag) || id[i-len(tag):i] != tag || id[i] < 'a' || int(id[i]-'a') >= forms {
		return 0
	}
	return Form(id[i] - 'a')
}

// IsFunction tells that a recipient is a function of the client, and its name,
// which may have dots.
func IsFunction(recipient string) (name string, ok bool) {
	name, ok = strings.CutPrefix(recipient, "functions.")
	return name, ok && name != ""
}

// IsNobody tells that a recipient is no tool.
func IsNobody(recipient string) bool {
	return slices.Contains([]string{"", "all", "user", "assistant"}, recipient)
}
