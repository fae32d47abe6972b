package kserve

import (
	"github.com/dynago/dynago/engine"
)

// NotFound is the error of a name that no model has, or none that is served here.
func NotFound(model string) *engine.Error {
	return &engine.Error{
		Kind: engine.NotFound, Message: "Model '" + model + "' not found", Param: "model", Code: "model_not_found",
	}
}

// refused is the error of a request that does not say what a request has to say, or
// says what cannot be.
func refused(format string, args ...any) *engine.Error {
	return engine.Errorf(engine.InvalidArgument, "Failed to parse request: "+format, args...)
}
