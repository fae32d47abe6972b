// Command load puts load on an OpenAI-compatible chat endpoint and prints what
// came back as JSON:
//
//	go run ./bench/load -url http://127.0.0.1:8000 -mode stream -concurrency 16 -n 1000
//
// It runs until all requests are answered. In mode hold it first prints one line
// when every stream is open, then keeps them open for -hold, or until its
// standard input ends if that is 0. Memory and CPU of the server are for its
// caller to look at.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var c loadgen.Config
	var hold time.Duration
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&c.URL, "url", "http://127.0.0.1:8000", "server")
	flags.StringVar(&c.Against, "against", "", "second server, asked in turn with the first")
	flags.StringVar(&c.Model, "model", "", "model name (default: the first one the server lists)")
	flags.StringVar(&c.APIKey, "api-key", "", "bearer token")
	flags.StringVar((*string)(&c.Mode), "mode", string(loadgen.Unary), "unary, stream, hold or soak")
	flags.IntVar(&c.Concurrency, "concurrency", 16, "connections")
	flags.IntVar(&c.Requests, "n", 0, "requests in all (0: until -duration)")
	flags.DurationVar(&c.Duration, "duration", 0, "start no request after this long (0: until -n)")
	flags.IntVar(&c.PromptWords, "words", 40, "words in a prompt")
	flags.IntVar(&c.LongWords, "long-words", 4000, "words in a long prompt of mode soak")
	flags.IntVar(&c.Prompts, "prompts", 0, "different prompts (0: each request has its own)")
	flags.IntVar(&c.HistoryBytes, "history-bytes", 0, "text before the user message, of one of the conversations (0: none)")
	flags.IntVar(&c.MessageBytes, "message-bytes", 0, "length of a user message with a history, instead of -words")
	flags.IntVar(&c.Conversations, "conversations", 1, "different histories, which take turns")
	flags.Uint64Var(&c.First, "first", 0, "number of the first request; the same numbers are the same requests")
	flags.IntVar(&c.MaxTokens, "max-tokens", 16, "max_tokens of each request")
	flags.BoolVar(&c.IgnoreEOS, "ignore-eos", false, "send ignore_eos: true")
	flags.Uint64Var(&c.Seed, "seed", 42, "seed of prompts, and of the sampling asked for")
	flags.Float64Var(&c.AbortShare, "abort", 0, "share of requests abandoned in mode soak")
	flags.DurationVar(&c.HangAfter, "hang-after", time.Minute, "an answer not ended by then is hung")
	flags.DurationVar(&hold, "hold", 0, "how long mode hold holds (0: until standard input ends)")
	if err := flags.Parse(args); err != nil {
		return err
	}

	encoder := json.NewEncoder(out)
	if c.Mode == loadgen.Hold {
		release := make(chan struct{})
		c.Release = release
		c.Held = func(r loadgen.Result) {
			encoder.Encode(r)
			go func() {
				defer close(release)
				if hold == 0 {
					io.Copy(io.Discard, in)
					return
				}
				select {
				case <-time.After(hold):
				case <-ctx.Done():
				}
			}()
		}
	}
	result, err := loadgen.Run(ctx, c)
	if err != nil {
		return err
	}
	return encoder.Encode(result)
}
