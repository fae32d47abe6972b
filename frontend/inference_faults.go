package frontend

import (
	"errors"
	"net/http"
	"strings"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// errStreaming is the error of a client that asks for more responses than its wire
// carries.
var errStreaming = &wire.Error{
	Status: http.StatusBadRequest, Code: wire.CodeInvalidValue,
	Message: "Streaming is not supported for this endpoint: use ModelStreamInfer or generate_stream",
}

// told is what a client of KServe is told of a failure. It looks for fixed beginnings
// of messages, as clients of this protocol have no codes finer than those of gRPC.
func (i *Inference) told(err error) *wire.Error { return i.toldOf(i.lead(), err) }

func (i *Inference) toldOf(lead string, err error) *wire.Error {
	e := *wire.ErrorOf(err, i.overload)
	switch {
	case errors.Is(err, engine.ErrShutdown):
		e.Message = "server is shutting down"
	case e.Code == wire.CodeModelNotFound && i.job.ctx != nil: // it was there when the call came
		e.Message = led("model not found", e.Message)
	case e.Status == http.StatusServiceUnavailable:
		e.Message = led("model temporarily unavailable", e.Message)
	case e.Status == http.StatusInternalServerError:
		e.Message = led(lead, reason(err))
	}
	e.Message = bounded(e.Message)
	return &e
}

// bounded cuts off what is too long to be told, and what is no text. Workers may say
// anything, and over gRPC a message is a header: clients take 8 KiB of those, and
// what is not ASCII takes three bytes for one.
func bounded(message string) string {
	const most = 2 << 10
	if len(message) <= most {
		return strings.ToValidUTF8(message, "\uFFFD")
	}
	return strings.ToValidUTF8(message[:most], "\uFFFD") + "…"
}

// lead is what failures of ours are called, by where they have happened.
func (i *Inference) lead() string {
	switch {
	case i.text == nil:
		return "Failed to generate tensor response stream"
	case i.job.record.begun > 0 && !i.Streams():
		return "Failed to fold completions stream"
	}
	return "Failed to generate completions"
}

// reason returns what may be said in public of a failure of ours.
func reason(err error) string {
	if e, ok := errors.AsType[*engine.Error](err); ok && e.Kind == engine.Internal && e.Message != "" {
		return e.Message
	}
	return "internal server error"
}

// led puts a lead before a message that does not begin with it.
func led(lead, message string) string {
	if strings.HasPrefix(message, lead) {
		return message
	}
	return lead + ": " + message
}
