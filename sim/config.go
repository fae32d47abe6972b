package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim/trace"
)

// Config says what a simulation consists of.
type Config struct {
	// Model is what the workers serve; "" is "sim".
	Model string
	// Workers is how many there are at the start; 0 is 1.
	Workers int
	// Engine says what each of them is. The zero value stands for
	// [mock.DefaultArgs].
	Engine mock.Args
	// Prefills is how many workers compute prompts for the others, which then only
	// decode; each of them is a PrefillEngine, which the zero value makes like
	// Engine. A prompt's blocks take the time of Transfer from one to the other.
	Prefills      int
	PrefillEngine mock.Args
	Transfer      Transfer
	// PlainEngines know no priorities: what has come to one waits there in the order
	// in which it came. Nor do they know of anything that is asked of caches.
	PlainEngines bool
	// GPUs is how many each worker has, and PrefillGPUs each prefill worker; 0 is 1.
	// They are for the report alone.
	GPUs, PrefillGPUs int
	// Router makes the decisions. Now is set by the simulation; Seed 0 is 1, since
	// a simulation is to be repeatable.
	Router router.Config
	// Clock is the time of the simulation, for those who need it before there is
	// one, such as a policy; nil makes one.
	Clock *Clock
	// Concurrency, if not 0, is how many requests run at a time: the next one comes
	// when one ends, and the times at which requests would come by themselves do
	// not count. What follows a request still waits for its delay, and goes before
	// requests that follow nothing.
	Concurrency int
	// Forecast tells the router how long each answer will be.
	Forecast bool
	// Expect, if not nil, is asked as a request comes to its first place how many tokens
	// its answer should have and in what time the next request of its session should
	// follow; 0 is not known. What is said so holds instead of Forecast, and of what the
	// request says of the next one.
	Expect func(*trace.Request) (tokens uint32, next time.Duration)
	// Migrations is how often a request whose worker is lost goes on elsewhere;
	// after that it has failed.
	Migrations int
	// Changes are what happens to the workers, in any order.
	Changes []Change
	// Goodput is what a request must keep to count as a good one.
	Goodput Goodput
	// Horizon ends the simulation, whatever still runs; 0 is never.
	Horizon time.Duration
	// Record, if not nil, is told of each request as it ends.
	Record func(*Record)
}

// Transfer says how long blocks take from a prefill worker to a decode worker. The
// zero value is no time.
type Transfer struct {
	BytesPerToken int
	Bandwidth     float64 // bytes a second; 0 is without bound
}

// takes returns how long so many tokens take.
func (t Transfer) takes(tokens int) time.Duration {
	if t.Bandwidth == 0 {
		return 0
	}
	return time.Duration(min(float64(tokens)*float64(t.BytesPerToken)/t.Bandwidth*float64(time.Second), float64(2*longest)))
}

// Change is something that happens to the workers at some time.
type Change struct {
	At time.Duration
	Do func(*Simulation) error
}

func (c *Config) check() error {
	switch {
	case c.Concurrency < 0, c.Migrations < 0, c.Horizon < 0, c.Prefills < 0, c.GPUs < 0, c.PrefillGPUs < 0:
		return errors.New("concurrency, migrations, horizon and the numbers of prefill workers and GPUs must not be negative")
	case c.Transfer.BytesPerToken < 0, !(c.Transfer.Bandwidth >= 0):
		return errors.New("the bytes of a transfer and its bandwidth must not be negative")
	case c.Prefills > 0 && c.PrefillEngine.BlockSize != c.Engine.BlockSize:
		return fmt.Errorf("prefill workers have blocks of %d tokens and decode workers of %d: want the same", c.PrefillEngine.BlockSize, c.Engine.BlockSize)
	}
	return nil
}

// role returns what workers do that compute answers.
func (c *Config) role() engine.Role {
	if c.Prefills > 0 {
		return engine.Decode
	}
	return engine.Aggregated
}
