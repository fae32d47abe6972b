package kserve

import (
	"strings"

	"github.com/dynago/dynago/engine"
)

// NotFound is the error of a name that no model has, or none that is served here.
func NotFound(model string) *engine.Error {
	return &engine.Error{
		Kind: engine.NotFound, Message: "Model '" + clip(model) + "' not found", Param: "model", Code: "model_not_found",
	}
}

// refused is the error of a request that does not say what a request has to say, or
// says what cannot be. Texts among args may be the client's own: what is too long for
// a message is cut off.
func refused(format string, args ...any) *engine.Error {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = clip(arg)
		case error:
			args[i] = clip(arg.Error())
		}
	}
	return engine.Errorf(engine.InvalidArgument, "Failed to parse request: "+format, args...)
}

// clip shortens a text for use in a message. Clients of gRPC take headers and
// trailers of a few thousand bytes, and the message of a status is one of them.
func clip(s string) string {
	const most = 512
	if len(s) <= most {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
