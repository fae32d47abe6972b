package trace

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// redacted stands for what is not told.
const redacted = "[redacted]"

// loose is how bodies are read, in which clients may write what JSON does not want.
var loose = jsontext.AllowInvalidUTF8(true)

var errSeveral = errors.New("there is more than one value")

// Redact returns a body as a trace may keep it: values of members and pieces of text
// that are keys are left out, and of pictures and files only the length is told. It
// is an error if the body is no JSON.
func Redact(body []byte) (jsontext.Value, error) {
	in := jsontext.NewDecoder(bytes.NewReader(body), loose, jsontext.AllowDuplicateNames(true))
	var buf bytes.Buffer
	out := jsontext.NewEncoder(&buf, loose, jsontext.AllowDuplicateNames(true))
	// names are those of the members that values stand in, by depth. What is in a list
	// stands in the member of the list. All that is in a member which holds a key stands in
	// that one, but for a schema, which tells of a parameter of such a name.
	var names, within []string
	for {
		depth := in.StackDepth()
		kind, length := in.StackIndex(depth)
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) && length == 1 {
			return bytes.TrimSpace(buf.Bytes()), nil
		}
		if err == nil && depth == 0 && length > 0 {
			err = errSeveral
		}
		if err != nil {
			return nil, err
		}
		for len(names) <= depth {
			names, within = append(names, ""), append(within, "")
		}
		switch token.Kind() {
		case '{':
			secret := ""
			if isSecret(names[depth]) && names[max(0, depth-1)] != "properties" {
				secret = names[depth]
			}
			names, within = append(names[:depth+1], ""), append(within[:depth+1], secret)
		case '[':
			names, within = append(names[:depth+1], names[depth]), append(within[:depth+1], "")
		case '0':
			if isSecret(names[depth]) {
				token = jsontext.String(redacted)
			}
		case '"':
			if kind == '{' && length%2 == 0 {
				names[depth] = cmp.Or(within[depth], token.String())
			} else if text := token.String(); text != "" {
				token = jsontext.String(redact(names[depth], text))
			}
		}
		if err := out.WriteToken(token); err != nil {
			return nil, err
		}
	}
}

// RedactHeader returns the value of a header as a trace may keep it.
func RedactHeader(name, value string) string {
	if isSecret(name) || strings.Contains(strings.ToLower(name), "token") {
		return redacted
	}
	return redact(name, value)
}

// redact returns a text as a trace may keep it that stands in a member of this name.
func redact(name, text string) string {
	if isSecret(name) {
		return redacted
	}
	if isContent(name) && len(text) >= shortest {
		if n, ok := decoded(text); ok {
			return "[" + strconv.Itoa(n) + " bytes]"
		}
	}
	if strings.Contains(text, "64,") {
		text = dataURL.ReplaceAllStringFunc(text, func(url string) string {
			head, data, _ := strings.Cut(url, ",")
			n, _ := decoded(data)
			return head + ",[" + strconv.Itoa(n) + " bytes]"
		})
	}
	if mayHaveKey(text) {
		text = key.ReplaceAllString(text, "${1}${2}"+redacted)
	}
	return text
}

var withoutDashes = strings.NewReplacer("-", "", "_", "")

// isSecret says whether a member, or a header, of this name holds a key.
func isSecret(name string) bool {
	plain := withoutDashes.Replace(strings.ToLower(name))
	for _, word := range []string{"authorization", "apikey", "accesstoken", "refreshtoken", "authtoken", "bearertoken", "password", "secret", "privatekey", "cookie"} {
		if strings.Contains(plain, word) {
			return true
		}
	}
	return false
}

// isContent says whether a member of this name may hold a file.
func isContent(name string) bool {
	switch name {
	case "data", "file_data", "b64_json", "image_base64", "audio":
		return true
	}
	return false
}

// shortest is how long base64 is at least that stands for a file.
const shortest = 64

// decoded returns how long the bytes are that base64 stands for.
func decoded(text string) (int, bool) {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '+', c == '/', c == '=', c == '-', c == '_', c == '\n', c == '\r':
		default:
			return 0, false
		}
	}
	return base64.RawStdEncoding.DecodedLen(len(strings.TrimRight(text, "="))), true
}

var (
	dataURL = regexp.MustCompile(`(?i:data):[\w.+/-]*(?:;[\w.+=-]+)*;(?i:base64),[A-Za-z0-9+/=_-]+`)
	key     = regexp.MustCompile(`((?i:\bbearer )|(?i:x-amz-signature=)|\bsk-|\bAKIA|\bgh[pousr]_|\bgithub_pat_|\bglpat-|\bxox[abeprs]-|\bAIza)[\w.~+/=-]{8,}|(\bhf_)[A-Za-z0-9]{30,}`)
)

// mayHaveKey says whether it is worth to look for a key.
func mayHaveKey(text string) bool {
	for _, hint := range []string{"earer ", "EARER ", "sk-", "AKIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AIza", "hf_", "ignature="} {
		if strings.Contains(text, hint) {
			return true
		}
	}
	return false
}
