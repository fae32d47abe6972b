package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/fleet/file"
	"github.com/dynago/dynago/internal/scrape"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/meter"
	"github.com/dynago/dynago/router/peers"
)

// system is everything behind the HTTP server: the model, a fleet of workers,
// the router, and the pipeline that joins them.
type system struct {
	*pipeline.Pipeline
	files  *modelFiles
	args   mock.Args
	fleet  *fleet.Fleet
	router *router.Router
	log    *slog.Logger
	// policies pick workers instead of the router's mode, if they are chosen.
	policies *policies
	meter    *meter.Meter
	moves    *moveMetrics
	delay    *scrape.Delay
	journal  *router.Journal // or nil
	shared   *sharedCache    // or nil
	peers    *peers.Peers    // or nil
	// specs are the engines that flags name, file lists others, and served are the
	// models of all; without either the workers are mock engines, of files.
	specs    []*attach.Spec
	file     *file.Source // or nil
	served   *served
	roster   *fleet.Roster
	settings *settings
	// tiny is the model that the engines of this process compute; nil: they imitate.
	tiny *tinyModel
	// newEngine makes one more engine of this process, and beside is what these have
	// beside them.
	newEngine func(name string) (engine.Engine, error)
	beside    io.Closer
}

// newSystem builds a system and lets its workers join.
func newSystem(s *settings, logs *logSet) (*system, error) {
	sys := &system{log: logs.target("fleet"), settings: s}
	var err error
	if sys.specs, err = s.Attach.specs(s); err != nil {
		return nil, err
	}
	sys.file = s.source()
	load, err := sys.models(s, logs.target("model"))
	if err != nil {
		return nil, err
	}
	if sys.args, err = sys.engineArgs(s); err != nil {
		return nil, err
	}
	config, err := s.Router.config(logs.target("router"))
	if err != nil {
		return nil, err
	}
	if sys.policies, err = s.Router.Policy.apply(&config, nil); err != nil {
		return nil, err
	}
	if sys.shared, err = s.Router.Shared.open(&config, logs.target("router")); err != nil {
		return nil, err
	}
	if sys.files != nil {
		s.oneLegged(logs.target("router"))
	}
	sys.meter, sys.moves, sys.delay = meter.New(), newMoveMetrics(s.Observe.MetricsPrefix), scrape.NewDelay()
	watchers := router.Observers{sys.meter}
	if n := s.Router.DecisionLog; n > 0 {
		sys.journal = router.NewJournal(n, s.Router.DecisionRate, nil)
		watchers = append(watchers, sys.journal)
	}
	config.Observer = watchers
	inhibit := s.Router.InhibitedDuration
	if inhibit == 0 {
		inhibit = -1
	}
	sys.fleet = fleet.New(fleet.Config{Logger: sys.log, Inhibit: inhibit})
	if sys.router, err = router.New(config, sys.fleet); err != nil {
		return nil, err
	}
	sys.meter.Watch(sys.router)
	if sys.peers, err = s.Router.Peers.open(sys, logs.target("router")); err != nil {
		return nil, err
	}
	limits := pipeline.Limits{FirstItem: s.Requests.FirstItemTimeout, Inactivity: s.Requests.StreamTimeout}
	sys.Pipeline = pipeline.New(pipeline.Config{
		Fleet: sys.fleet, Router: sys.router, Load: load,
		KeepEntities: !s.Model.Unescape,
		Tags:         pipeline.Tags{Use: s.Model.StructuralTag, Always: s.Model.TagScope == "always", Schemas: s.Model.TagSchema == "strict"},
		Spans:        logs.engineSpans(""), RouterMode: s.Router.Mode,
		StrictSessions: s.Router.StrictSessions, Retention: s.Requests.Retention.config(s.Workers.AllowHardPins, s.Workers.SubagentEphemeral),
		Moved: sys.moves.moved, MigrationLimit: s.Router.MigrationLimit, MigrationMaxTokens: value(s.Router.MigrationMaxTokens),
		Limits: limits, Learn: s.Requests.Learn.config(), Logger: logs.target("pipeline"),
		DefaultThinking: s.Model.defaultThinking(), ExcludeTools: s.Requests.ExcludeTools,
		KeepPreamble: !s.Requests.StripPreamble, ImagePlaceholder: s.Requests.ImagePlaceholder, HistoryTokens: orNone(s.Observe.HistoryTokens),
	})
	sys.roster = sys.newRoster()
	if sys.files == nil {
		err = sys.attach()
	} else {
		err = sys.workers(s)
	}
	if err != nil {
		sys.close()
		return nil, err
	}
	return sys, nil
}

// close ends the engines, and then what they have beside them.
func (sys *system) close() {
	sys.fleet.Close() //nolint:errcheck // the engines' own complaints are logged
	if sys.beside != nil {
		if err := sys.beside.Close(); err != nil {
			sys.log.Warn("store of KV blocks did not close", "error", err)
		}
	}
}

// models makes ready for the models that engines serve, and finds the files of the
// one model of mock engines, and returns how the pipeline loads them.
func (sys *system) models(s *settings, log *slog.Logger) (load func(*engine.Card) (*prompt.Model, error), err error) {
	if sys.served, err = newServed(s.Model, log); err != nil {
		return nil, err
	}
	if len(sys.specs) > 0 || sys.file != nil {
		return sys.served.forCard, nil
	}
	if s.Model.Demo == demoTiny {
		if err := s.imitation(); err != nil {
			return nil, err
		}
		if sys.tiny, err = loadTiny(s.Model, log); err != nil {
			if s.Model.Path != "" {
				err = fmt.Errorf("%w; engines that serve it are attached with --engine, and --demo mock imitates one", err)
			}
			return nil, err
		}
		sys.files = sys.tiny.files
	} else if sys.files, err = newModelFiles(s.Model, log); err != nil {
		return nil, err
	}
	return func(card *engine.Card) (*prompt.Model, error) {
		if len(card.Files) > 0 && card.Files[0].URI == sys.files.uri {
			return sys.files.forCard(card)
		}
		return sys.served.forCard(card) // of a server that was added later
	}, nil
}

// workers adds the engines of this process.
func (sys *system) workers(s *settings) error {
	newEngine := sys.mocks
	if sys.tiny != nil {
		newEngine = sys.tinies
	}
	maker, err := newEngine(s)
	if err != nil {
		return err
	}
	return sys.addAll(&s.Workers, maker)
}

// maker makes an engine of this process by a name, of what the arguments say.
type maker func(name string, args mock.Args) (engine.Engine, error)

// mocks returns how engines are made that imitate.
func (sys *system) mocks(s *settings) (maker, error) {
	model, err := sys.files.load()
	if err != nil {
		return nil, err
	}
	script, err := s.Workers.script()
	if err != nil {
		return nil, err
	}
	// Where the cache is smaller than what the model was made for, the cache is
	// the limit.
	contextLength := min(model.ContextLength, sys.args.Capacity())
	files := sys.files.card()
	sign(files, model)
	shared := mock.NewShared(sys.args)
	return func(name string, args mock.Args) (engine.Engine, error) {
		return mock.New(mock.Config{
			Shared: shared,
			Model:  sys.files.name, Args: args, Seed: s.Workers.Seed, Script: script,
			Encode: encoder(model, sys.log), EOS: model.EOS, VocabSize: model.VocabularySize,
			ContextLength: uint32(contextLength), Files: files, Name: name,
		})
	}, nil
}

// encoder returns how a mock engine puts its texts into tokens. A text for which
// the model's own pattern takes time without end stays out of the answer.
func encoder(model *prompt.Model, log *slog.Logger) func(dst []uint32, text string) []uint32 {
	return func(dst []uint32, text string) []uint32 {
		ids, err := model.Encode(dst, text)
		if err != nil {
			log.Warn("a mock engine leaves a text out", "bytes", len(text), "error", err)
		}
		return ids
	}
}

func (sys *system) add(name string) error {
	e, err := sys.newEngine(name)
	if err != nil {
		return err
	}
	_, err = sys.fleet.Add(fleet.Entry{Name: name, Engine: e})
	return err
}

// churn lets the oldest worker die and a new one join, again and again until
// ctx ends. next is the number of the first new one.
func (sys *system) churn(ctx context.Context, every time.Duration, next int) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		workers := sys.fleet.Snapshot()
		if len(workers) == 0 {
			return
		}
		old := slices.MinFunc(workers, func(a, b *fleet.Worker) int { return compareNames(a.Name(), b.Name()) })
		name := fmt.Sprintf("mock-%d", next)
		sys.log.Info("worker is replaced", "worker", old.Name(), "by", name)
		sys.fleet.Remove(old.ID())
		if err := sys.add(name); err != nil && ctx.Err() == nil {
			sys.log.Error("worker did not join", "worker", name, "error", err)
		}
	}
}

// ready waits until all workers that are known have told what they are.
func (sys *system) ready(ctx context.Context) error {
	for {
		changed := sys.fleet.Changed()
		waiting := false
		for _, w := range sys.fleet.Snapshot() {
			waiting = waiting || w.Status().State == engine.Loading
		}
		if !waiting {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// engineArgs returns what the workers of the system are.
func (sys *system) engineArgs(s *settings) (mock.Args, error) {
	if sys.tiny != nil {
		return sys.tiny.args(&s.Workers.engineSettings)
	}
	return s.Workers.engineArgs()
}

// engineArgs returns what engines are that imitate.
func (s *workerSettings) engineArgs() (mock.Args, error) {
	args := mock.DefaultArgs()
	// A conversation with the demo model is short; blocks as small as those of
	// most engines show what is cached of it.
	args.BlockSize = 16
	return s.over(args)
}

// over puts what the environment says of tiers over arguments, then flags, and then
// the object of arguments, which wins.
func (s *engineSettings) over(args mock.Args) (mock.Args, error) {
	sized, err := s.overAll(args)
	if err != nil {
		return args, err
	}
	// How long a block is, by which sizes are told, is in the flags.
	told := sized
	if err := told.Environment(os.LookupEnv); err != nil {
		return args, err
	}
	if told == sized {
		return sized, nil
	}
	args.BlockSize, args.KVBytesPerToken = sized.BlockSize, sized.KVBytesPerToken
	if err := args.Environment(os.LookupEnv); err != nil {
		return args, err
	}
	return s.overAll(args)
}

func (s *engineSettings) overAll(args mock.Args) (mock.Args, error) {
	override(&args.EngineType, s.EngineType)
	override(&args.BlockSize, s.BlockSize)
	override(&args.NumGPUBlocks, s.NumBlocks)
	override(&args.MaxNumSeqs, s.MaxSeqs)
	override(&args.MaxNumBatchedTokens, s.MaxBatchedTokens)
	override(&args.MaxModelLen, s.MaxModelLen)
	override(&args.EnablePrefixCaching, s.PrefixCaching)
	override(&args.EnableChunkedPrefill, s.ChunkedPrefill)
	override(&args.PreemptionMode, s.PreemptionMode)
	override(&args.SpeedupRatio, s.SpeedupRatio)
	override(&args.DecodeSpeedupRatio, s.DecodeSpeedupRatio)
	override(&args.DPSize, s.DPSize)
	s.mockTierSettings.over(&args.TierArgs)
	if s.StartupTime != nil {
		args.StartupTime = s.StartupTime.Seconds()
	}
	return overObject(args, "--extra-engine-args", s.ExtraArgs)
}

// overObject puts an object of engine arguments over others. The flag gives the
// object itself, or the file that holds it, or nothing.
func overObject(args mock.Args, flag, given string) (mock.Args, error) {
	if given == "" {
		return args, args.Validate()
	}
	text, name := []byte(given), ""
	if !strings.HasPrefix(strings.TrimSpace(given), "{") {
		var err error
		if text, err = os.ReadFile(given); err != nil {
			return args, fmt.Errorf("%s: %w", flag, err)
		}
		name = given + ": "
	}
	args, err := mergeArgs(args, text)
	if err != nil {
		return args, fmt.Errorf("%s: %s%w", flag, name, err)
	}
	return args, nil
}

// mergeArgs puts the members of a JSON object over arguments.
func mergeArgs(args mock.Args, object []byte) (mock.Args, error) {
	base, err := json.Marshal(args)
	if err != nil {
		return args, err
	}
	var members map[string]jsontext.Value
	for _, text := range [][]byte{base, object} {
		if err := json.Unmarshal(text, &members); err != nil {
			return args, fmt.Errorf("want a JSON object: %w", err)
		}
	}
	merged, err := json.Marshal(members)
	if err != nil {
		return args, err
	}
	return mock.ParseArgs(merged)
}

func (s *workerSettings) script() (*mock.Script, error) {
	if s.Script == "" {
		return nil, nil
	}
	f, err := os.Open(s.Script)
	if err != nil {
		return nil, fmt.Errorf("--mock-script: %w", err)
	}
	defer f.Close()
	script, err := mock.LoadScript(f)
	if err != nil {
		return nil, fmt.Errorf("--mock-script: %s: %w", s.Script, err)
	}
	return script, nil
}

// config turns the settings into a router's.
func (s *routerSettings) config(logger *slog.Logger) (router.Config, error) {
	mode, err := router.ParseMode(s.Mode)
	if err != nil {
		return router.Config{}, fmt.Errorf("--router-mode: %w", err)
	}
	tuning := router.DefaultTuning()
	tuning.OverlapScoreCredit = s.Credit
	tuning.OverlapScoreCreditDecay = s.CreditDecay
	tuning.DecodeActiveRequestWeight = s.RequestWeight
	tuning.HostCacheHitWeight, tuning.DiskCacheHitWeight = s.HostWeight, s.DiskWeight
	tuning.SharedCacheMultiplier = s.SharedMultiplier
	tuning.Temperature = s.Temperature
	tuning.TrackPrefillTokens, tuning.TrackActiveBlocks = s.TrackPrefill, s.TrackBlocks
	tuning.TrackOutputBlocks, tuning.AssumeKVReuse = s.TrackOutput, s.AssumeReuse
	tuning.IgnoreEvents, tuning.TTL = !s.KVEvents, s.TTL
	if s.PredictedTTL != nil {
		if !s.KVEvents {
			return router.Config{}, errors.New("--router-predicted-ttl-secs needs KV events; without them --router-ttl-secs says how long prompts count as cached")
		}
		tuning.PredictedTTL = *s.PredictedTTL
	}
	if s.SessionTTL != nil {
		router.Binding(&tuning)
	}
	if s.LoadAware {
		mode = router.KV
		router.LoadAware(&tuning)
	}
	if x := s.PrefillScale; x != nil {
		tuning.PrefillLoadScale = *x
	}
	if w := s.OverlapWeight; w != nil {
		tuning.PrefillLoadScale = *w
		if *w == 0 {
			tuning.OverlapScoreCredit = 0
		}
	}
	tracking, err := s.trackingKey()
	if err != nil {
		return router.Config{}, err
	}
	c := router.Config{
		Mode: mode, Seed: s.Seed, Tuning: &tuning, Tracking: tracking,
		MinInitialWorkers: s.MinInitialWorkers, AcceleratorRatio: s.AcceleratorRatio, Logger: logger,
		SessionTTL: value(s.SessionTTL), StrictSessions: s.StrictSessions,
		Thresholds: router.Thresholds{
			ActiveDecodeBlocks: s.BusyDecodeBlocks, ActivePrefillTokens: s.BusyPrefill, ActivePrefillTokensFrac: s.BusyPrefillFrac,
		},
	}
	if err := s.Waiting.apply(&c); err != nil {
		return c, err
	}
	if c.Conditional, err = s.Conditional.config(); err != nil {
		return c, err
	}
	if c.Conditional != nil && (c.Mode != router.KV || c.Tuning.IgnoreEvents) {
		return c, errors.New("--router-conditional-disagg goes by what is cached: want --router-mode kv and --router-kv-events")
	}
	if err := s.Past.check(c, os.LookupEnv, logger); err != nil {
		return c, err
	}
	if s.SessionTTL != nil && *s.SessionTTL == 0 {
		return c, errors.New("--router-session-affinity-ttl-secs: got 0, want 1 or more; leave it out to bind no session")
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("--%w", err)
	}
	return c, nil
}

func override[T any](field *T, with *T) {
	if with != nil {
		*field = *with
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// orNone makes of 0, which is the default elsewhere, what is none.
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// describe is one line about the workers.
func (sys *system) describe() string {
	if sys.files == nil {
		return sys.engines()
	}
	a, count := &sys.args, sys.count()
	ranks := ""
	if a.DPSize > 1 {
		ranks = fmt.Sprintf(" on each of %d ranks", a.DPSize)
	}
	plural := strings.Repeat("s", min(1, count-1))
	below := ""
	for tier, blocks := range a.Tiers() {
		if tier := kv.Tier(tier); blocks > 0 && tier > kv.TierDevice {
			below += fmt.Sprintf(", %d on tier %s", blocks, tier)
		}
	}
	what := fmt.Sprintf("mock engine%s (%s)", plural, a.EngineType)
	if sys.tiny != nil {
		what = fmt.Sprintf("tiny engine%s (%s)", plural, sys.tiny.describe())
	}
	return fmt.Sprintf("%d %s, %d KV blocks of %d tokens%s%s", count, what, a.NumGPUBlocks, a.BlockSize, ranks, below)
}
