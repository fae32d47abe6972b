package parser

// body reads what stands inside the wrapper of tool calls, or a call that has
// none. It is the part of a [callGrammar] that differs from family to family;
// where calls begin and end in the text, and what becomes of them, is the
// machine's matter.
type body interface {
	// reset makes it ready for another wrapper. What must last for the whole
	// generation (the indices of native ids) survives it.
	reset()
	// scan reads on. It returns how many bytes of s it has read and what they
	// mean. For tokOpen and tokArgs args is the next piece of the arguments,
	// which need not be bytes of s.
	//
	// It is called again and again with what it has not read, until it returns
	// tokSyntax: then it wants to see more, and is called with what it left of s
	// and whatever follows. If nothing follows s (final) it decides what it was
	// waiting for; what it then still leaves is taken for cut off.
	//
	// The tokens must not depend on how the text is cut.
	scan(s string, final bool) (n int, t token, args string)
	// name is the name of the call, and native the id that the model gave it or
	// nothing; both from tokOpen on.
	name() string
	native() string
	// explicit says whether the arguments of the call were written, be they
	// empty. Without them a call that has no wrapper is none.
	explicit() bool
}

// innerBody is a body that must know when a call has no wrapper.
type innerBody interface {
	// unwrapped follows reset where the body begins with an inner marker of n
	// bytes. If it is not a call, the body reads them before it says so.
	unwrapped(n int)
}

// token is what bytes inside a tool-call wrapper mean. The bytes of tokSyntax,
// tokItem and tokDropped are held until the next token tells whether they are a
// part of a call.
type token uint8

const (
	tokSyntax  token = iota // nothing yet
	tokItem                 // a call begins behind the bytes
	tokOpen                 // behind the bytes the name is known and arguments begin
	tokArgs                 // arguments; the bytes held before are markup
	tokDropped              // the bytes, and those held before, are a broken part of a call that goes on
	tokDone                 // the arguments are complete, and so is the call
	tokItemEnd              // the syntax of the call is complete
	tokEnd                  // the wrapper has ended behind the bytes, and needs no marker
	// tokBad ends the body: what follows the bytes is not a call. A call that is
	// open is cut. The machine looks for the end of the wrapper, or for the next
	// call (open or inner), and drops what stands before, unless it is white
	// space: this is how a body ends in front of its closing marker, too. A body
	// that reads nothing of the beginning of a call (inner) gives that up.
	tokBad
	// tokText ends the body: all of the wrapper is text. No call was opened in it.
	// The opening marker of the wrapper is removed, what was read behind it is
	// read again as text. The beginning of a call without a wrapper (inner) stays
	// in the text.
	tokText
)
