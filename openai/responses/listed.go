package responses

import "github.com/dynago/dynago/internal/wire"

// AppendListed appends an item as a list of stored items shows it: under its id,
// with the members that a client may have left out, and a content that is a list
// of parts. Nothing else of it changes. Bytes that are not an object are appended
// as they are.
func AppendListed(dst, item []byte, id string) []byte {
	begin := len(dst)
	dst = wire.AppendString(append(dst, `{"id":`...), id)
	hasType, hasStatus := false, false
	kind, role := typeMessage, "user"
	var content []byte
	r := wire.NewReader(item, "item")
	err := r.Object("an item object", func(name []byte) error {
		key := string(name)
		value, err := r.Raw()
		if err != nil {
			return err
		}
		text := ""
		if value[0] == '"' {
			text = wire.Unquote(value)
		}
		switch key {
		case "id":
			return nil
		case "type":
			if text == "" {
				return nil // it is a message all the same
			}
			hasType, kind = true, text
		case "role":
			role = text
		case "status":
			hasStatus = text != ""
			if !hasStatus {
				return nil
			}
		case "content":
			if value[0] == '"' {
				content = value
				return nil
			}
		}
		dst = append(wire.AppendString(append(dst, ','), key), ':')
		dst = append(dst, value...)
		return nil
	})
	if err != nil {
		return append(dst[:begin], item...)
	}
	if !hasType {
		dst = append(dst, `,"type":"message"`...)
	}
	if !hasStatus {
		dst = append(dst, `,"status":"completed"`...)
	}
	if content != nil && kind == typeMessage {
		dst = appendTextPart(append(dst, `,"content":[`...), role, content)
		dst = append(dst, ']')
	} else if content != nil {
		dst = append(append(dst, `,"content":`...), content...)
	}
	return append(dst, '}')
}

// appendTextPart appends a text, which is a JSON string, as the only part of a
// message.
func appendTextPart(dst []byte, role string, text []byte) []byte {
	if role == "assistant" {
		dst = append(dst, `{"type":"output_text","annotations":[],"text":`...)
	} else {
		dst = append(dst, `{"type":"input_text","text":`...)
	}
	return append(append(dst, text...), '}')
}
