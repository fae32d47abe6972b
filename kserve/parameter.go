package kserve

import (
	"unicode/utf8"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// readParameters returns parameters of a message. If several have no value, the
// error names the first in the order of names.
func readParameters(m map[string]*inferencepb.InferParameter) (engine.Parameters, error) {
	if len(m) == 0 {
		return nil, nil
	}
	parameters := make(engine.Parameters, len(m))
	without, none := "", false
	for name, p := range m {
		switch v := p.GetParameterChoice().(type) {
		case *inferencepb.InferParameter_BoolParam:
			parameters[name] = v.BoolParam
		case *inferencepb.InferParameter_Int64Param:
			parameters[name] = v.Int64Param
		case *inferencepb.InferParameter_StringParam:
			parameters[name] = v.StringParam
		case *inferencepb.InferParameter_DoubleParam:
			parameters[name] = v.DoubleParam
		case *inferencepb.InferParameter_Uint64Param:
			parameters[name] = v.Uint64Param
		default:
			if !none || name < without {
				without, none = name, true
			}
		}
	}
	if none {
		return nil, refused("Parameter '%s' has no value", without)
	}
	return parameters, nil
}

// parameterMessages returns parameters for a message. What no message can carry is
// an error.
func parameterMessages(parameters engine.Parameters) (map[string]*inferencepb.InferParameter, error) {
	if len(parameters) == 0 {
		return nil, nil
	}
	m := make(map[string]*inferencepb.InferParameter, len(parameters))
	for name, v := range parameters {
		p := &inferencepb.InferParameter{}
		switch v := v.(type) {
		case bool:
			p.ParameterChoice = &inferencepb.InferParameter_BoolParam{BoolParam: v}
		case int64:
			p.ParameterChoice = &inferencepb.InferParameter_Int64Param{Int64Param: v}
		case string:
			if !utf8.ValidString(v) {
				return nil, engine.Errorf(engine.Internal, "parameter '%s' is not valid UTF-8", name)
			}
			p.ParameterChoice = &inferencepb.InferParameter_StringParam{StringParam: v}
		case float64:
			p.ParameterChoice = &inferencepb.InferParameter_DoubleParam{DoubleParam: v}
		case uint64:
			p.ParameterChoice = &inferencepb.InferParameter_Uint64Param{Uint64Param: v}
		default:
			return nil, engine.Errorf(engine.Internal, "parameter '%s' is a %T, want bool, int64, uint64, float64 or string", name, v)
		}
		if !utf8.ValidString(name) {
			return nil, engine.Errorf(engine.Internal, "name of parameter %q is not valid UTF-8", name)
		}
		m[name] = p
	}
	return m, nil
}
