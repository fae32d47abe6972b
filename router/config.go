package router

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// Mode names a way of picking a worker.
type Mode string

// The modes.
const (
	KV          Mode = "kv"           // least cost, which counts what is cached and what is going on
	RoundRobin  Mode = "round-robin"  // the one whose turn was longest ago
	Random      Mode = "random"       // any
	PowerOfTwo  Mode = "power-of-two" // of two at random, the one with fewer requests
	LeastLoaded Mode = "least-loaded" // fewest requests
	Direct      Mode = "direct"       // the one that the request names
	// DeviceAware is least-loaded among workers of one kind; those that run on
	// processors alone get fewer requests, by [Config.AcceleratorRatio].
	DeviceAware Mode = "device-aware-weighted"
)

// Modes are all modes, the default first.
var Modes = []Mode{KV, RoundRobin, Random, PowerOfTwo, LeastLoaded, DeviceAware, Direct}

// ParseMode reads the name of a mode. It takes the names that scripts of all
// ages use: an underscore is a hyphen, and the empty string is [KV].
func ParseMode(s string) (Mode, error) {
	name := Mode(strings.ReplaceAll(s, "_", "-"))
	switch name {
	case "", "k-v", "kv-router":
		return KV, nil
	case "power-of-two-choices":
		return PowerOfTwo, nil
	}
	if slices.Contains(Modes, name) {
		return name, nil
	}
	names := make([]string, len(Modes))
	for i, m := range Modes {
		names[i] = string(m)
	}
	return "", fmt.Errorf("unknown router mode %q: want one of %s", s, strings.Join(names, ", "))
}

// Config says how a router behaves. The zero value is mode [KV] with
// [DefaultTuning].
type Config struct {
	Mode Mode
	// Policy, if set, picks instead of Mode. Unless it is [Quick], it is asked
	// without any lock held, possibly for several requests at once.
	Policy Policy
	// AcceleratorRatio is how many requests a worker with an accelerator takes in
	// mode [DeviceAware] for each on one without; 0 is [DefaultAcceleratorRatio].
	AcceleratorRatio int
	// Seed makes random choices repeatable; 0 takes a random one.
	Seed uint64
	// Tuning is nil for [DefaultTuning], as [Binding] has it if sessions are bound.
	Tuning *Tuning
	// MinInitialWorkers keeps all requests waiting for a retry until so many
	// workers have been ready once.
	MinInitialWorkers int
	// Tracking, if set, keeps the names secret by which blocks in use are
	// counted.
	Tracking *kv.TrackingKey
	// Shared, if set, is asked for each prompt without a namespace, unless
	// [Tuning.SharedCacheMultiplier] is 0.
	Shared SharedCache
	// SessionTTL is how long a session without requests stays bound to its worker of
	// which its client says nothing; 0 binds only those of which it does, see
	// [SessionControl]. StrictSessions refuses requests that do not fit what their
	// session is known to be, or for whose session there is no room, instead of
	// serving them all the same.
	SessionTTL     time.Duration
	StrictSessions bool
	// Thresholds hold for models that have none of their own; see
	// [Router.SetThresholds].
	Thresholds Thresholds
	// Conditional, if set, lets decode workers compute short prompts themselves.
	Conditional *Conditional
	// PrefillModel, if set, predicts how long prompts are computed.
	PrefillModel PrefillModel
	// QueueThreshold lets requests wait while all workers that may serve them have
	// more prompt tokens to compute than this many times what they compute in one
	// step, and QueueOrder says who goes first then. Nil lets nobody wait. A
	// profile of PolicyFile takes the place of both.
	QueueThreshold *float64
	QueueOrder     QueueOrder // "" is [FCFS]
	PolicyFile     *PolicyFile
	// QueueTimeout ends the wait of a request, with [engine.ErrQueueTimeout]; 0
	// never does. [Router.Tick] keeps it.
	QueueTimeout time.Duration
	// Expiry is how long a booking of which nothing is heard counts; 0 is
	// [DefaultExpiry]. Output is a sign of life.
	Expiry time.Duration
	// MostBooked is how many requests may be booked by their ids; 0 is
	// [DefaultMostBooked].
	MostBooked int
	// Observer, if set, is told of every decision and of every end.
	Observer Observer
	Logger   *slog.Logger // nil discards
	// Now tells the time; nil is [time.Now]. What runs in virtual time sets it.
	Now func() time.Time
}

// DefaultAcceleratorRatio is how much more an accelerator does than a processor,
// where nothing else is said.
const DefaultAcceleratorRatio = 8

// DefaultExpiry is how long a booking counts of which nothing is heard.
const DefaultExpiry = 300 * time.Second

// Tuning is what the cost of a worker depends on. Names in brackets are the
// flags that set them.
type Tuning struct {
	// OverlapScoreCredit is what one cached block saves, in blocks of prefill
	// [router-kv-overlap-score-credit].
	OverlapScoreCredit float64
	// OverlapScoreCreditDecay lowers the credit of workers with more outstanding
	// prefill than others; 0 never does [router-kv-overlap-score-credit-decay].
	OverlapScoreCreditDecay float64
	// PrefillLoadScale is what a block of prefill counts against one in use
	// [router-prefill-load-scale].
	PrefillLoadScale float64
	// DecodeActiveRequestWeight is what each running request costs, in blocks
	// [router-decode-active-request-weight].
	DecodeActiveRequestWeight float64
	// What a block on a lower tier counts against one on the device, 0..1
	// [router-host-cache-hit-weight, router-disk-cache-hit-weight].
	HostCacheHitWeight, DiskCacheHitWeight float64
	// SharedCacheMultiplier is the same for a store beside the workers
	// [shared-cache-multiplier].
	SharedCacheMultiplier float64
	// Temperature 0 takes the least cost; above, costlier workers get a share
	// [router-temperature].
	Temperature float64

	TrackPrefillTokens bool // count prompts not yet computed [router-track-prefill-tokens]
	TrackActiveBlocks  bool // count blocks in use [router-track-active-blocks]
	TrackOutputBlocks  bool // and those of the answers [router-track-output-blocks]
	// AssumeKVReuse lets requests with a common prefix share its blocks in the
	// books [router-assume-kv-reuse].
	AssumeKVReuse bool

	// IgnoreEvents takes what was routed to a worker for what it caches, also
	// where it would tell [no-router-kv-events].
	IgnoreEvents bool
	// TTL is how long a routed prompt counts as cached on workers that do not
	// tell [router-ttl-secs].
	TTL time.Duration
	// PredictedTTL, if not 0, is how long a routed prompt counts as cached on
	// workers that do tell, whatever they have told so far: requests of the same
	// moment then see each other [router-predicted-ttl-secs].
	PredictedTTL time.Duration
}

// DefaultTuning returns the parameters that are used if nobody says otherwise. The
// reference's PrefillLoadScale is 1; the README says why ours is not.
func DefaultTuning() Tuning {
	return Tuning{
		OverlapScoreCredit: 1, PrefillLoadScale: 4,
		HostCacheHitWeight: 0.75, DiskCacheHitWeight: 0.25,
		TrackPrefillTokens: true, TrackActiveBlocks: true, AssumeKVReuse: true,
		TTL: 120 * time.Second,
	}
}

// Binding changes a tuning for a router that binds sessions. What the first prompt
// of a session finds cached is saved once, and what goes on there is shared for
// long: with a larger scale most sessions would be bound where the first one was.
func Binding(t *Tuning) { t.PrefillLoadScale = 1 }

// LoadAware changes a tuning so that only load counts, and nothing that is
// cached [load-aware]. Blocks count alike then: what a large scale is for is to
// keep requests where they are cached.
func LoadAware(t *Tuning) {
	t.OverlapScoreCredit, t.PrefillLoadScale, t.SharedCacheMultiplier = 0, 1, 0
	t.IgnoreEvents, t.AssumeKVReuse = true, false
	t.TrackActiveBlocks, t.TrackPrefillTokens = true, true
	t.PredictedTTL = 0
}

// Validate returns an error that names the key at fault, its value, and what
// would be right.
func (c *Config) Validate() error {
	if c.Mode != "" && !slices.Contains(Modes, c.Mode) {
		_, err := ParseMode(string(c.Mode))
		return fmt.Errorf("router-mode: %w", err)
	}
	if c.MinInitialWorkers < 0 {
		return fmt.Errorf("router-min-initial-workers: got %d, want 0 or more", c.MinInitialWorkers)
	}
	if c.SessionTTL != 0 && (c.SessionTTL < time.Second || c.SessionTTL > mostSessionTTL) {
		return fmt.Errorf("router-session-affinity-ttl-secs: got %v, want 1s to %v", c.SessionTTL, mostSessionTTL)
	}
	if err := c.Thresholds.Validate(); err != nil {
		return err
	}
	if _, err := c.Conditional.with(c.QueueThreshold); err != nil {
		return fmt.Errorf("router-conditional-disagg-config: %w", err)
	}
	if t := c.QueueThreshold; t != nil {
		if err := (parameter{"router-queue-threshold", *t, math.MaxFloat64}).check(); err != nil {
			return err
		}
	}
	if _, err := ParseQueueOrder(string(c.QueueOrder)); err != nil {
		return fmt.Errorf("router-queue-policy: %w", err)
	}
	if c.QueueTimeout < 0 {
		return fmt.Errorf("router-queue-timeout: got %v, want 0 or more", c.QueueTimeout)
	}
	if c.MostBooked < 0 {
		return fmt.Errorf("max-reservations: got %d, want 1 or more", c.MostBooked)
	}
	if c.AcceleratorRatio < 0 {
		return fmt.Errorf("encoder-cuda-to-cpu-ratio: got %d, want 1 or more", c.AcceleratorRatio)
	}
	if c.Expiry < 0 {
		return fmt.Errorf("router-active-request-expiry-secs: got %v, want more than 0, or 0 for %v", c.Expiry.Seconds(), DefaultExpiry)
	}
	if c.Tuning == nil {
		return nil
	}
	t := c.Tuning
	for _, p := range []parameter{
		{"router-kv-overlap-score-credit", t.OverlapScoreCredit, math.MaxFloat64},
		{"router-kv-overlap-score-credit-decay", t.OverlapScoreCreditDecay, math.MaxFloat64},
		{"router-prefill-load-scale", t.PrefillLoadScale, math.MaxFloat64},
		{"router-decode-active-request-weight", t.DecodeActiveRequestWeight, math.MaxFloat64},
		{"router-host-cache-hit-weight", t.HostCacheHitWeight, 1},
		{"router-disk-cache-hit-weight", t.DiskCacheHitWeight, 1},
		{"shared-cache-multiplier", t.SharedCacheMultiplier, 1},
		{"router-temperature", t.Temperature, math.MaxFloat64},
	} {
		if err := p.check(); err != nil {
			return err
		}
	}
	if c.PrefillModel != nil && !t.TrackPrefillTokens {
		return fmt.Errorf("router-prefill-load-model: needs router-track-prefill-tokens")
	}
	if t.TrackOutputBlocks && !t.TrackActiveBlocks {
		return fmt.Errorf("router-track-output-blocks: needs router-track-active-blocks")
	}
	if t.PredictedTTL < 0 {
		return fmt.Errorf("router-predicted-ttl-secs: got %v, want 0 or more", t.PredictedTTL.Seconds())
	}
	if t.TTL <= 0 {
		return fmt.Errorf("router-ttl-secs: got %v, want more than 0", t.TTL.Seconds())
	}
	return nil
}

// parameter is a number with its name and upper bound.
type parameter struct {
	key   string
	value float64
	most  float64
}

func (p parameter) check() error {
	if p.value >= 0 && p.value <= p.most {
		return nil
	}
	if p.most == 1 {
		return fmt.Errorf("%s: got %v, want a number from 0 to 1", p.key, p.value)
	}
	return fmt.Errorf("%s: got %v, want a finite number, 0 or more", p.key, p.value)
}

// Overrides change the tuning for one request; nil fields leave it.
type Overrides struct {
	OverlapScoreCredit    *float64
	PrefillLoadScale      *float64
	OverlapScoreWeight    *float64 // old name of PrefillLoadScale, and wins; 0 sets the credit to 0 too
	Temperature           *float64
	SharedCacheMultiplier *float64
	AssumeKVReuse         *bool
	TrackPrefillTokens    *bool
}

// apply changes t, or returns an error of kind invalid_argument.
func (o *Overrides) apply(t *Tuning) error {
	if o == nil {
		return nil
	}
	for _, f := range []struct {
		name  string
		from  *float64
		to    *float64
		bound float64
	}{
		{"overlap_score_credit", o.OverlapScoreCredit, &t.OverlapScoreCredit, math.MaxFloat64},
		{"prefill_load_scale", o.PrefillLoadScale, &t.PrefillLoadScale, math.MaxFloat64},
		{"overlap_score_weight", o.OverlapScoreWeight, &t.PrefillLoadScale, math.MaxFloat64},
		{"router_temperature", o.Temperature, &t.Temperature, math.MaxFloat64},
		{"shared_cache_multiplier", o.SharedCacheMultiplier, &t.SharedCacheMultiplier, 1},
	} {
		if f.from == nil {
			continue
		}
		if err := (parameter{f.name, *f.from, f.bound}).check(); err != nil {
			return &engine.Error{Kind: engine.InvalidArgument, Message: err.Error(), Param: "router_config_override." + f.name}
		}
		*f.to = *f.from
	}
	if o.OverlapScoreWeight != nil && *o.OverlapScoreWeight == 0 {
		t.OverlapScoreCredit = 0
	}
	if o.AssumeKVReuse != nil {
		t.AssumeKVReuse = *o.AssumeKVReuse
	}
	if o.TrackPrefillTokens != nil {
		t.TrackPrefillTokens = *o.TrackPrefillTokens
	}
	return nil
}
