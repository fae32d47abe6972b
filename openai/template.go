package openai

import (
	"strconv"

	"github.com/dynago/dynago/internal/wire"
)

// templateFields say how a conversation is laid out. Those that name a single
// argument of the template are vLLM's, and win over the same argument in
// chat_template_args.
var templateFields = []field{
	{"chat_template_args", anObject, templateArgs},
	{"chat_template_kwargs", anObject, templateArgs},
	{"add_generation_prompt", `{"type":"boolean","default":true}`, boolean(func(b *body) **bool { return &b.addGenerationPrompt })},
	{"continue_final_message", `{"type":"boolean","default":false}`, boolean(func(b *body) **bool { return &b.continueFinal })},
	{"documents", `{"type":"array","items":{"type":"object","additionalProperties":{"type":"string"}}}`, readDocuments},
}

func templateArgs(r *wire.Reader, b *body) error {
	b.templateArgs = nil
	if null, err := r.Null(); null {
		return err
	}
	if r.Kind() != '{' {
		return r.Mistyped("an object")
	}
	v, err := r.Raw()
	b.templateArgs = v
	return err
}

// readDocuments reads what the conversation is about: texts by any names, which
// the template looks for.
func readDocuments(r *wire.Reader, b *body) error {
	b.documents = nil
	if null, err := r.Null(); null {
		return err
	}
	list, err := r.Raw()
	if err != nil {
		return err
	}
	b.documents = wire.CleanRaw(list)
	r = wire.NewReader(list, "documents")
	return r.Array("an array of objects", func(int) error {
		return r.Object("an object of strings", func([]byte) error {
			_, err := r.Text("a string")
			return err
		})
	})
}

// arg is one member of the template arguments, as it came.
type arg struct {
	name  string
	value []byte
}

func (b *body) readArgs() ([]arg, error) {
	if b.templateArgs == nil {
		return nil, nil
	}
	var args []arg
	places := map[string]int{} // of names in args; there may be very many
	r := wire.NewReader(b.templateArgs, "chat_template_args")
	err := r.Object("an object", func(name []byte) error {
		if string(name) == "chat_template" {
			return wire.Unsupported("chat_template_args.chat_template", "`chat_template` is not supported inside `chat_template_args`")
		}
		key := wire.CleanText(string(name))
		v, err := r.Raw()
		if err != nil {
			return err
		}
		i, again := places[key]
		if !again {
			i = len(args)
			places[key] = i
			args = append(args, arg{name: key})
		}
		args[i].value = wire.CleanRaw(v)
		return nil
	})
	return args, err
}

// setRootArgs puts the members of the body that are arguments of the template
// among them.
func (b *body) setRootArgs(args []arg) ([]arg, error) {
	if v := b.addGenerationPrompt; v != nil {
		args = setArg(args, "add_generation_prompt", strconv.AppendBool(nil, *v))
	}
	if v := b.continueFinal; v != nil {
		args = setArg(args, "continue_final_message", strconv.AppendBool(nil, *v))
	}
	if b.documents != nil {
		args = setArg(args, "documents", b.documents)
	}
	if string(lookup(args, "add_generation_prompt")) != "true" || string(lookup(args, "continue_final_message")) != "true" {
		return args, nil
	}
	at := "continue_final_message"
	if b.continueFinal == nil {
		at = "chat_template_args." + at
	}
	return nil, wire.Invalid(at, "Cannot set both `continue_final_message` and `add_generation_prompt` to true: either the last message goes on, or a new one begins")
}

func lookup(args []arg, name string) []byte {
	for _, a := range args {
		if a.name == name {
			return a.value
		}
	}
	return nil
}

func setArg(args []arg, name string, value []byte) []arg {
	for i := range args {
		if args[i].name == name {
			args[i].value = value
			return args
		}
	}
	return append(args, arg{name, value})
}
