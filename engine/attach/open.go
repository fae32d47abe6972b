package attach

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/engine/llamacpp"
	"github.com/dynago/dynago/engine/ollama"
	"github.com/dynago/dynago/engine/openai"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/engine/sglang"
	"github.com/dynago/dynago/engine/trtllm"
	"github.com/dynago/dynago/engine/vllm"
)

// Adapter is what adapters get beyond the spec.
type Adapter struct {
	Log *slog.Logger // nil: nobody hears of anything
}

// open makes the adapter for a kind of server.
func (s *Spec) open(kind string, a Adapter) (engine.Engine, error) {
	log := a.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	priority := s.Priority != nil && *s.Priority
	switch kind {
	case VLLM:
		return adapter(vllm.New(vllm.Config{
			URL: s.URL, Key: s.Key, Header: s.Header, TLS: s.TLS, Model: s.Model, Role: s.Role,
			Disagg:        vllm.Disagg{Style: s.DisaggStyle, Host: s.BootstrapHost, Port: s.BootstrapPort},
			ContextLength: s.ContextLength, BlockSize: s.BlockSize, TotalBlocks: s.TotalBlocks,
			DPStart: s.DPStart, DPSize: s.DPSize, Priority: priority,
			Events: s.published(log), Every: s.Every, Log: log,
		}))
	case SGLang:
		return adapter(sglang.New(sglang.Config{
			HTTP: s.http(), Model: s.Model, ContextLength: s.ContextLength, BlockSize: s.BlockSize,
			PriorityEnabled: s.Priority, BootstrapHost: s.BootstrapHost, Every: s.Every, ExtraBody: s.ExtraBody, Log: log,
			Events: s.publishes(),
		}))
	case TRTLLM:
		return adapter(trtllm.New(trtllm.Config{
			Config: s.http(), Model: s.Model, ContextLength: s.ContextLength, BlockSize: s.BlockSize, Ranks: s.DPSize,
			LoadEvery: s.Every, Role: s.Role, GenerationFirst: s.DisaggStyle == trtllm.GenerationFirst, Adapters: s.loras(),
			Events: s.Events == poll, PriorityEnabled: priority, ExtraBody: s.ExtraBody, Log: log,
		}))
	case LlamaCPP:
		return adapter(llamacpp.New(llamacpp.Config{
			Config: s.http(), Model: s.Model, ContextLength: s.ContextLength, BlockSize: s.BlockSize,
			Interval: s.Every, PinSessions: s.PinSessions, ExtraBody: s.ExtraBody,
		}))
	case Ollama:
		return adapter(ollama.New(ollama.Config{
			Config: s.http(), Model: s.Model, ContextLength: s.ContextLength, MaxSeqs: s.MaxSeqs,
			KeepAlive: s.KeepAlive, Interval: s.Every, ExtraBody: s.ExtraBody,
		}))
	case OpenAI:
		return adapter(openai.New(openai.Config{
			Config: s.http(), Model: s.Model, ContextLength: s.ContextLength, MaxSeqs: s.MaxSeqs,
			Interval: s.Every, ExtraBody: s.ExtraBody,
		}))
	case Remote:
		return adapter(remote.New(s.worker(log)))
	}
	return nil, fmt.Errorf("kind: %q: there is no adapter for it", kind)
}

// loras are the adapters of a TensorRT-LLM server, numbered by name.
func (s *Spec) loras() (list []trtllm.Adapter) {
	for i, name := range slices.Sorted(maps.Keys(s.Adapters)) {
		list = append(list, trtllm.Adapter{Name: name, ID: int32(i) + 1, Path: s.Adapters[name]})
	}
	return list
}

// published is where a vLLM server publishes what its caches do.
func (s *Spec) published(log *slog.Logger) vllm.Events {
	p := s.publishes()
	return vllm.Events{Endpoint: p.Endpoint, Replay: p.Replay, Topic: p.Topic, Bind: p.Bind, Log: log}
}

// publishes is where a server publishes what its caches do, as far as it was said.
func (s *Spec) publishes() live.Published {
	p := live.Published{Endpoint: s.Events, Replay: s.Replay, Topic: s.Topic, Bind: s.Bind}
	if s.Events == none {
		p.Endpoint = "" // those that it tells of are left out of its card
	}
	return p
}

// adapter keeps an engine that is nil from being an interface that is not.
func adapter[E engine.Engine](e E, err error) (engine.Engine, error) {
	if err != nil {
		return nil, err
	}
	return e, nil
}
