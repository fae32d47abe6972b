package mock

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// explain turns what the YAML library says about Go types into what helps whoever
// writes a script: the line, the key, and what would be right. Of several faults
// it tells the first.
func explain(root *yaml.Node, err error) error {
	var faults *yaml.LoadErrors
	if !errors.As(err, &faults) || len(faults.Errors) == 0 {
		return err
	}
	fault := faults.Errors[0]
	at := fault.Mark
	if at.Line == 0 {
		return err
	}
	said := fault.Message
	unknown := unknownKey.FindStringSubmatch(said)
	key, n := keyAt(root, "", at, unknown != nil)
	if key == "" {
		key = "the script"
	}
	if unknown != nil {
		said = "is unknown, want " + shapes[unknown[1]].keys
	} else if m := wrongType.FindStringSubmatch(said); m != nil {
		said = "is " + kindOf(n)
		if want := shapes[m[1]].want; want != "" {
			said += ", want " + want
		}
	}
	return fmt.Errorf("line %d: %s: %s", at.Line, key, said)
}

var (
	unknownKey = regexp.MustCompile(`^field .* not found in type (\S+)$`)
	wrongType  = regexp.MustCompile(`(?s)^cannot construct .* into (\S+)$`)
)

// shape is what a place of a script takes.
type shape struct{ want, keys string }

// shapes are the places of a script by their Go types.
var shapes = map[string]shape{
	typeName[document]():      mapping[document](),
	typeName[rule]():          mapping[rule](),
	typeName[when]():          mapping[when](),
	typeName[step]():          mapping[step](),
	typeName[pace]():          mapping[pace](),
	typeName[cutAs]():         mapping[cutAs](),
	typeName[[]*rule]():       {want: "a list of rules"},
	typeName[time.Duration](): {want: "a time such as 300ms"},
	typeName[int]():           {want: "a whole number"},
	typeName[bool]():          {want: "true or false"},
	typeName[string]():        {want: "a text"},
}

func typeName[T any]() string { return reflect.TypeFor[T]().String() }

// mapping is the shape of a struct.
func mapping[T any]() shape {
	var keys []string
	for f := range reflect.TypeFor[T]().Fields() {
		keys = append(keys, f.Tag.Get("yaml"))
	}
	list := strings.Join(keys, ", ")
	return shape{want: "a mapping of " + list, keys: list}
}

// keyAt returns the path of what stands at a place, and its value. A mapping
// stands where its first key does: of the two, inner asks for the key.
func keyAt(n *yaml.Node, path string, at yaml.Mark, inner bool) (string, *yaml.Node) {
	here := n.Line == at.Line && n.Column == at.Column && n.Kind != yaml.DocumentNode
	if here && !inner {
		return path, n
	}
	for i, child := range n.Content {
		below := path
		switch n.Kind {
		case yaml.SequenceNode:
			below += "[" + strconv.Itoa(i) + "]"
		case yaml.MappingNode:
			// Keys and values stand in turn.
			if path != "" {
				below += "."
			}
			below += n.Content[i&^1].Value
		}
		if key, found := keyAt(child, below, at, inner); found != nil {
			return key, found
		}
	}
	if here {
		return path, n
	}
	return "", nil
}

// kindOf tells what a value is.
func kindOf(n *yaml.Node) string {
	switch {
	case n == nil:
		return "of the wrong type"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	}
	const most = 40
	if len(n.Value) > most {
		return fmt.Sprintf("%.*q…", most, n.Value)
	}
	return strconv.Quote(n.Value)
}
