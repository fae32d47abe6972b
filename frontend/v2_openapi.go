package frontend

import (
	"encoding/json"
	"net/http"

	"github.com/dynago/dynago/openai"
)

// v2Description tells of the routes of KServe.
func v2Description(overload int) openai.Description {
	const (
		model = `[{"name":"model","in":"path","required":true,"description":"may hold slashes, as they are or encoded; /versions/1 may follow it","schema":{"type":"string"}}]`
		infer = `[{"name":"model","in":"path","required":true,"description":"may hold slashes, as they are or encoded; /versions/1 may follow it","schema":{"type":"string"}},` +
			`{"name":"Inference-Header-Content-Length","in":"header","description":"length of the JSON where bytes follow it; 0 if the body is the data of the only input","schema":{"type":"integer","minimum":0}}]`
		unknown = "The model is unknown"
	)
	ofModels := map[int]string{
		http.StatusBadRequest: "The request is malformed or breaks a rule", http.StatusNotFound: unknown,
		http.StatusServiceUnavailable: "The model or the service is not ready", overload: "All workers are busy",
		http.StatusInternalServerError: "A worker failed",
	}
	row := func(method, path, id, summary, answer string) openai.Operation {
		return openai.Operation{
			Method: method, Path: v2Prefix + path, ID: id, Summary: summary, Answer: answer,
			Refusal: schemaRef("KServeError"), Refusals: map[int]string{},
		}
	}
	about := func(path, id, summary, answer string, refusals map[int]string) openai.Operation {
		op := row("get", "/models/{model}"+path, id, summary, answer)
		op.Params, op.Refusals = model, refusals
		return op
	}
	call := func(path, id, summary, body, answer, params string, streams bool) openai.Operation {
		op := row("post", "/models/{model}"+path, id, summary, answer)
		op.Body, op.Params, op.Refusals, op.Streams = json.RawMessage(body), params, ofModels, streams
		return op
	}
	index := row("post", "/repository/index", "kserveIndex", "List the models", `{"type":"array","items":{"type":"object","required":["name","version","state","reason"],"properties":{"name":{"type":"string"},"version":{"type":"string"},"state":{"enum":["READY","UNAVAILABLE"]},"reason":{"type":"string"}}}}`)
	index.Body = json.RawMessage(`{"type":"object","properties":{"ready":{"type":"boolean"}}}`)
	live, ready := row("get", "/health/live", "kserveLive", "Tell whether the server lives", `{"type":"object","required":["live"],"properties":{"live":{"type":"boolean"}}}`),
		row("get", "/health/ready", "kserveReady", "Tell whether some model could be asked now", `{"type":"object","required":["ready"],"properties":{"ready":{"type":"boolean"}}}`)
	live.Refusals, ready.Refusals = map[int]string{http.StatusBadRequest: "It does not"}, map[int]string{http.StatusBadRequest: "None could"}
	live.Refusal, ready.Refusal = live.Answer, ready.Answer
	modelReady := about("/ready", "kserveModelReady", "Tell whether a model could be asked now", schemaRef("KServeReady"), map[int]string{http.StatusBadRequest: "It could not, or there is no such model"})
	modelReady.Refusal = schemaRef("KServeReady")
	allStats := row("get", "/models/stats", "kserveStatistics", "Tell how requests fared, by model", schemaRef("KServeStatistics"))
	return openai.Description{
		Operations: []openai.Operation{
			row("get", "", "kserveServer", "Describe the server", `{"type":"object","required":["name","version","extensions"],"properties":{"name":{"type":"string"},"version":{"type":"string"},"extensions":{"type":"array","items":{"type":"string"}}}}`),
			live, ready, modelReady, allStats, index,
			about("", "kserveModel", "Tell which tensors a model takes and gives", schemaRef("KServeModel"), map[int]string{http.StatusNotFound: unknown}),
			about("/config", "kserveConfig", "Tell how a model is configured, in Triton's words", `{"type":"object"}`, map[int]string{http.StatusNotFound: unknown}),
			about("/stats", "kserveModelStatistics", "Tell how requests for a model fared", schemaRef("KServeStatistics"), map[int]string{http.StatusNotFound: unknown}),
			call("/infer", "kserveInfer", "Answer tensors with tensors", schemaRef("KServeRequest"), schemaRef("KServeResponse"), infer, false),
			call("/generate", "kserveGenerate", "Answer a text", schemaRef("KServeGenerate"), schemaRef("KServeGenerated"), model, false),
			call("/generate_stream", "kserveGenerateStream", "Answer a text in pieces", schemaRef("KServeGenerate"), schemaRef("KServeGenerated"), model, true),
		},
		Schemas: map[string]string{
			"KServeError":      `{"type":"object","required":["error"],"properties":{"error":{"type":"string"}}}`,
			"KServeReady":      `{"type":"object","required":["name","ready"],"properties":{"name":{"type":"string"},"ready":{"type":"boolean"}}}`,
			"KServeParameters": `{"type":"object","additionalProperties":{"type":["string","number","boolean"]}}`,
			"KServeModel":      `{"type":"object","required":["name","versions","platform","inputs","outputs"],"properties":{"name":{"type":"string"},"versions":{"type":"array","items":{"type":"string"}},"platform":{"type":"string"},"inputs":{"type":"array","items":` + v2TensorKind + `},"outputs":{"type":"array","items":` + v2TensorKind + `}}}`,
			"KServeTensor":     `{"type":"object","required":["name","shape","datatype"],"properties":{"name":{"type":"string"},"shape":{"type":"array","items":{"type":"integer","minimum":0}},"datatype":` + v2Datatypes + `,"parameters":{"$ref":"#/components/schemas/KServeParameters"},"data":{"type":"array","description":"All elements, or arrays in arrays as the shape says. Without it the parameter binary_data_size says how many of the bytes behind the JSON are the tensor's."}}}`,
			"KServeRequest":    `{"type":"object","required":["inputs"],"properties":{"id":{"type":"string"},"parameters":{"$ref":"#/components/schemas/KServeParameters"},"inputs":{"type":"array","items":{"$ref":"#/components/schemas/KServeTensor"}},"outputs":{"type":"array","items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"parameters":{"$ref":"#/components/schemas/KServeParameters"}}}}}}`,
			"KServeResponse":   `{"type":"object","required":["model_name","model_version","outputs"],"properties":{"model_name":{"type":"string"},"model_version":{"type":"string"},"id":{"type":"string"},"parameters":{"$ref":"#/components/schemas/KServeParameters"},"outputs":{"type":"array","items":{"$ref":"#/components/schemas/KServeTensor"}}}}`,
			"KServeGenerate":   `{"type":"object","required":["text_input"],"properties":{"id":{"type":"string"},"text_input":{"type":"string"},"parameters":{"type":"object"}},"additionalProperties":true}`,
			"KServeGenerated":  `{"type":"object","required":["model_name","model_version","text_output"],"properties":{"id":{"type":"string"},"model_name":{"type":"string"},"model_version":{"type":"string"},"text_output":{"type":["string","array"],"items":{"type":"string"}}},"additionalProperties":true}`,
			"KServeStatistics": `{"type":"object","required":["model_stats"],"properties":{"model_stats":{"type":"array","items":{"type":"object","required":["name","version","last_inference","inference_count","execution_count","inference_stats"]}}}}`,
		},
	}
}

const (
	v2Datatypes  = `{"enum":["BOOL","UINT8","UINT16","UINT32","UINT64","INT8","INT16","INT32","INT64","FP16","BF16","FP32","FP64","BYTES"]}`
	v2TensorKind = `{"type":"object","required":["name","datatype","shape"],"properties":{"name":{"type":"string"},"datatype":{"type":"string"},"shape":{"type":"array","items":{"type":"integer"}}}}`
)
