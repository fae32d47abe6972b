package trace

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Prefix says how much of their prompts requests share. The zero value is
// nothing.
type Prefix struct {
	// Ratio of the blocks of a prompt, 0 to 1, are those of its group, rounded to
	// whole blocks.
	Ratio float64
	// Groups is how many beginnings there are. A prompt has that of a random one.
	Groups int
}

func (p *Prefix) check() error {
	switch {
	case !(p.Ratio >= 0 && p.Ratio <= 1):
		return fmt.Errorf("shared prefix ratio: got %v, want 0 to 1", p.Ratio)
	case p.Groups < 0:
		return fmt.Errorf("prefix groups: got %d, want 0 or more", p.Groups)
	case p.Ratio > 0 && p.Groups == 0:
		return fmt.Errorf("prefix groups: got 0, want 1 or more for a shared prefix ratio of %v", p.Ratio)
	}
	return nil
}

// prompt returns a prompt of so many tokens for the n-th request.
func (p *Prefix) prompt(random *rand.Rand, blockSize, tokens, n int) Text {
	fresh := Piece{Stream: stream(prompts, uint64(n)), Len: uint32(tokens)}
	if p.Ratio == 0 {
		return Text{fresh}
	}
	group := uint64(random.IntN(p.Groups))
	blocks := float64((tokens + blockSize - 1) / blockSize)
	common := min(tokens, int(math.Round(blocks*p.Ratio))*blockSize)
	fresh.Len -= uint32(common)
	text := Text{{Stream: stream(shared, group), Len: uint32(common)}, fresh}
	return slices.DeleteFunc(text, func(p Piece) bool { return p.Len == 0 })
}

// Length is a number of tokens: Mean, or normally distributed around it where
// Deviation is not 0, and at least 1.
type Length struct {
	Mean      int
	Deviation float64
}

func (l Length) draw(random *rand.Rand) int {
	if l.Deviation == 0 {
		return max(l.Mean, 1)
	}
	return min(max(int(math.Round(float64(l.Mean)+l.Deviation*random.NormFloat64())), 1), maxTokens)
}

// Arrival says how first requests of sessions follow each other.
type Arrival string

// The ways to arrive.
const (
	Burst    Arrival = "burst"    // all at 0
	Constant Arrival = "constant" // in equal steps
	Poisson  Arrival = "poisson"  // independent of each other
	Gamma    Arrival = "gamma"    // more even than Poisson for a smoothness above 1, burstier below
)

// Synthetic describes a workload by a few parameters.
type Synthetic struct {
	Sessions int
	Turns    int // of each session; 0 is 1
	Input    Length
	Output   Length
	Prefix   Prefix
	// BlockSize is the one that Prefix counts in; 0 is [DefaultBlockSize].
	BlockSize int

	Arrival    Arrival // "" is Burst
	Rate       float64 // sessions a second, for all but Burst
	Smoothness float64 // shape of Gamma; 0 is 1

	// Pause is the time between an answer and the next turn: always the same, or
	// exponential with that mean.
	Pause       time.Duration
	Exponential bool
	// Accumulate puts the session's history before each turn: Input is then what
	// a turn adds. Without it turns have nothing in common but their group.
	Accumulate bool

	Seed uint64
}

// Check returns an error that names the first parameter that cannot be.
func (s *Synthetic) Check() error {
	switch {
	case s.Sessions < 1:
		return fmt.Errorf("synthetic workload: got %d sessions, want 1 or more", s.Sessions)
	case s.Turns < 0:
		return fmt.Errorf("synthetic workload: got %d turns, want 1 or more", s.Turns)
	case s.Input.Mean < 1 || s.Input.Mean > maxTokens:
		return fmt.Errorf("synthetic workload: got %d input tokens, want 1 to %d", s.Input.Mean, maxTokens)
	case s.Output.Mean < 1 || s.Output.Mean > maxTokens:
		return fmt.Errorf("synthetic workload: got %d output tokens, want 1 to %d", s.Output.Mean, maxTokens)
	case !(s.Input.Deviation >= 0) || !(s.Output.Deviation >= 0):
		return fmt.Errorf("synthetic workload: got deviations %v and %v, want 0 or more", s.Input.Deviation, s.Output.Deviation)
	case !slices.Contains([]Arrival{"", Burst, Constant, Poisson, Gamma}, s.Arrival):
		return fmt.Errorf("synthetic workload: unknown arrival %q: want burst, constant, poisson or gamma", s.Arrival)
	case s.Arrival != "" && s.Arrival != Burst && !(s.Rate > 0 && s.Rate <= 1e6):
		return fmt.Errorf("synthetic workload: got %v sessions a second, want more than 0", s.Rate)
	case !(s.Smoothness >= 0 && s.Smoothness <= 1e6):
		return fmt.Errorf("synthetic workload: got smoothness %v, want more than 0", s.Smoothness)
	case s.Pause < 0:
		return fmt.Errorf("synthetic workload: got a pause of %v, want 0 or more", s.Pause)
	case s.BlockSize < 0 || s.BlockSize > maxBlockSize:
		return fmt.Errorf("synthetic workload: got block size %d, want 1 to %d", s.BlockSize, maxBlockSize)
	}
	return s.Prefix.check()
}

// Requests yields the workload session by session, in the order in which they
// begin, or the error of Check.
func (s Synthetic) Requests() iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		if err := s.Check(); err != nil {
			yield(Request{}, err)
			return
		}
		random := newRand(s.Seed)
		blockSize := cmp.Or(s.BlockSize, DefaultBlockSize)
		turns := max(s.Turns, 1)
		var at time.Duration
		for session := range s.Sessions {
			var last Request
			for turn := range turns {
				n := session*turns + turn
				r := Request{
					ID: fmt.Sprintf("session %d, turn %d", session, turn), Session: fmt.Sprintf("session %d", session),
					Final: turn == turns-1, At: at,
					Answer: answer(n, s.Output.draw(random)),
				}
				input := s.Input.draw(random)
				switch {
				case turn == 0 || !s.Accumulate:
					r.Prompt = s.Prefix.prompt(random, blockSize, input, n)
				default:
					r.Prompt = continued(&last, Text{{Stream: stream(prompts, uint64(n)), Len: uint32(input)}})
				}
				if turn > 0 {
					r.After, r.Delay = []string{last.ID}, s.pause(random)
					r.At = min(last.At+r.Delay, maxTime)
				}
				last = r
				r.Prompt = slices.Clip(r.Prompt)
				if !yield(r, nil) {
					return
				}
			}
			at = min(at+s.gap(random), maxTime)
		}
	}
}

// gap draws the time until the next session begins.
func (s *Synthetic) gap(random *rand.Rand) time.Duration {
	var gaps float64 // in mean ones
	switch s.Arrival {
	case Constant:
		gaps = 1
	case Poisson:
		gaps = random.ExpFloat64()
	case Gamma:
		shape := s.Smoothness
		if shape == 0 {
			shape = 1
		}
		gaps = drawGamma(random, shape) / shape
	default:
		return 0
	}
	return time.Duration(min(gaps/s.Rate*float64(time.Second), float64(maxTime)))
}

func (s *Synthetic) pause(random *rand.Rand) time.Duration {
	if s.Exponential {
		return scaled(s.Pause, random.ExpFloat64())
	}
	return min(s.Pause, maxTime)
}

// drawGamma draws from the gamma distribution of scale 1, by the method of
// Marsaglia and Tsang (ACM Transactions on Mathematical Software 26, 2000); a
// shape below 1 is reached from the one above it.
func drawGamma(random *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return drawGamma(random, shape+1) * math.Pow(random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-random.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// newRand returns numbers that a seed fixes.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, golden)) }
