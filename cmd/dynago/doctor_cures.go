package main

import (
	"strings"

	"github.com/dynago/dynago/engine/attach"
)

// brand is which engine a server runs.
type brand string

const (
	isVLLM     brand = "vllm"
	isSGLang   brand = "sglang"
	isTRTLLM   brand = "tensorrt_llm"
	isLlamaCPP brand = "llama"
	isOther    brand = ""
)

// brands are those of the kinds of servers.
var brands = map[string]brand{attach.VLLM: isVLLM, attach.SGLang: isSGLang, attach.TRTLLM: isTRTLLM, attach.LlamaCPP: isLlamaCPP}

// brandOf returns that of a card's engine, which has its version behind it.
func brandOf(engine string) brand {
	for _, p := range []brand{isVLLM, isSGLang, isTRTLLM, isLlamaCPP} {
		if strings.HasPrefix(engine, string(p)) {
			return p
		}
	}
	return isOther
}

// cures are what to do about what is not fine, by check and engine. What stands under
// isOther is for all that have nothing of their own.
var cures = map[string]map[brand]string{
	"reach": {
		isOther: "Start the server, or give its real address. A server in a container listens where others reach it with --host 0.0.0.0.",
	},
	"key": {
		isOther: "Give its key: --engine with api_key=KEY, or api_key_file=FILE.",
	},
	"port": {
		isOther: "Give one of them another port: --http-port of dynago, or --port of the engine.",
	},
	"model": {
		isVLLM:   "Give model=NAME in --engine as the server lists it, or start vLLM with --served-model-name NAME.",
		isSGLang: "Give model=NAME in --engine as the server lists it, or start SGLang with --served-model-name NAME.",
		isOther:  "Give model=NAME in --engine as the server lists it.",
	},
	"context": {
		isTRTLLM: "Give context_length=TOKENS in --engine: trtllm-serve does not tell its max_seq_len.",
		isOther:  "Give context_length=TOKENS in --engine.",
	},
	"tokenizer": {
		isOther: "Give model_path=PATH in --engine, or --model-path: a folder with tokenizer.json and the like, or hf://ORG/MODEL if it is in the cache of Hugging Face on this machine.",
	},
	"template": {
		isOther: "Conversations need a chat template: put chat_template.jinja beside the tokenizer, or give --chat-template FILE.",
	},
	"generate": {
		isVLLM:  "Look into the log of vLLM; it must be 0.10.2 or newer, and serve token ids.",
		isOther: "Look into the log of the engine.",
	},
	"prefix caching": {
		isVLLM:     "Start vLLM with --enable-prefix-caching.",
		isSGLang:   "Start SGLang without --disable-radix-cache.",
		isTRTLLM:   "Set kv_cache_config.enable_block_reuse: true in the configuration of trtllm-serve.",
		isLlamaCPP: "Start llama-server without --no-cache-prompt.",
		isOther:    "Switch prefix caching on in the engine.",
	},
	"cached tokens": {
		isVLLM:   "Start vLLM with --enable-prompt-tokens-details.",
		isSGLang: "Start SGLang with --enable-cache-report.",
		isOther:  "Nothing can be done about it if the engine cannot tell; what the router expects is then not checked against what was there.",
	},
	"events": {
		isVLLM: "Start vLLM with\n--kv-events-config '{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\"}'\n" +
			"and give events=tcp://*:5557,replay=tcp://*:5657 in --engine.",
		isSGLang: "Start SGLang with\n--kv-events-config '{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\"}' --page-size 16",
		isTRTLLM: "Set kv_cache_config.event_buffer_max_size: 32768 in the configuration of trtllm-serve, and give events=poll in --engine.",
		isOther:  "This engine publishes none: what was sent there counts as cached there.",
	},
	"replay": {
		isVLLM:   "Add \"replay_endpoint\":\"tcp://*:5657\" to --kv-events-config of vLLM, and give replay=tcp://*:5657 in --engine.",
		isSGLang: "Add \"replay_endpoint\":\"tcp://*:5657\" to --kv-events-config of SGLang.",
	},
	"block size": {
		isSGLang: "Start SGLang with --page-size 16 or more, or give block_size in --engine, a multiple of its page size.",
		isOther:  "Leave block_size out of --engine, or give the size that the events have.",
	},
	"priority": {
		isVLLM:   "Start vLLM with --scheduling-policy priority, and give priority_enabled=true in --engine.",
		isSGLang: "Start SGLang with --enable-priority-scheduling.",
		isTRTLLM: "Set scheduler_config.waiting_queue_policy: priority in the configuration of trtllm-serve, and give priority_enabled=true in --engine.",
		isOther:  "This engine has none: the router's own queue still goes by priority.",
	},
	"cancel": {
		isOther: "A proxy between dynago and the engine may keep the connection open: attach the engine's own address.",
	},
	"load": {
		isVLLM:     "vLLM shows /metrics unless it was built without: look whether a proxy hides it.",
		isSGLang:   "Start SGLang with --enable-metrics.",
		isTRTLLM:   "Set return_perf_metrics: true and enable_iter_perf_stats: true in the configuration of trtllm-serve.",
		isLlamaCPP: "Start llama-server with --metrics.",
		isOther:    "The router then knows of its own requests alone.",
	},
}

// cure returns what to do about a check that is not fine.
func (p brand) cure(check string) string {
	if text, ok := cures[check][p]; ok {
		return text
	}
	return cures[check][isOther]
}
