package thompson

import (
	"fmt"
	"math"
	"time"

	"github.com/dynago/dynago/router"
)

// Config holds the parameters of a policy; [Default] has those that are used if
// nobody says otherwise. Names in JSON are those of the parameters in a policy
// file; those of durations stand in brackets.
type Config struct {
	// What it is worth to stay on the worker of the session's last request: a
	// base, something for each request still expected, and something for the pace
	// of the session.
	Affinity      float64 `json:"affinity"`
	AffinityReuse float64 `json:"affinity_reuse"`
	AffinityPace  float64 `json:"affinity_pace"`
	// What it costs to leave it.
	Switch      float64 `json:"switch"`
	SwitchReuse float64 `json:"switch_reuse"`
	SwitchPace  float64 `json:"switch_pace"`
	// StickyFloor is the least that a worker's load leaves of its value for the
	// sessions that are there.
	StickyFloor float64 `json:"sticky_floor"`

	// BetaWeight is what the belief on the whole counts beside the linear model.
	BetaWeight float64 `json:"beta_weight"`
	// Temperature of the softmax for a request after which nothing more is
	// expected of its session. It falls with what is expected, between bounds.
	Temperature    float64 `json:"temperature"`
	MinTemperature float64 `json:"min_temperature"`
	MaxTemperature float64 `json:"max_temperature"`

	// What makes a worker busy: waiting requests, used blocks (0..1), work that
	// its sessions will still bring, and both of the former by the size of the
	// request.
	QueueWeight float64 `json:"queue_weight"`
	UsageWeight float64 `json:"usage_weight"`
	WorkWeight  float64 `json:"work_weight"`
	UsageSize   float64 `json:"usage_size"`
	QueueSize   float64 `json:"queue_size"`

	PrefillScale  float64 `json:"prefill_scale"` // tokens to compute that are one unit
	PrefillWeight float64 `json:"prefill_weight"`

	Ridge       float64 `json:"ridge"`       // how sure the beginning is
	Exploration float64 `json:"exploration"` // by which the deviation of samples is scaled
	Forget      float64 `json:"forget"`      // what is left of a lesson after the next one

	Timeout       time.Duration `json:"-"` // after which a decision counts as failed [timeout_seconds]
	SweepInterval time.Duration `json:"-"` // between looks for these [sweep_seconds]
	TimeoutReward float64       `json:"timeout_reward"`
	Smoothing     float64       `json:"smoothing"` // of baselines: what the newest counts

	// MostReuse bounds how many more requests are expected of a session.
	MostReuse int `json:"most_reuse"`
	// SessionIdle is when a session without requests counts as ended
	// [session_idle_seconds].
	SessionIdle time.Duration `json:"-"`

	// Literal follows the rules that this policy was modelled on to the letter.
	// They hardly learn: a worker is compared with its own past, so that one which
	// was always slow does not show; the beta belief never forgets, so that one
	// which was slow for long is for as long again; an arm that is avoided does not
	// grow less sure, so that nobody sees it recover; and the softmax does not know
	// how far values lie apart, so that under load, which divides them all, every
	// choice becomes a toss. Otherwise workers are compared with the fleet, beliefs
	// fade with the lessons of the others, and temperature is in standard
	// deviations of the values at hand.
	Literal bool `json:"literal"`

	Seed uint64           `json:"-"` // 0: a random one
	Now  func() time.Time `json:"-"` // nil: time.Now
}

// Default returns the default parameters.
func Default() Config {
	return Config{
		Affinity: 0.30, AffinityReuse: 0.08, AffinityPace: 0.20,
		Switch: 0.10, SwitchReuse: 0.04, SwitchPace: 0.03,
		StickyFloor: 0.01, BetaWeight: 0.10,
		Temperature: 1, MinTemperature: 0.15, MaxTemperature: 2,
		QueueWeight: 1.5, UsageWeight: 1, WorkWeight: 0.45, UsageSize: 0.40, QueueSize: 0.20,
		PrefillScale: 1024, PrefillWeight: 1,
		Ridge: 1, Exploration: 0.25, Forget: 0.995,
		Timeout: 120 * time.Second, SweepInterval: 5 * time.Second, Smoothing: 0.2,
		MostReuse: 16, SessionIdle: 10 * time.Minute,
	}
}

// Validate returns an error that names the parameter at fault, its value, and
// what would be right.
func (c *Config) Validate() error {
	for _, p := range []struct {
		name  string
		value float64
		most  float64
		above bool // 0 will not do
	}{
		{name: "affinity", value: c.Affinity},
		{name: "affinity_reuse", value: c.AffinityReuse},
		{name: "affinity_pace", value: c.AffinityPace},
		{name: "switch", value: c.Switch},
		{name: "switch_reuse", value: c.SwitchReuse},
		{name: "switch_pace", value: c.SwitchPace},
		{name: "sticky_floor", value: c.StickyFloor, most: 1},
		{name: "beta_weight", value: c.BetaWeight},
		{name: "temperature", value: c.Temperature},
		{name: "min_temperature", value: c.MinTemperature, above: true},
		{name: "max_temperature", value: c.MaxTemperature, above: true},
		{name: "queue_weight", value: c.QueueWeight},
		{name: "usage_weight", value: c.UsageWeight},
		{name: "work_weight", value: c.WorkWeight},
		{name: "usage_size", value: c.UsageSize},
		{name: "queue_size", value: c.QueueSize},
		{name: "prefill_scale", value: c.PrefillScale, above: true},
		{name: "prefill_weight", value: c.PrefillWeight},
		{name: "ridge", value: c.Ridge, above: true},
		{name: "exploration", value: c.Exploration},
		{name: "forget", value: c.Forget, most: 1, above: true},
		{name: "timeout_seconds", value: c.Timeout.Seconds(), above: true},
		{name: "sweep_seconds", value: c.SweepInterval.Seconds()},
		{name: "timeout_reward", value: c.TimeoutReward, most: 1},
		{name: "smoothing", value: c.Smoothing, most: 1, above: true},
		{name: "most_reuse", value: float64(c.MostReuse), above: true},
		{name: "session_idle_seconds", value: c.SessionIdle.Seconds(), above: true},
	} {
		most := p.most
		if most == 0 {
			most = 1e6
		}
		if p.value >= 0 && p.value <= most && (p.value > 0 || !p.above) {
			continue
		}
		from := "from 0"
		if p.above {
			from = "above 0, and"
		}
		return fmt.Errorf("thompson: %s: got %v, want a number %s up to %v", p.name, p.value, from, most)
	}
	if c.MinTemperature > c.MaxTemperature {
		return fmt.Errorf("thompson: min_temperature: got %v, want at most max_temperature, which is %v", c.MinTemperature, c.MaxTemperature)
	}
	return nil
}

// forgetting returns what is left of a lesson after so many further ones.
func (c *Config) forgetting(lessons float64) float64 { return math.Pow(c.Forget, lessons) }

// Construct makes a policy for a [router.Registry].
func Construct(r *router.Recipe) (router.Policy, error) {
	c := Default()
	parameters := struct {
		*Config
		Timeout float64 `json:"timeout_seconds"`
		Sweep   float64 `json:"sweep_seconds"`
		Idle    float64 `json:"session_idle_seconds"`
	}{&c, c.Timeout.Seconds(), c.SweepInterval.Seconds(), c.SessionIdle.Seconds()}
	if err := r.Read(&parameters); err != nil {
		return nil, err
	}
	c.Timeout, c.SweepInterval, c.SessionIdle = seconds(parameters.Timeout), seconds(parameters.Sweep), seconds(parameters.Idle)
	c.Seed, c.Now = r.Seed, r.Now
	p, err := New(c)
	if err != nil { // not a nil *Policy within an interface
		return nil, err
	}
	return p, nil
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }
