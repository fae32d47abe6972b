package kserve

import (
	"encoding/json"
	"maps"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
)

// TakeExt takes the extension object out of the parameters of a call of tensors, where
// it stands as JSON in a string: the worker is sent the object instead, and what it
// says of where the call is to run is returned. It is nil if there is none. Errors are
// of kind [engine.InvalidArgument]; with strict, an unknown member is one. The
// parameters of the client's request stay as they are.
func TakeExt(t *engine.TensorRequest, strict bool) (*nvext.Ext, error) {
	value, ok := t.Parameters[parameterNVExt]
	if !ok {
		return nil, nil
	}
	text, ok := value.(string)
	if !ok {
		return nil, refused("invalid nvext: expected a string that holds a JSON object, got %s", described(value))
	}
	ext, _, err := nvext.Decode([]byte(text), strict)
	if err != nil {
		return nil, refused("invalid nvext: %s", err)
	}
	t.Parameters = maps.Clone(t.Parameters)
	delete(t.Parameters, parameterNVExt)
	if ext != nil {
		t.Ext = json.RawMessage(text)
	}
	return ext, nil
}
