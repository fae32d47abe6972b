// Package loadgen puts load on an OpenAI-compatible chat endpoint and counts
// what comes back. It speaks plain HTTP and knows nothing of the server behind
// the address, so that any gateway can be measured with it unchanged.
//
// The generator shares two cores with what it measures, and holds ten thousand
// streams open in one process. So it writes requests onto bare TCP connections
// and runs one goroutine per connection, and it reads no more of an answer than
// its mode needs. Only work that was answered to its end is counted as done.
package loadgen

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/bench/stats"
)

// Mode says what kind of load to make.
type Mode string

// Modes of load.
const (
	// Unary sends chats one after the other on each connection and reads whole
	// answers.
	Unary Mode = "unary"
	// Stream does the same with stream: true.
	Stream Mode = "stream"
	// Hold opens one stream per connection, waits for its first event and keeps
	// it open until it is released.
	Hold Mode = "hold"
	// Soak mixes long and short prompts, unary and streamed, aborts some at
	// random points and compares every other answer with the first one given
	// to the same prompt.
	Soak Mode = "soak"
)

// Config says what load to make.
type Config struct {
	URL     string // of the server, "http://127.0.0.1:8000"; no TLS
	Against string // second server, asked in turn with URL; "" for none; Unary and Stream only
	Model   string // "": the first one of /v1/models
	APIKey  string // "" for none
	Mode    Mode

	Concurrency int           // connections
	Requests    int           // how many in all; 0: no limit
	Duration    time.Duration // start no request after this long; 0: no limit

	PromptWords int // length of a user message; Soak: of the short ones
	LongWords   int // Soak: length of the long ones
	Prompts     int // how many different ones there are; 0: every request has its own
	// HistoryBytes is how much text stands before the user message: the past of
	// one of so many Conversations, which take turns. 0: none. With it the user
	// message is as the past is, of MessageBytes, and PromptWords does not count.
	// Unary and Stream only.
	HistoryBytes, MessageBytes, Conversations int
	// First is the number of the first request: requests of one number are the
	// same in every load of one seed.
	First uint64

	MaxTokens int
	IgnoreEOS bool // send ignore_eos: true, which engines know and OpenAI does not
	Seed      uint64

	AbortShare float64       // Soak: share of requests that the client abandons
	HangAfter  time.Duration // an answer not finished by then is hung, and dropped

	// Release ends Hold when it is closed, and Held is called once when every
	// stream has had its first event.
	Release <-chan struct{}
	Held    func(Result)
}

// Result is what came back.
type Result struct {
	URL         string  `json:"url"`
	Mode        Mode    `json:"mode"`
	Model       string  `json:"model"`
	Concurrency int     `json:"concurrency"`
	Seconds     float64 `json:"seconds"` // until the last answer had ended

	Requests int `json:"requests"` // answered to the end
	Events   int `json:"events"`   // data frames of those, [DONE] not counted
	Tokens   int `json:"tokens"`   // completion tokens of those, as usage tells them

	// Tokens of a prompt of those, and how many of them were cached, as usage
	// tells them.
	PromptTokens Range `json:"prompt_tokens"`
	CachedTokens Range `json:"cached_tokens"`

	FirstEvent stats.Latency `json:"first_event"` // Stream: request written to first data frame
	Whole      stats.Latency `json:"whole"`       // request written to end of answer
	Gap        stats.Latency `json:"gap"`         // Stream: between neighbouring data frames

	Against *stats.Latency `json:"against,omitempty"` // whole answers of the second server

	Open    int `json:"open,omitempty"` // Hold: streams open at the end
	Aborted int `json:"aborted"`
	Hung    int `json:"hung"`
	Wrong   int `json:"wrong"`
	// Failed counts answers that ended in an error or too early, by what was
	// wrong.
	Failed map[string]int `json:"failed,omitempty"`
	// FirstWrong shows one wrong answer.
	FirstWrong string `json:"first_wrong,omitempty"`
}

// Range sums up a number that each request has.
type Range struct {
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// rangeOf sums up values. It is the zero Range for none.
func rangeOf(values []float64) Range {
	if len(values) == 0 {
		return Range{}
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return Range{Min: slices.Min(values), Max: slices.Max(values), Mean: sum / float64(len(values))}
}

// Failures is the number of requests that ended in an error.
func (r *Result) Failures() int {
	n := 0
	for _, k := range r.Failed {
		n += k
	}
	return n
}

// Run makes the load and returns when the last answer has ended. Cancelling ctx
// drops what is under way. An error means that no load could be made; what goes
// wrong with single requests is counted in the result.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	server, err := parseServer(c.URL, c.APIKey)
	if err != nil {
		return Result{}, err
	}
	if c.Model == "" {
		if c.Model, err = server.firstModel(ctx); err != nil {
			return Result{}, err
		}
	}

	start := time.Now()
	var result Result
	switch c.Mode {
	case Hold:
		result, err = hold(ctx, c, server)
	case Soak:
		result, err = soak(ctx, c, server)
	default:
		result, err = closedLoop(ctx, c, server)
	}
	result.URL, result.Mode, result.Model, result.Concurrency = c.URL, c.Mode, c.Model, c.Concurrency
	result.Seconds = time.Since(start).Seconds()
	return result, err
}

func (c *Config) check() error {
	switch {
	case c.Mode != Unary && c.Mode != Stream && c.Mode != Hold && c.Mode != Soak:
		return fmt.Errorf("mode %q: want unary, stream, hold or soak", c.Mode)
	case c.Concurrency < 1:
		return fmt.Errorf("concurrency %d: want at least 1", c.Concurrency)
	case c.MaxTokens < 1:
		return fmt.Errorf("max tokens %d: want at least 1", c.MaxTokens)
	case c.PromptWords < 1:
		return fmt.Errorf("prompt words %d: want at least 1", c.PromptWords)
	case c.AbortShare < 0 || c.AbortShare > 1:
		return fmt.Errorf("abort share %v: want 0 to 1", c.AbortShare)
	case c.HistoryBytes < 0 || c.HistoryBytes > 0 && (c.MessageBytes < 1 || c.Conversations < 1):
		return fmt.Errorf("history of %d bytes, messages of %d, %d conversations: want at least 1 of each", c.HistoryBytes, c.MessageBytes, c.Conversations)
	case c.HangAfter <= 0:
		return fmt.Errorf("hang after %v: want a positive time", c.HangAfter)
	case c.Mode == Soak && (c.Prompts < 1 || c.LongWords < 1):
		return fmt.Errorf("soak: %d prompts and long ones of %d words: want at least 1 of each", c.Prompts, c.LongWords)
	case c.Mode != Hold && c.Requests == 0 && c.Duration == 0:
		return fmt.Errorf("mode %s has no end: want a number of requests or a duration", c.Mode)
	case c.Mode == Hold && c.Release == nil:
		return fmt.Errorf("mode hold has no end: want a release")
	}
	return nil
}
