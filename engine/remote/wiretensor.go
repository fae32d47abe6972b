package remote

import (
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

func tensorRequestMessage(r *engine.TensorRequest) *workerpb.TensorRequest {
	return &workerpb.TensorRequest{
		Id: r.ID, Model: r.Model, Version: r.Version, Inputs: tensorMessages(r.Inputs), Outputs: r.Outputs,
		Parameters: parameterMessages(r.Parameters), Nvext: r.Ext, Meta: r.Meta,
	}
}

func tensorRequestOf(m *workerpb.TensorRequest) *engine.TensorRequest {
	return &engine.TensorRequest{
		ID: m.Id, Model: m.Model, Version: m.Version, Inputs: tensorsOf(m.Inputs), Outputs: m.Outputs,
		Parameters: parametersOf(m.Parameters), Ext: raw(m.Nvext), Meta: m.Meta,
	}
}

func tensorResponseMessage(r *engine.TensorResponse) *workerpb.TensorResponse {
	return &workerpb.TensorResponse{
		Id: r.ID, Model: r.Model, Version: r.Version, Outputs: tensorMessages(r.Outputs), Parameters: parameterMessages(r.Parameters),
	}
}

func tensorResponseOf(m *workerpb.TensorResponse) *engine.TensorResponse {
	return &engine.TensorResponse{
		ID: m.Id, Model: m.Model, Version: m.Version, Outputs: tensorsOf(m.Outputs), Parameters: parametersOf(m.Parameters),
	}
}

func tensorMessages(list []engine.Tensor) []*workerpb.Tensor {
	out := make([]*workerpb.Tensor, len(list))
	for i := range list {
		t := &list[i]
		out[i] = &workerpb.Tensor{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Parameters: parameterMessages(t.Parameters), Data: t.Data}
	}
	return out
}

func tensorsOf(list []*workerpb.Tensor) []engine.Tensor {
	if len(list) == 0 {
		return nil
	}
	out := make([]engine.Tensor, len(list))
	for i, m := range list {
		out[i] = engine.Tensor{
			Name: m.GetName(), Datatype: m.GetDatatype(), Shape: m.GetShape(), Parameters: parametersOf(m.GetParameters()), Data: m.GetData(),
		}
	}
	return out
}

func parameterMessages(p engine.Parameters) map[string]*workerpb.Parameter {
	if len(p) == 0 {
		return nil
	}
	out := make(map[string]*workerpb.Parameter, len(p))
	for name, v := range p {
		m := &workerpb.Parameter{}
		switch v := v.(type) {
		case bool:
			m.Value = &workerpb.Parameter_BoolParam{BoolParam: v}
		case int64:
			m.Value = &workerpb.Parameter_Int64Param{Int64Param: v}
		case uint64:
			m.Value = &workerpb.Parameter_Uint64Param{Uint64Param: v}
		case float64:
			m.Value = &workerpb.Parameter_DoubleParam{DoubleParam: v}
		case string:
			m.Value = &workerpb.Parameter_StringParam{StringParam: v}
		}
		out[name] = m
	}
	return out
}

func parametersOf(list map[string]*workerpb.Parameter) engine.Parameters {
	if len(list) == 0 {
		return nil
	}
	out := make(engine.Parameters, len(list))
	for name, m := range list {
		switch v := m.GetValue().(type) {
		case *workerpb.Parameter_BoolParam:
			out[name] = v.BoolParam
		case *workerpb.Parameter_Int64Param:
			out[name] = v.Int64Param
		case *workerpb.Parameter_Uint64Param:
			out[name] = v.Uint64Param
		case *workerpb.Parameter_DoubleParam:
			out[name] = v.DoubleParam
		case *workerpb.Parameter_StringParam:
			out[name] = v.StringParam
		}
	}
	return out
}

func tensorConfigMessage(c *engine.TensorConfig) *workerpb.TensorConfig {
	if c == nil {
		return nil
	}
	return &workerpb.TensorConfig{Name: c.Name, Inputs: specMessages(c.Inputs), Outputs: specMessages(c.Outputs), TritonModelConfig: c.Triton}
}

func tensorConfigOf(m *workerpb.TensorConfig) *engine.TensorConfig {
	if m == nil {
		return nil
	}
	return &engine.TensorConfig{Name: m.Name, Inputs: specsOf(m.Inputs), Outputs: specsOf(m.Outputs), Triton: raw(m.TritonModelConfig)}
}

func specMessages(list []engine.TensorSpec) []*workerpb.TensorSpec {
	out := make([]*workerpb.TensorSpec, len(list))
	for i := range list {
		s := &list[i]
		out[i] = &workerpb.TensorSpec{Name: s.Name, Datatype: s.Datatype, Shape: s.Shape, Parameters: parameterMessages(s.Parameters), Optional: s.Optional}
	}
	return out
}

func specsOf(list []*workerpb.TensorSpec) []engine.TensorSpec {
	if len(list) == 0 {
		return nil
	}
	out := make([]engine.TensorSpec, len(list))
	for i, m := range list {
		out[i] = engine.TensorSpec{
			Name: m.GetName(), Datatype: m.GetDatatype(), Shape: m.GetShape(), Parameters: parametersOf(m.GetParameters()), Optional: m.GetOptional(),
		}
	}
	return out
}
