package jinja

import "fmt"

// Kind classes an [Error] by the name that Python's Jinja2 gives it.
type Kind string

// Kinds of errors.
const (
	SyntaxError    Kind = "TemplateSyntaxError"
	UndefinedError Kind = "UndefinedError"
	TypeError      Kind = "TypeError"
	ValueError     Kind = "ValueError"
	SecurityError  Kind = "SecurityError"
	// Raised is what raise_exception throws: the template's author speaks to
	// whoever wrote the conversation.
	Raised Kind = "TemplateError"
	// LimitError means that a template wanted more than its [Limits], the one on
	// time aside: it comes again with the same values.
	LimitError Kind = "LimitError"
	// TimeError means that it took longer than it may, here and now.
	TimeError Kind = "TimeError"
)

// Error tells why a template could not be compiled or rendered.
type Error struct {
	Kind    Kind
	Line    int // of the template source, from 1; 0 if unknown
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Kind, e.Message)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Kind, e.Message)
}

func fail(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// at adds the line to an error that has none yet. The innermost statement or
// call that knows its line wins.
func at(err error, line int) error {
	if e, ok := err.(*Error); ok && e.Line == 0 {
		e.Line = line
	}
	return err
}
