// Package guided is about answers that must have a form: a JSON schema, a
// regular expression, one of several texts, or calls of tools. It checks such a
// form before an engine is asked, writes the forms that force a call, tells
// whether a text keeps one, and makes up texts that do.
//
// The one idea: a form is compiled once, from the very bytes that the client
// sent, and those bytes go to the engine. What an engine cannot be held to is
// looked at afterwards by the same compiled form, so that nobody is told that an
// answer keeps its form who was not told the truth.
package guided

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynago/dynago/chat"
)

// Form is a compiled output format. It is safe for concurrent use.
type Form struct {
	kind    chat.FormatKind
	schema  *jsonschema.Schema
	effort  effort // of checking the schema
	pattern *regexp2.Regexp
	choices []string
}

// Limits of what is compiled: a schema that large is no schema, and a pattern
// must not take longer for an answer than the answer took.
const (
	maxFormSize = 1 << 20
	patience    = time.Second
)

// Compile reads a format. The error says in one sentence what is wrong with it,
// without naming the member that it came from.
func Compile(format *chat.OutputFormat) (*Form, error) {
	f := &Form{kind: format.Kind, choices: format.Choices}
	if len(format.Schema) > maxFormSize || len(format.Pattern) > maxFormSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFormSize)
	}
	var err error
	switch format.Kind {
	case chat.FormatJSONSchema:
		f.schema, err = compileSchema(format.Schema, "", false, &f.effort)
	case chat.FormatRegex:
		f.pattern, err = whole(format.Pattern)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// CompilePart returns the form of the part of a JSON schema that stands at a JSON
// pointer. What it refers to is looked for in the whole schema. Other than with
// [Compile], formats of strings are checked, too.
func CompilePart(schema json.RawMessage, pointer string) (*Form, error) {
	f := &Form{kind: chat.FormatJSONSchema}
	if len(schema) > maxFormSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFormSize)
	}
	var err error
	f.schema, err = compileSchema(schema, pointer, true, &f.effort)
	return f, err
}

// whole compiles an expression that a text must match from end to end.
func whole(pattern string) (*regexp2.Regexp, error) {
	if _, err := regexp2.Compile(pattern, regexp2.None); err != nil {
		return nil, fmt.Errorf("it is no regular expression: %w", err)
	}
	re, err := regexp2.Compile(`\A(?:`+pattern+`)\z`, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("it is no regular expression: %w", err)
	}
	re.MatchTimeout = patience
	return re, nil
}

const schemaURL = "schema:request"

func compileSchema(schema []byte, pointer string, formats bool, e *effort) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if err := measure(doc); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if formats {
		c.AssertFormat()
	}
	parts := e.counted(c)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, explain(err)
	}
	at := schemaURL
	if pointer != "" {
		at += (&url.URL{Fragment: pointer}).String()
	}
	s, err := c.Compile(at)
	if err != nil {
		return nil, explain(err)
	}
	e.count(*parts)
	return s, nil
}

// noLoader keeps a schema from referring to files and servers.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a $ref to %s: only references inside the schema are followed", url)
}

// explain makes one sentence of the library's report.
func explain(err error) error {
	var bad *jsonschema.SchemaValidationError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	return errors.New(oneLine(err))
}

// oneLine shortens a report to its first complaints.
func oneLine(err error) string {
	text := strings.NewReplacer(schemaURL+"#", "", schemaURL, "the schema").Replace(err.Error())
	var parts []string
	for line := range strings.Lines(text) {
		line = strings.TrimLeft(strings.TrimSpace(line), "- ")
		// What only says that something below it has failed tells nothing.
		if line != "" && !strings.HasPrefix(line, "jsonschema") && !strings.HasSuffix(line, " failed") {
			parts = append(parts, line)
		}
	}
	if len(parts) == 0 {
		parts = []string{text}
	}
	const most = 300
	if s := strings.Join(parts, "; "); len(s) <= most {
		return s
	} else {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
}

// Check returns nil if a text keeps the form, and otherwise what it breaks. A
// grammar is not checked: it is the engine's dialect.
func (f *Form) Check(text string) error {
	switch f.kind {
	case chat.FormatJSONObject:
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return errors.New("it is no JSON")
		}
		if _, ok := v.(map[string]any); !ok {
			return errors.New("it is no JSON object")
		}
	case chat.FormatJSONSchema:
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return errors.New("it is no JSON")
		}
		err = f.effort.check(stepsFor(text), func() error { return f.schema.Validate(v) })
		if errors.Is(err, errEffort) {
			return err
		}
		if err != nil {
			return errors.New(oneLine(err))
		}
	case chat.FormatRegex:
		ok, err := f.pattern.MatchString(text)
		if err != nil {
			return errors.New("the expression takes too long for it")
		}
		if !ok {
			return errors.New("it does not match the expression")
		}
	case chat.FormatChoice:
		if !slices.Contains(f.choices, text) {
			return errors.New("it is none of the choices")
		}
	}
	return nil
}
