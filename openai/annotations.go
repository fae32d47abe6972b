package openai

import (
	"github.com/dynago/dynago/internal/aside"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// Framing says how annotations are sent. They are events of their own before the
// first chunk of a stream.
type Framing string

// Framings. A value in a comment is what clients of this extension look for. One in a
// data line is seen by every client, also by those who take it for a chunk. Those that
// make chunks of all events, as the official libraries do, fail at one without data:
// who asks for annotations reads the stream itself.
const (
	FramingComment Framing = "comment"
	FramingData    Framing = "data"
)

// Annotations are what may be told of a request before its answer.
type Annotations struct {
	Prompt   string   // as the model is shown it; empty if that is not known
	TokenIDs []uint32 // of the prompt; nil where the client knows them, or nobody does
}

// AppendOpening implements [Encoder]: what is known of every request comes at once.
func (f *frame) AppendOpening(dst []byte) []byte {
	if f.call.Ext.Annotated(nvext.AnnotateRequestID) {
		dst = f.annotate(dst, nvext.AnnotateRequestID, f.header.ID)
	}
	return dst
}

// AppendAnnotations implements [Encoder].
func (f *frame) AppendAnnotations(dst []byte, a Annotations) []byte {
	if a.Prompt != "" && f.call.Ext.Annotated(nvext.AnnotatePrompt) {
		dst = f.annotate(dst, nvext.AnnotatePrompt, a.Prompt)
	}
	if a.TokenIDs != nil && f.call.Ext.Annotated(nvext.AnnotateTokenIDs) {
		dst = f.annotate(dst, nvext.AnnotateTokenIDs, string(aside.AppendIDs(nil, a.TokenIDs)))
	}
	return dst
}

// annotate appends one annotation, whose value is a text.
func (f *frame) annotate(dst []byte, name, value string) []byte {
	dst = append(append(dst, "event: "...), name...)
	if f.call.framing == FramingData {
		dst = append(dst, "\ndata: "...)
	} else {
		dst = append(dst, "\n: "...)
	}
	return append(wire.AppendString(dst, value), "\n\n"...)
}
