package main

import (
	"time"

	"github.com/dynago/dynago/internal/config"
)

// settings are all settings of a system in one process.
type settings struct {
	File     fileSettings          `embed:"" group:"Files"`
	HTTP     httpSettings          `embed:"" group:"HTTP"`
	Model    modelSettings         `embed:"" group:"Model"`
	Attach   attachSettings        `embed:"" group:"Workers (attached engines)"`
	Workers  workerSettings        `embed:"" group:"Workers (in this process)"`
	Lower    tinyStoreSettings     `embed:"" group:"KV blocks of workers that compute"`
	Router   routerSettings        `embed:"" group:"Router"`
	Requests requestSettings       `embed:"" group:"Requests"`
	Stored   responsesSettings     `embed:"" group:"Stored responses"`
	Observe  observabilitySettings `embed:"" group:"Logs and metrics"`
	Trace    tracingSettings       `embed:"" group:"Request traces"`
	KServe   kserveSettings        `embed:"" group:"KServe"`
	Paths    pathSettings          `embed:"" group:"Paths of routes"`
	Ignored  ignoredSettings       `embed:"" group:"Accepted for compatibility"`
}

type fileSettings struct {
	Config       config.Path `name:"config" env:"DYN_CONFIG" placeholder:"FILE" action:"read" help:"Read settings from a YAML file."`
	DumpConfigTo string      `name:"dump-config-to" env:"DYN_DUMP_CONFIG_TO" placeholder:"FILE" action:"write" help:"Write the settings that hold as a YAML file, and go on."`
}

type httpSettings struct {
	Host           string        `name:"http-host" env:"DYN_HTTP_HOST" default:"127.0.0.1" placeholder:"ADDRESS" help:"Listen on this address; 0.0.0.0 is all."`
	Port           int           `name:"http-port" env:"DYN_HTTP_PORT" default:"8000" range:"0..65535" placeholder:"PORT" help:"Listen on this port; 0 takes a free one."`
	AdminPort      *int          `name:"admin-port" env:"DYN_ADMIN_PORT" range:"0..65535" placeholder:"PORT" help:"Serve /metrics, the admin routes and the profiler on this port instead of the public one."`
	Cert           string        `name:"tls-cert-path" env:"DYN_TLS_CERT_PATH" placeholder:"FILE" help:"Certificate in PEM: serve HTTP and gRPC with TLS. It is read again at SIGHUP."`
	Key            string        `name:"tls-key-path" env:"DYN_TLS_KEY_PATH" placeholder:"FILE" help:"Its key."`
	APIKeysFile    *string       `name:"api-keys-file" env:"DYN_API_KEYS_FILE" placeholder:"FILE" help:"Want one of these keys on every route; lines of \"key [tenant]\". The file is read again when it changes."`
	Tenants        []string      `name:"tenants" env:"DYN_TENANTS" sep:";" named:"name" placeholder:"name=NAME[,CAP=VALUE...]" help:"Lower what the tenant of a key may ask for to max_priority, max_strict_priority, max_ttl and pin_share. Repeatable; in the file, tenants.NAME.CAP."`
	DrainTimeout   time.Duration `name:"drain-timeout" env:"DYN_DRAIN_TIMEOUT,DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS" default:"30s" unit:"s" placeholder:"TIME" help:"How long running requests may take to finish after SIGTERM."`
	BodyLimitMB    int64         `name:"http-body-limit-mb" env:"DYN_HTTP_BODY_LIMIT_MB" default:"192" range:"1..65536" placeholder:"MIB" help:"Largest request body, counted after decompression."`
	OverloadStatus int           `name:"http-overload-status-code" env:"DYN_HTTP_OVERLOAD_STATUS_CODE" default:"529" range:"200..999" placeholder:"STATUS" help:"Status of an answer that all workers are busy."`
	KeepAlive      time.Duration `name:"http-sse-keep-alive-interval-ms" env:"DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS" default:"15s" unit:"ms" placeholder:"TIME" help:"Silence after which a stream sends a keep-alive; 0 is never."`
	Hold           time.Duration `name:"http-pre-commit-error-peek-ms" env:"DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS" default:"15s" unit:"ms" placeholder:"TIME" help:"How long the status of a stream may wait for its first event, so that an early error has a status of its own."`
	HeaderTimeout  time.Duration `name:"http-header-timeout" env:"DYN_HTTP_HEADER_TIMEOUT" default:"10s" unit:"s" placeholder:"TIME" help:"How long the header of a request may take."`
	ReadTimeout    time.Duration `name:"http-read-timeout" env:"DYN_HTTP_READ_TIMEOUT" default:"60s" unit:"s" placeholder:"TIME" help:"How long the body of a request may take."`
	WriteTimeout   time.Duration `name:"http-write-timeout" env:"DYN_HTTP_WRITE_TIMEOUT" default:"60s" unit:"s" placeholder:"TIME" help:"How long a client may take to accept what is sent at once."`
	IdleTimeout    time.Duration `name:"http-idle-timeout" env:"DYN_HTTP_IDLE_TIMEOUT" default:"120s" unit:"s" placeholder:"TIME" help:"How long a connection may wait for its next request."`
	NoAdmin        bool          `name:"disable-frontend-admin-api" env:"DYN_DISABLE_FRONTEND_ADMIN_API" negatable:"" help:"Remove all admin routes; /metrics stays."`
	FDLimit        int           `name:"frontend-fd-limit-target" env:"DYN_FRONTEND_FD_LIMIT_TARGET" default:"8192" placeholder:"N" help:"Raise the limit of open files to this; 0 leaves it."`
}

type modelSettings struct {
	Demo            string   `name:"demo" env:"DYN_DEMO" default:"tiny" choice:"tiny,mock" help:"Engine that answers where none is attached: tiny, which computes the small model in this program or that of --model-path, or mock, which imitates an engine and its times and wants no weights."`
	Path            string   `name:"model-path" env:"DYN_MODEL_PATH" placeholder:"PATH" help:"Take tokenizer and chat template from a model's folder, its place in a Hugging Face cache, or a file such as tokenizer.json or model.gguf, instead of the model in this program; with --demo tiny its weights lie there too, as safetensors or in the .gguf."`
	Name            string   `name:"model-name" aliases:"served-model-name" env:"DYN_MODEL_NAME" placeholder:"NAME" help:"Serve the model under this name; otherwise that of the model in this program, of the folder, or of the repository in a cache."`
	Aliases         []string `name:"model-alias" env:"DYN_MODEL_ALIAS" placeholder:"PATTERN=NAME" help:"Serve model NAME also where a client asks for a name of this pattern, as in claude-*=my/model; real names come first. Repeatable; the first that matches counts."`
	ChatTemplate    string   `name:"chat-template" aliases:"custom-jinja-template" env:"DYN_CHAT_TEMPLATE" placeholder:"FILE" help:"Use this chat template instead of the model's."`
	Tokenizer       string   `name:"tokenizer" env:"DYN_TOKENIZER" default:"default" choice:"default,fastokens,basetenkenizer" help:"Accepted for compatibility: one tokenizer serves, with the ids of all of these."`
	ToolParser      string   `name:"dyn-tool-call-parser" env:"DYN_TOOL_CALL_PARSER" default:"auto" placeholder:"NAME" help:"How the model writes tool calls: auto, none, or the name of a family."`
	ReasoningParser string   `name:"dyn-reasoning-parser" env:"DYN_REASONING_PARSER" default:"auto" placeholder:"NAME" help:"How the model writes its reasoning: auto, none, or the name of a family."`
	Unescape        bool     `name:"parser-unescape" env:"DYN_PARSER_UNESCAPE" default:"true" negatable:"" help:"Read &lt; and its like as characters in arguments of models that write them in tags, where an argument has no raw bracket."`
	StructuralTag   bool     `name:"dyn-enable-structural-tag" env:"DYN_ENABLE_STRUCTURAL_TAG" negatable:"" help:"Hold tool calls to the model's own form by structural tags, with engines that know them."`
	TagScope        string   `name:"dyn-structural-tag-scope" env:"DYN_STRUCTURAL_TAG_SCOPE" default:"auto" choice:"auto,always" help:"Use them where a tool is strict, one call is all or a call is forced, or for every request with tools."`
	TagSchema       string   `name:"dyn-structural-tag-schema" env:"DYN_STRUCTURAL_TAG_SCHEMA" default:"auto" choice:"auto,strict" help:"Hold the arguments of strict tools to their schemas, or those of all."`
	DefaultThinking *string  `name:"dyn-default-thinking-mode" env:"DYN_DEFAULT_THINKING_MODE" choice:"enabled,disabled" placeholder:"MODE" help:"Whether models think where the client says nothing of it; otherwise they decide."`
	ReasoningField  string   `name:"reasoning-field-name" env:"DYN_REASONING_FIELD_NAME" default:"reasoning_content" choice:"reasoning_content,reasoning" help:"Member of answers that holds reasoning."`
	NamedToolFinish string   `name:"named-tool-finish" env:"DYN_NAMED_TOOL_FINISH" default:"tool_calls" choice:"tool_calls,stop" help:"Finish reason of an answer to a named tool choice."`
	AllowSpecial    bool     `name:"allow-special-tokens-in-content" env:"DYN_ALLOW_SPECIAL_TOKENS_IN_CONTENT" negatable:"" help:"Let control tokens that a client writes into its text be control tokens."`
	CacheBytes      int      `name:"tokenizer-cache-bytes" env:"DYN_TOKENIZER_CACHE_BYTES" default:"67108864" range:"0.." placeholder:"BYTES" help:"Memory for the token ids of earlier turns; 0 is none."`
	TurnCacheBytes  int      `name:"turn-cache-bytes" env:"DYN_TURN_CACHE_BYTES" default:"268435456" range:"0.." placeholder:"BYTES" help:"Memory for the token ids of answers, which the next prompt then begins with; 0 is none."`
	ReplayRaw       bool     `name:"replay-raw" env:"DYN_REPLAY_RAW" negatable:"" help:"Put answers into later prompts as the model wrote them, also where its chat template shows them in another way, such as without their thoughts."`
	OwnedBy         string   `name:"owned-by" env:"DYN_OWNED_BY" default:"dynago" placeholder:"NAME" help:"Owner told in the model list."`
	ContextWindow   int      `name:"context-window" env:"DYN_CONTEXT_WINDOW" default:"0" range:"0.." placeholder:"TOKENS" help:"Context length told in the model list; 0 is the real one."`
	MaxOutputTokens int      `name:"max-output-tokens" env:"DYN_MAX_OUTPUT_TOKENS" default:"0" range:"0.." placeholder:"TOKENS" help:"Longest answer told in the model list; 0 tells none."`
}

type workerSettings struct {
	Count    *int `name:"workers" aliases:"num-workers" env:"DYN_WORKERS,DYN_NUM_WORKERS" range:"1..1024" placeholder:"N" help:"Number of workers; otherwise 2 that compute, or 4 that imitate."`
	Prefills int  `name:"num-prefill-workers" env:"DYN_NUM_PREFILL_WORKERS" default:"0" range:"0..1024" placeholder:"N" help:"Number of workers that compute prompts for the others; with 0, each does whole requests."`
	engineSettings
	Script string        `name:"mock-script" env:"DYN_MOCK_SCRIPT" placeholder:"FILE" help:"Let the workers answer what this YAML file says."`
	Seed   uint64        `name:"mock-seed" env:"DYN_MOCK_SEED" default:"0" placeholder:"N" help:"What the workers' answers are made from."`
	Churn  time.Duration `name:"mock-churn" env:"DYN_MOCK_CHURN" default:"0s" unit:"s" placeholder:"TIME" help:"Replace one worker after another in this interval, as a test of what holds; 0 is never."`
}

// engineSettings say what engine is imitated.
type engineSettings struct {
	EngineType         *string        `name:"engine-type" env:"DYN_ENGINE_TYPE" choice:"vllm" placeholder:"NAME" help:"Engine to imitate."`
	BlockSize          *int           `name:"kv-cache-block-size" aliases:"block-size" env:"DYN_KV_CACHE_BLOCK_SIZE,DYN_BLOCK_SIZE" range:"2..65536" placeholder:"TOKENS" help:"Tokens of one KV block; otherwise 16, and 64 in a replay."`
	NumBlocks          *int           `name:"num-gpu-blocks-override" env:"DYN_NUM_GPU_BLOCKS_OVERRIDE" range:"1..2147483647" placeholder:"BLOCKS" help:"KV blocks of each rank; otherwise 16384, and for tiny those of eight whole contexts."`
	MaxSeqs            *int           `name:"max-num-seqs" env:"DYN_MAX_NUM_SEQS" range:"1..2147483647" placeholder:"N" help:"Requests that run at once on one rank; otherwise 256, and 64 for tiny."`
	MaxBatchedTokens   *int           `name:"max-num-batched-tokens" env:"DYN_MAX_NUM_BATCHED_TOKENS" range:"1..2147483647" placeholder:"TOKENS" help:"Tokens computed in one pass; otherwise 8192, and 256 for tiny."`
	MaxModelLen        *int           `name:"max-model-len" aliases:"context-length" env:"DYN_MAX_MODEL_LEN" range:"1..2147483647" placeholder:"TOKENS" help:"Longest prompt and answer together; otherwise what the model was made for."`
	PrefixCaching      *bool          `name:"enable-prefix-caching" env:"DYN_ENABLE_PREFIX_CACHING" negatable:"" help:"Let requests share KV blocks; otherwise true."`
	ChunkedPrefill     *bool          `name:"enable-chunked-prefill" env:"DYN_ENABLE_CHUNKED_PREFILL" negatable:"" help:"Compute a long prompt over several passes; otherwise true."`
	PreemptionMode     *string        `name:"preemption-mode" env:"DYN_PREEMPTION_MODE" choice:"lifo,fifo" placeholder:"MODE" help:"Who makes room when the cache is full; otherwise lifo."`
	SpeedupRatio       *float64       `name:"speedup-ratio" env:"DYN_SPEEDUP_RATIO" range:"0..1000000000" placeholder:"X" help:"Divide all modelled times; 0 is no delay. Otherwise 1."`
	DecodeSpeedupRatio *float64       `name:"decode-speedup-ratio" env:"DYN_DECODE_SPEEDUP_RATIO" range:"0..1000000000" placeholder:"X" help:"Divide decode times further; otherwise 1."`
	DPSize             *int           `name:"data-parallel-size" env:"DYN_DATA_PARALLEL_SIZE" range:"1..1024" placeholder:"N" help:"Data-parallel ranks of each worker; otherwise 1."`
	StartupTime        *time.Duration `name:"startup-time" env:"DYN_STARTUP_TIME" unit:"s" placeholder:"TIME" help:"How long each worker takes to start; otherwise 0."`
	mockTierSettings
	ExtraArgs string `name:"extra-engine-args" env:"DYN_EXTRA_ENGINE_ARGS" placeholder:"JSON|FILE" help:"Engine arguments as a JSON object, or the file that holds it; they win over the flags above."`
}

type routerSettings struct {
	Policy             policySettings      `embed:""`
	Waiting            waitingSettings     `embed:""`
	Conditional        conditionalSettings `embed:""`
	Past               pastSettings        `embed:""`
	Shared             sharedCacheSettings `embed:""`
	Peers              peerSettings        `embed:""`
	DecisionLog        int                 `name:"router-decision-log" env:"DYN_ROUTER_DECISION_LOG" default:"1024" range:"0..1048576" placeholder:"N" help:"How many of the newest decisions GET /admin/decisions can tell; 0 keeps none."`
	DecisionRate       int                 `name:"router-decision-log-rate" env:"DYN_ROUTER_DECISION_LOG_RATE" default:"100" range:"1.." placeholder:"N" help:"How many of each second are kept."`
	LoadAware          bool                `name:"load-aware" env:"DYN_ROUTER_LOAD_AWARE" negatable:"" help:"Count what is going on and nothing that is cached; takes mode kv and the place of the settings of the cache."`
	AcceleratorRatio   int                 `name:"encoder-cuda-to-cpu-ratio" env:"DYN_ENCODER_CUDA_TO_CPU_RATIO" default:"8" range:"1.." placeholder:"N" help:"Requests for a worker with an accelerator for each on one without, in mode device-aware-weighted."`
	Mode               string              `name:"router-mode" env:"DYN_ROUTER_MODE" default:"kv" choice:"kv,round-robin,random,power-of-two,least-loaded,device-aware-weighted,direct" also:"k-v=kv,kv-router=kv,power-of-two-choices=power-of-two" help:"How a worker is picked."`
	Credit             float64             `name:"router-kv-overlap-score-credit" env:"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT" default:"1" range:"0.." placeholder:"X" help:"What one cached block saves, in blocks of prefill."`
	CreditDecay        float64             `name:"router-kv-overlap-score-credit-decay" env:"DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY" default:"0" range:"0.." placeholder:"X" help:"How fast the credit of a worker falls that has more prefill to do than others."`
	PrefillScale       *float64            `name:"router-prefill-load-scale" env:"DYN_ROUTER_PREFILL_LOAD_SCALE" range:"0.." placeholder:"X" help:"What a block of prefill costs against one in use; otherwise 4, and 1 where sessions are bound or with --load-aware."`
	OverlapWeight      *float64            `name:"router-kv-overlap-score-weight" aliases:"kv-overlap-score-weight" env:"DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT,DYN_OVERLAP_SCORE_WEIGHT" range:"0.." placeholder:"X" help:"Older name of --router-prefill-load-scale; 0 takes the credit away too."`
	RequestWeight      float64             `name:"router-decode-active-request-weight" env:"DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT" default:"0" range:"0.." placeholder:"X" help:"What each running request costs, in blocks."`
	HostWeight         float64             `name:"router-host-cache-hit-weight" env:"DYN_ROUTER_HOST_CACHE_HIT_WEIGHT" default:"0.75" range:"0..1" placeholder:"X" help:"What a block in host memory is worth against one on the device."`
	DiskWeight         float64             `name:"router-disk-cache-hit-weight" env:"DYN_ROUTER_DISK_CACHE_HIT_WEIGHT" default:"0.25" range:"0..1" placeholder:"X" help:"What a block on disk is worth against one on the device."`
	SharedMultiplier   float64             `name:"shared-cache-multiplier" env:"DYN_SHARED_CACHE_MULTIPLIER" default:"0.5" range:"0..1" placeholder:"X" help:"What a block in a store beside the workers is worth."`
	Temperature        float64             `name:"router-temperature" env:"DYN_ROUTER_TEMPERATURE" default:"0" range:"0.." placeholder:"X" help:"0 takes the least cost; above, costlier workers get a share."`
	KVEvents           bool                `name:"router-kv-events" aliases:"kv-events" env:"DYN_ROUTER_USE_KV_EVENTS,DYN_USE_KV_EVENTS" default:"true" negatable:"" help:"Listen to what workers tell of their caches; without, what was sent to a worker counts as cached there."`
	TTL                time.Duration       `name:"router-ttl-secs" env:"DYN_ROUTER_TTL_SECS" default:"120s" unit:"s" placeholder:"TIME" help:"How long a prompt counts as cached on a worker that tells nothing."`
	PredictedTTL       *time.Duration      `name:"router-predicted-ttl-secs" env:"DYN_ROUTER_PREDICTED_TTL_SECS" unit:"s" placeholder:"TIME" help:"How long a prompt counts as cached on a worker that it was sent to, before the worker tells so; unset is not at all."`
	TrackPrefill       bool                `name:"router-track-prefill-tokens" env:"DYN_ROUTER_TRACK_PREFILL_TOKENS" default:"true" negatable:"" help:"Count prompts that are not yet computed."`
	TrackBlocks        bool                `name:"router-track-active-blocks" env:"DYN_ROUTER_TRACK_ACTIVE_BLOCKS" default:"true" negatable:"" help:"Count blocks in use."`
	TrackOutput        bool                `name:"router-track-output-blocks" env:"DYN_ROUTER_TRACK_OUTPUT_BLOCKS" negatable:"" help:"Count the blocks of answers as well."`
	AssumeReuse        bool                `name:"router-assume-kv-reuse" env:"DYN_ROUTER_ASSUME_KV_REUSE" default:"true" negatable:"" help:"Let requests with a common prefix share its blocks in the books."`
	TrackingHash       string              `name:"router-tracking-hash" env:"DYN_ROUTER_TRACKING_HASH" default:"public-xxh3-v1" choice:"public-xxh3-v1,keyed-xxh3-v1" help:"How blocks in use are named in the books; keyed names are of no use to who does not have the key."`
	TrackingKeyFile    string              `name:"router-tracking-key-file" env:"DYN_ROUTER_TRACKING_KEY_FILE" placeholder:"FILE" help:"The 32 bytes of the key for keyed-xxh3-v1."`
	TrackingKeyID      string              `name:"router-tracking-key-id" env:"DYN_ROUTER_TRACKING_KEY_ID" placeholder:"NAME" help:"What the key for keyed-xxh3-v1 is called."`
	MinInitialWorkers  int                 `name:"router-min-initial-workers" env:"DYN_ROUTER_MIN_INITIAL_WORKERS" default:"0" range:"0.." placeholder:"N" help:"Refuse requests until so many workers have been ready."`
	Seed               uint64              `name:"router-seed" env:"DYN_ROUTER_SEED" default:"0" placeholder:"N" help:"Make random choices repeatable; 0 does not."`
	MigrationLimit     int                 `name:"migration-limit" env:"DYN_MIGRATION_LIMIT" default:"3" range:"0..4294967295" placeholder:"N" help:"How often a request may go on on another worker when its own fails."`
	MigrationMaxTokens *int                `name:"migration-max-seq-len" env:"DYN_MIGRATION_MAX_SEQ_LEN" range:"1..4294967295" placeholder:"TOKENS" help:"Do not move requests that have grown longer."`
	InhibitedDuration  time.Duration       `name:"runtime-inhibited-duration-secs" env:"DYN_RUNTIME_INHIBITED_DURATION_SECS" default:"5s" unit:"s" placeholder:"TIME" help:"How long a worker is left alone after a fault; 0 is not at all."`
	SessionTTL         *time.Duration      `name:"router-session-affinity-ttl-secs" env:"DYN_ROUTER_SESSION_AFFINITY_TTL_SECS" unit:"s" placeholder:"TIME" help:"Send the requests of every session to one worker, until the session has been idle for so long, 1s to a year; unset does so where a client says nvext.session_control."`
	StrictSessions     bool                `name:"strict-sessions" env:"DYN_STRICT_SESSIONS" negatable:"" help:"Refuse turns that do not fit what is known of their session, or whose session cannot be kept, instead of serving them all the same."`
	BusyDecodeBlocks   *float64            `name:"active-decode-blocks-threshold" env:"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD" range:"0..1" placeholder:"X" help:"Send a worker nothing more while this part of its KV blocks is in use; unset is no limit."`
	BusyPrefill        *uint64             `name:"active-prefill-tokens-threshold" env:"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD" placeholder:"TOKENS" help:"Send a worker nothing more while it has more tokens of prompts to compute; unset is no limit."`
	BusyPrefillFrac    *float64            `name:"active-prefill-tokens-threshold-frac" env:"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC" range:"0.." placeholder:"X" help:"The same in multiples of what it computes in one pass."`
}

type requestSettings struct {
	Retention retentionSettings `embed:""`
	Learn     learnSettings     `embed:""`

	StreamTimeout    time.Duration `name:"http-backend-stream-timeout-secs" env:"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS" default:"300s" unit:"s" placeholder:"TIME" help:"Silence after which a worker counts as hung; 0 is never."`
	FirstItemTimeout time.Duration `name:"first-item-timeout" env:"DYN_FIRST_ITEM_TIMEOUT" default:"600s" unit:"s" placeholder:"TIME" help:"The same before a worker's first token; 0 is never."`
	IgnoreUnknown    bool          `name:"ignore-openai-fe-unsupported-fields" env:"DYN_IGNORE_OPENAI_FE_UNSUPPORTED_FIELDS" default:"true" negatable:"" help:"Ignore unknown members of request bodies instead of refusing them."`
	ForceUsage       bool          `name:"enable-force-include-usage" env:"DYN_ENABLE_FORCE_INCLUDE_USAGE" negatable:"" help:"Send usage on every stream."`
	NoNVExt          bool          `name:"disable-frontend-nvext" env:"DYN_DISABLE_FRONTEND_NVEXT" negatable:"" help:"Ignore the extension member nvext and the headers that stand in for it."`
	StrictNVExt      bool          `name:"strict-nvext" env:"DYN_STRICT_NVEXT" negatable:"" help:"Refuse unknown members inside nvext."`
	Template         string        `name:"request-template" env:"DYN_REQUEST_TEMPLATE" placeholder:"FILE" help:"Fill in what requests leave open, from a JSON object with model, max_completion_tokens, temperature and so on; of completions over HTTP only the model."`
	MetadataHeader   string        `name:"metadata-header" env:"DYN_METADATA_HEADER" default:"x-dynamo-meta-" placeholder:"PREFIX" help:"Hand the values of headers that begin so to workers."`
	UploadPrefixes   []string      `name:"metadata-upload-prefix" env:"DYN_METADATA_UPLOAD_PREFIX" placeholder:"URL" help:"Let clients tell workers, by nvext.metadata_upload, to upload what they have captured below this place; without one they may not. Repeatable."`
	Annotations      string        `name:"annotation-framing" env:"DYN_ANNOTATION_FRAMING" default:"comment" choice:"comment,data" help:"Send the values of annotations in comments of a stream, as their clients expect, or in data lines."`
	RawReasoning     string        `name:"responses-raw-reasoning" env:"DYN_RESPONSES_RAW_REASONING" default:"off" choice:"off,openai,open_responses" help:"Stream thoughts on /v1/responses of which no summary was asked for, by events of that name; clients of one refuse those of the other."`
	AnthropicAPI     bool          `name:"enable-anthropic-api" env:"DYN_ENABLE_ANTHROPIC_API" default:"true" negatable:"" help:"Serve /v1/messages."`
	ToolErrorPrefix  bool          `name:"tool-error-prefix" env:"DYN_TOOL_ERROR_PREFIX" negatable:"" help:"Put \"[error] \" before results of tools that are marked as errors on /v1/messages and do not speak of one."`
	EnvelopeKey      string        `name:"reasoning-envelope-key" env:"DYN_REASONING_ENVELOPE_KEY" placeholder:"KEY" secret:"" help:"Encrypt the thoughts that clients carry for us; any text. Servers that share sessions need the same one."`
	ToolDispatch     bool          `name:"enable-streaming-tool-dispatch" env:"DYN_ENABLE_STREAMING_TOOL_DISPATCH" negatable:"" help:"Tell of each complete tool call by an event of its own, in streams of chat completions; clients can ask for it as well."`
	ThoughtDispatch  bool          `name:"enable-streaming-reasoning-dispatch" env:"DYN_ENABLE_STREAMING_REASONING_DISPATCH" negatable:"" help:"The same for reasoning."`
	ImagePlaceholder bool          `name:"image-placeholder" env:"DYN_IMAGE_PLACEHOLDER" negatable:"" help:"Let a short text stand for an image in the newest user turn, instead of refusing it; in earlier turns, and in results of tools, it does so anyway."`
	ExcludeTools     *bool         `name:"exclude-tools-when-tool-choice-none" env:"DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE" negatable:"" help:"Leave tools out of the prompt where no call may be made; otherwise only where the engines cannot keep a model from calling."`
	StripPreamble    bool          `name:"strip-anthropic-preamble" env:"DYN_STRIP_ANTHROPIC_PREAMBLE" default:"true" negatable:"" help:"Take the billing line off system texts, which is another one with every request."`
}

type observabilitySettings struct {
	loggingSettings
	Telemetry     telemetrySettings `embed:""`
	HistoryTokens int               `name:"session-history-tokens" env:"DYN_SESSION_HISTORY_TOKENS" default:"16777216" range:"0.." placeholder:"TOKENS" help:"Tokens of the latest prompts of sessions that are kept, four bytes each, to tell how much of them is used again; 0 is none."`
	MetricsPrefix string            `name:"metrics-prefix" env:"DYN_METRICS_PREFIX" default:"dynamo_frontend" placeholder:"PREFIX" help:"What the names of request metrics begin with."`
}

type pathSettings struct {
	Chat        string `name:"http-svc-chat-path" env:"DYN_HTTP_SVC_CHAT_PATH" placeholder:"PATH" help:"Otherwise /v1/chat/completions."`
	Completions string `name:"http-svc-cmp-path" env:"DYN_HTTP_SVC_CMP_PATH" placeholder:"PATH" help:"Otherwise /v1/completions."`
	Models      string `name:"http-svc-models-path" env:"DYN_HTTP_SVC_MODELS_PATH" placeholder:"PATH" help:"Otherwise /v1/models."`
	Health      string `name:"http-svc-health-path" env:"DYN_HTTP_SVC_HEALTH_PATH" placeholder:"PATH" help:"Otherwise /health."`
	Live        string `name:"http-svc-live-path" env:"DYN_HTTP_SVC_LIVE_PATH" placeholder:"PATH" help:"Otherwise /live."`
	Metrics     string `name:"http-svc-metrics-path" env:"DYN_HTTP_SVC_METRICS_PATH" placeholder:"PATH" help:"Otherwise /metrics."`
}

// ignoredSettings change nothing: they let launch lines that were made for
// other systems work.
type ignoredSettings struct {
	Discovery         string  `name:"discovery-backend" env:"DYN_DISCOVERY_BACKEND" default:"mem" placeholder:"NAME" help:"How workers are found: mem, by what this process is told, or file, by the list in --workers-file."`
	RequestPlane      *string `name:"request-plane" env:"DYN_REQUEST_PLANE" placeholder:"NAME" help:"No effect."`
	EventPlane        *string `name:"event-plane" env:"DYN_EVENT_PLANE" placeholder:"NAME" help:"No effect."`
	AdmissionControl  *string `name:"admission-control" env:"DYN_ADMISSION_CONTROL" placeholder:"NAME" help:"No effect."`
	TokenizerFallback bool    `name:"tokenizer-fallback" env:"DYN_TOKENIZER_FALLBACK" default:"true" negatable:"" help:"No effect: there is one tokenizer, and none to fall back to."`
	TrustRemoteCode   bool    `name:"trust-remote-code" env:"DYN_TRUST_REMOTE_CODE" negatable:"" help:"No effect: no code of a model is ever run."`
}
