package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/agenttrace"
	"github.com/dynago/dynago/sim/trace"
)

type replayCommand struct {
	Traces []string `arg:"" optional:"" name:"trace" help:"File of recorded requests, compressed by gzip or not; of format dynamo there may be several, and directories, patterns, and what the names of segments begin with."`

	File    fileSettings          `embed:"" group:"Files"`
	Trace   traceSettings         `embed:"" group:"Recorded requests"`
	Made    syntheticSettings     `embed:"" group:"Made-up requests"`
	Replay  replaySettings        `embed:"" group:"Replay"`
	Engines engineSettings        `embed:"" group:"Workers (mock engines)"`
	Router  routerSettings        `embed:"" group:"Router"`
	Outcome outcomeSettings       `embed:"" group:"Report"`
	Observe observabilitySettings `embed:"" group:"Logs and metrics"`
}

type traceSettings struct {
	Format    string  `name:"trace-format" env:"DYN_TRACE_FORMAT" default:"mooncake" choice:"mooncake,mooncake-delta,agentic-mooncake,applied-compute-agentic,dynamo" help:"How the trace is written."`
	BlockSize *int    `name:"trace-block-size" env:"DYN_TRACE_BLOCK_SIZE" range:"1..1048576" placeholder:"TOKENS" help:"Tokens that an id of the trace stands for; otherwise what the trace says, or 512."`
	Strict    bool    `name:"trace-strict" env:"DYN_TRACE_STRICT" negatable:"" help:"Refuse a trace of format dynamo with requests that cannot be replayed."`
	Speedup   float64 `name:"arrival-speedup-ratio" env:"DYN_ARRIVAL_SPEEDUP_RATIO" default:"1" range:"0.000001..1000000" placeholder:"X" help:"Divide the times between requests."`
	Jitter    bool    `name:"jitter-within-tick" env:"DYN_JITTER_WITHIN_TICK" negatable:"" help:"Spread requests that a coarse clock lets arrive together over the time until its next tick."`
	First     int     `name:"first-requests" env:"DYN_FIRST_REQUESTS" default:"0" range:"0.." placeholder:"N" help:"Replay only so many of the first requests; 0 is all."`
}

type syntheticSettings struct {
	Input       *int          `name:"input-tokens" env:"DYN_INPUT_TOKENS" range:"1..268435456" placeholder:"TOKENS" help:"Make requests up, with prompts of this length; goes with --output-tokens and --request-count."`
	Output      *int          `name:"output-tokens" env:"DYN_OUTPUT_TOKENS" range:"1..268435456" placeholder:"TOKENS" help:"Length of their answers."`
	Count       *int          `name:"request-count" env:"DYN_REQUEST_COUNT" range:"1..10000000" placeholder:"N" help:"How many; with several turns, how many sessions."`
	Interval    time.Duration `name:"arrival-interval-ms" env:"DYN_ARRIVAL_INTERVAL_MS" default:"0s" unit:"ms" placeholder:"TIME" help:"Mean time between two of them; 0 lets all arrive at once."`
	Arrival     string        `name:"arrival" env:"DYN_ARRIVAL" default:"constant" choice:"constant,poisson" help:"Whether they come in equal steps or at random."`
	Seed        uint64        `name:"arrival-seed" env:"DYN_ARRIVAL_SEED" default:"42" placeholder:"N" help:"What random times and lengths are drawn from."`
	Turns       int           `name:"turns-per-session" env:"DYN_TURNS_PER_SESSION" default:"1" range:"1..100000" placeholder:"N" help:"Turns of a session, each ready when the one before is answered."`
	Accumulate  bool          `name:"accumulate-history" env:"DYN_ACCUMULATE_HISTORY" negatable:"" help:"Let each turn begin with those before it and their answers."`
	SharedRatio float64       `name:"shared-prefix-ratio" env:"DYN_SHARED_PREFIX_RATIO" default:"0" range:"0..1" placeholder:"X" help:"Share of a prompt that is its group's; also of the first prompts of a trace of format applied-compute-agentic."`
	Groups      int           `name:"num-prefix-groups" env:"DYN_NUM_PREFIX_GROUPS" default:"0" range:"0..1000000" placeholder:"N" help:"Number of groups."`
	Agents      int           `name:"agents" env:"DYN_AGENTS" default:"0" range:"0..1000000" placeholder:"N" help:"Make up the requests of so many agents instead: long prompts that grow turn by turn, tools, sub-agents."`
	AgentRate   float64       `name:"agents-per-second" env:"DYN_AGENTS_PER_SECOND" default:"0.1" range:"0.." placeholder:"X" help:"How many of them begin each second."`
	Pinned      float64       `name:"agents-pinned" env:"DYN_AGENTS_PINNED" default:"0" range:"0..1" placeholder:"X" help:"Share of agents that let their prompts stay cached while tools run; goes with --pin-budget-g1 or lower tiers."`
	PinTTL      time.Duration `name:"agents-pin-ttl" env:"DYN_AGENTS_PIN_TTL" default:"300s" unit:"s" placeholder:"TIME" help:"How long they stay."`
	Tell        bool          `name:"agents-tell" env:"DYN_AGENTS_TELL" negatable:"" help:"Let agents say which request is their last, and when they go on from a summary."`
	Foresee     bool          `name:"agents-foresee" env:"DYN_AGENTS_FORESEE" negatable:"" help:"Let agents say how long their tools will take, so that blocks are back by then."`
	Pause       time.Duration `name:"inter-turn-delay-ms" env:"DYN_INTER_TURN_DELAY_MS" default:"0s" unit:"ms" placeholder:"TIME" help:"Time between an answer and the next turn."`
}

type replaySettings struct {
	Mode        string  `name:"replay-mode" env:"DYN_REPLAY_MODE" default:"offline" choice:"offline,online" help:"offline is virtual time. To replay against live workers, send requests to dynago serve."`
	Workers     int     `name:"num-workers" aliases:"workers,num-decode-workers" env:"DYN_NUM_WORKERS,DYN_WORKERS" default:"1" range:"1..1024" placeholder:"N" help:"Number of workers; beside prefill workers, of those that decode."`
	Prefills    int     `name:"num-prefill-workers" env:"DYN_NUM_PREFILL_WORKERS" default:"0" range:"0..1024" placeholder:"N" help:"Number of workers that compute prompts for the others; with 0, each does whole requests."`
	PrefillArgs string  `name:"prefill-engine-args" env:"DYN_PREFILL_ENGINE_ARGS" placeholder:"JSON|FILE" help:"Engine arguments of prefill workers, over all others."`
	DecodeArgs  string  `name:"decode-engine-args" env:"DYN_DECODE_ENGINE_ARGS" placeholder:"JSON|FILE" help:"Engine arguments of decode workers, over all others."`
	TokenBytes  int     `name:"kv-bytes-per-token" env:"DYN_KV_BYTES_PER_TOKEN" default:"131072" range:"0.." placeholder:"BYTES" help:"What a token takes on the way from a prefill worker to a decode worker, and between tiers."`
	Bandwidth   float64 `name:"kv-transfer-bandwidth" env:"DYN_KV_TRANSFER_BANDWIDTH" default:"64" range:"0.." placeholder:"GB/S" help:"How fast that way is; 0 takes no time."`
	Concurrency int     `name:"replay-concurrency" env:"DYN_REPLAY_CONCURRENCY" default:"0" range:"0.." placeholder:"N" help:"Keep so many requests running, whenever they came; 0 lets each come at its time."`
	GPUs        int     `name:"gpus-per-worker" env:"DYN_GPUS_PER_WORKER" default:"1" range:"1..1024" placeholder:"N" help:"GPUs that a worker is taken to have, for the report."`
	PrefillGPUs int     `name:"gpus-per-prefill-worker" env:"DYN_GPUS_PER_PREFILL_WORKER" default:"1" range:"1..1024" placeholder:"N" help:"The same of a prefill worker."`
	Forecast    bool    `name:"forecast-output" env:"DYN_FORECAST_OUTPUT" negatable:"" help:"Tell the router how long each answer will be."`
}

type outcomeSettings struct {
	JSON       *string       `name:"report-json" env:"DYN_REPORT_JSON" placeholder:"FILE" help:"Write the report as JSON here; - is standard output, in place of the table. Otherwise dynago_replay_report_ and the time."`
	PerRequest string        `name:"per-request-jsonl" env:"DYN_PER_REQUEST_JSONL" placeholder:"FILE" help:"Write a line for each request here."`
	TTFT       time.Duration `name:"sla-ttft-ms" env:"DYN_SLA_TTFT_MS" default:"0s" unit:"ms" placeholder:"TIME" help:"Longest time to the first token of a good request; 0 is any."`
	ITL        time.Duration `name:"sla-itl-ms" env:"DYN_SLA_ITL_MS" default:"0s" unit:"ms" placeholder:"TIME" help:"Longest mean time between its tokens."`
	E2E        time.Duration `name:"sla-e2e-ms" env:"DYN_SLA_E2E_MS" default:"0s" unit:"ms" placeholder:"TIME" help:"Longest time to its last token."`
}

// Run replays requests in virtual time and reports how they fared.
func (c *replayCommand) Run(to outlet, parsed *config.Parsed) error {
	logs, err := newLogs(c.Observe, to.err)
	if err != nil {
		return err
	}
	if err := c.File.dump(parsed); err != nil {
		return err
	}
	if c.Replay.Mode == "online" {
		return errors.New("--replay-mode: online: this version replays in virtual time; for live workers, start \"dynago serve\" and send it the requests")
	}
	c.Made.tell(c.Traces, c.Trace.Format, parsed, logs.target("replay"))
	work, err := c.workload(to)
	if err != nil {
		return err
	}
	if work.Skipped > 0 {
		logs.target("replay").Warn("requests are left out, because no hashes of their prompts were recorded", "requests", work.Skipped)
	}
	simulation := sim.Config{
		Workers: c.Replay.Workers, Concurrency: c.Replay.Concurrency, Forecast: c.Replay.Forecast,
		Migrations: c.Router.MigrationLimit,
		Clock:      new(sim.Clock),
		Goodput:    sim.Goodput{TTFT: c.Outcome.TTFT, ITL: c.Outcome.ITL, E2E: c.Outcome.E2E},
	}
	if err := c.engines(&simulation, work.BlockSize); err != nil {
		return err
	}
	if simulation.Router, err = c.Router.config(logs.target("router")); err != nil {
		return err
	}
	simulation.Router.Seed = cmp.Or(simulation.Router.Seed, 1) // twice gives the same
	policies, err := c.Router.Policy.apply(&simulation.Router, simulation.Clock.Now)
	if err != nil {
		return err
	}
	defer policies.close()
	records, err := newRecords(c.Outcome.PerRequest)
	if err != nil {
		return err
	}
	simulation.Record = records.add
	began := time.Now()
	report, err := sim.Run(simulation, work.Requests)
	if err = errors.Join(err, records.close()); err != nil {
		return err
	}
	report.WallTime = time.Since(began)
	return c.Outcome.write(to.out, report, began)
}

// engines says what the workers are. Where nothing else is said, their blocks are as
// those of the engines that the trace was recorded of, so that as much of a prompt is
// found; 0 is not known.
func (c *replayCommand) engines(s *sim.Config, recorded int) error {
	base := mock.DefaultArgs()
	base.BlockSize = cmp.Or(recorded, base.BlockSize)
	args, err := c.Engines.over(base)
	if err != nil {
		return err
	}
	r := &c.Replay
	if r.Prefills == 0 && r.PrefillArgs+r.DecodeArgs != "" {
		return errors.New("--prefill-engine-args and --decode-engine-args want --num-prefill-workers; the arguments of workers that do whole requests are --extra-engine-args")
	}
	if s.Engine, err = overObject(args, "--decode-engine-args", r.DecodeArgs); err != nil {
		return err
	}
	if s.PrefillEngine, err = overObject(args, "--prefill-engine-args", r.PrefillArgs); err != nil {
		return err
	}
	for _, engine := range []*mock.Args{&s.Engine, &s.PrefillEngine} {
		engine.KVBytesPerToken = cmp.Or(engine.KVBytesPerToken, r.TokenBytes)
	}
	s.GPUs, s.PrefillGPUs = r.GPUs, r.PrefillGPUs
	s.Prefills, s.Transfer = r.Prefills, sim.Transfer{BytesPerToken: r.TokenBytes, Bandwidth: r.Bandwidth * 1e9}
	return nil
}

// workload reads the requests, or makes them up.
func (c *replayCommand) workload(to outlet) (trace.Workload, error) {
	made := c.Made.Input != nil || c.Made.Output != nil || c.Made.Count != nil || c.Made.Agents > 0
	var w trace.Workload
	var err error
	switch {
	case made && len(c.Traces) > 0:
		return w, errors.New("requests are either read from a trace or made up by --input-tokens, --output-tokens and --request-count, or by --agents, not both")
	case made:
		w.Requests, err = c.Made.requests(value(c.Trace.BlockSize))
	case len(c.Traces) == 0:
		return w, errors.New("nothing to replay: name a trace, or make requests up by --input-tokens, --output-tokens and --request-count, or by --agents")
	default:
		w, err = c.recorded(to)
	}
	if err != nil {
		return w, err
	}
	if n := c.Trace.First; n > 0 && n < len(w.Requests) {
		if w.Requests, err = first(w.Requests, n); err != nil {
			return w, err
		}
	}
	trace.Normalise(w.Requests)
	if c.Trace.Jitter {
		trace.Jitter(w.Requests, rand.New(rand.NewPCG(c.Made.Seed, 0)))
	}
	trace.Speed(w.Requests, c.Trace.Speedup)
	return w, nil
}

// tell warns of settings that mean nothing to the requests at hand.
func (s *syntheticSettings) tell(traces []string, format string, parsed *config.Parsed, log *slog.Logger) {
	f, _ := trace.ParseFormat(format)
	warnUnheeded(parsed, log, func(set config.Setting) string {
		prefix := set.Name == "shared-prefix-ratio" || set.Name == "num-prefix-groups"
		switch made := set.Group == "Made-up requests" && set.Name != "arrival-seed"; {
		case len(traces) > 0 && made && !(prefix && f == trace.AppliedComputeAgentic):
			return "requests are read from a trace"
		case len(traces) == 0 && (set.Name == "trace-format" || set.Name == "trace-strict"):
			return "requests are made up"
		case s.Agents > 0 && made && !strings.HasPrefix(set.Name, "agents"):
			return "agents are made up"
		case s.Agents == 0 && strings.HasPrefix(set.Name, "agents-"):
			return "no agents are made up"
		}
		return ""
	})
}

// first returns the first n requests. They may wait for none behind them.
func first(work []trace.Request, n int) ([]trace.Request, error) {
	if err := trace.Check(work[:n]); err != nil {
		return nil, fmt.Errorf("--first-requests: %d: %w", n, err)
	}
	return work[:n], nil
}

// recorded reads the files of a trace.
func (c *replayCommand) recorded(to outlet) (w trace.Workload, err error) {
	format, err := trace.ParseFormat(c.Trace.Format)
	if err != nil {
		return w, fmt.Errorf("--trace-format: %w", err)
	}
	if format == trace.AppliedComputeAgentic && c.Replay.Concurrency == 0 {
		return w, fmt.Errorf("--trace-format: %s: such a trace does not tell when sessions begin; say with --replay-concurrency how many requests run at a time", c.Trace.Format)
	}
	paths := c.Traces
	if format == trace.Dynamo {
		if paths, err = find(to, paths); err != nil {
			return w, err
		}
	}
	sources, done, err := open(to, paths)
	if err != nil {
		return w, err
	}
	defer done()
	o := trace.ReadOptions{BlockSize: value(c.Trace.BlockSize), Strict: c.Trace.Strict, Seed: c.Made.Seed}
	if format == trace.AppliedComputeAgentic {
		o.Prefix = trace.Prefix{Ratio: c.Made.SharedRatio, Groups: c.Made.Groups}
	}
	return trace.ReadAll(format, o, sources...)
}

// requests makes requests up.
func (s *syntheticSettings) requests(blockSize int) ([]trace.Request, error) {
	given := 0
	for _, n := range []*int{s.Input, s.Output, s.Count} {
		if n != nil {
			given++
		}
	}
	switch {
	case s.Agents > 0 && given > 0:
		return nil, errors.New("--agents makes up requests of its own; it goes without --input-tokens, --output-tokens and --request-count")
	case s.Agents > 0:
		agents := agenttrace.Default()
		agents.Leads, agents.Rate, agents.Seed = s.Agents, s.AgentRate, s.Seed
		agents.Pinned, agents.PinTTL, agents.Tell, agents.Foresee = s.Pinned, s.PinTTL, s.Tell, s.Foresee
		return collect(agents.Requests())
	case given < 3:
		return nil, errors.New("made-up requests want all three of --input-tokens, --output-tokens and --request-count")
	}
	w := trace.Synthetic{
		Sessions: *s.Count, Turns: s.Turns,
		Input: trace.Length{Mean: *s.Input}, Output: trace.Length{Mean: *s.Output},
		Prefix: trace.Prefix{Ratio: s.SharedRatio, Groups: s.Groups}, BlockSize: blockSize,
		Pause: s.Pause, Accumulate: s.Accumulate, Seed: s.Seed,
	}
	if s.Interval > 0 {
		w.Arrival, w.Rate = trace.Arrival(s.Arrival), 1/s.Interval.Seconds()
	}
	return collect(w.Requests())
}

func collect(requests func(func(trace.Request, error) bool)) ([]trace.Request, error) {
	var work []trace.Request
	for r, err := range requests {
		if err != nil {
			return nil, err
		}
		work = append(work, r)
	}
	return work, nil
}

// write writes the report where it is wanted.
func (s *outcomeSettings) write(out io.Writer, report *sim.Report, began time.Time) error {
	text, err := report.JSON()
	if err != nil {
		return fmt.Errorf("--report-json: %w", err)
	}
	name := cmp.Or(value(s.JSON), began.Format("dynago_replay_report_20060102_150405.json"))
	if name == "-" {
		_, err := out.Write(text)
		return err
	}
	if err := report.WriteTable(out); err != nil {
		return err
	}
	if err := os.WriteFile(name, text, 0o666); err != nil {
		return fmt.Errorf("--report-json: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nReport: %s\n", name)
	return err
}

// records are the lines about single requests. The zero value writes none.
type records struct {
	file *os.File
	out  *bufio.Writer
	err  error // the first one
}

func newRecords(name string) (*records, error) {
	if name == "" {
		return new(records), nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("--per-request-jsonl: %w", err)
	}
	return &records{file: f, out: bufio.NewWriter(f)}, nil
}

func (r *records) add(record *sim.Record) {
	if r.file == nil || r.err != nil {
		return
	}
	if r.err = json.MarshalWrite(r.out, record); r.err == nil {
		r.err = r.out.WriteByte('\n')
	}
}

func (r *records) close() error {
	if r.file == nil {
		return nil
	}
	if err := errors.Join(r.err, r.out.Flush(), r.file.Close()); err != nil {
		return fmt.Errorf("--per-request-jsonl: %w", err)
	}
	return nil
}
