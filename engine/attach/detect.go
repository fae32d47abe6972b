package attach

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// owners are the kinds of servers by what they write as the owner of their
// models: "library" is Ollama's, "nvidia" one of the services that wrap others.
var owners = map[string]string{
	"vllm": VLLM, "sglang": SGLang, "tensorrt_llm": TRTLLM, "llamacpp": LlamaCPP, "library": Ollama, "nvidia": OpenAI,
}

// Detect asks a server what kind it is: by the owner of the models that it lists,
// else by the routes that it has. An error says that it cannot be told now, as of
// a server that is not up or still loads its model.
func Detect(ctx context.Context, client *httpapi.Client) (string, error) {
	var list struct {
		Data []struct {
			Owner string `json:"owned_by"`
		} `json:"data"`
	}
	lists, err := ask(ctx, client, "/v1/models", &list)
	if err != nil {
		return "", err
	}
	if lists && len(list.Data) > 0 {
		if kind, ok := owners[list.Data[0].Owner]; ok {
			return kind, nil
		}
	}
	var version struct {
		Version string `json:"version"`
	}
	if ok, err := ask(ctx, client, "/version", &version); err != nil || ok && version.Version != "" {
		return VLLM, err
	}
	for _, route := range []struct{ path, kind string }{
		{"/server_info", SGLang}, {"/props", LlamaCPP}, {"/api/tags", Ollama},
	} {
		var object map[string]any
		if ok, err := ask(ctx, client, route.path, &object); err != nil || ok {
			return route.kind, err
		}
	}
	if !lists {
		return "", errors.New("it has none of the routes of an engine: want another address, or its kind in place of auto")
	}
	return OpenAI, nil
}

// ask reads an object, and says whether there is one. An error is one that may
// pass.
func ask(ctx context.Context, client *httpapi.Client, path string, into any) (bool, error) {
	text, err := client.Get(ctx, path)
	switch engine.KindOf(err) {
	case engine.NotFound, engine.Unsupported, engine.InvalidArgument:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return json.Unmarshal(text, into) == nil, nil
}
