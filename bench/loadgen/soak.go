package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// longEvery makes one prompt in this many a long one.
const longEvery = 4

// references is how often the reference answer to a prompt is tried for.
const references = 5

// known is a prompt with the answer that was given to it first.
type known struct {
	chat
	answer answer
}

// soak asks every prompt once and notes its answer, then keeps asking, and holds
// every later answer against the first. Servers that answer the same seed
// differently cannot be soaked.
func soak(ctx context.Context, c Config, s *server) (Result, error) {
	cases, err := c.reference(ctx, s)
	if err != nil {
		return Result{}, err
	}

	todo := c.tickets()
	tallies := make([]tally, c.Concurrency)
	var wait sync.WaitGroup
	for i := range tallies {
		wait.Go(func() {
			soakOne(ctx, &c, todo, &tallies[i], s, cases, rand.New(rand.NewPCG(c.Seed, uint64(i))))
		})
	}
	wait.Wait()
	return merge(tallies), ctx.Err()
}

func (c *Config) reference(ctx context.Context, s *server) ([]known, error) {
	l := line{server: s, limit: c.HangAfter}
	defer l.close()
	cases := make([]known, c.Prompts)
	for i := range cases {
		length := c.PromptWords
		if i%longEvery == longEvery-1 {
			length = c.LongWords
		}
		cases[i].chat = chat{prompt: prompt(c.Seed, uint64(i), length), seed: c.Seed + uint64(i)}
		var err error
		for range references {
			cases[i].answer, err = l.ask(ctx, c.body(cases[i].chat), reading{text: true, abortAfter: -1})
			if err == nil {
				break
			}
		}
		if err != nil {
			return nil, fmt.Errorf("reference answer to prompt %d, %d attempts: %w", i, references, err)
		}
	}
	return cases, nil
}

func soakOne(ctx context.Context, c *Config, todo *tickets, t *tally, s *server, cases []known, random *rand.Rand) {
	patient := line{server: s, limit: c.HangAfter}
	defer patient.close()

	for {
		if _, ok := todo.take(ctx); !ok {
			return
		}
		k := cases[random.IntN(len(cases))]
		k.stream = random.IntN(2) == 0
		var a answer
		var err error
		if random.Float64() < c.AbortShare {
			a, err = c.abandon(ctx, s, k, random)
		} else {
			a, err = patient.ask(ctx, c.body(k.chat), reading{stream: k.stream, text: true, abortAfter: -1})
		}
		if ctx.Err() != nil {
			return
		}

		t.count(a, err)
		if err == nil && !k.same(a) {
			t.result.Wrong++
			if t.result.FirstWrong == "" {
				t.result.FirstWrong = k.differs(a)
			}
		}
	}
}

// abandon breaks the connection off at a random point of the answer: a stream
// after some of its events, anything after some part of the time that the
// reference took. An answer that is quicker comes back whole.
func (c *Config) abandon(ctx context.Context, s *server, k known, random *rand.Rand) (answer, error) {
	patience := time.Duration(1 + random.Int64N(int64(k.answer.whole)))
	how := reading{stream: k.stream, text: true, abortAfter: -1}
	byEvents := k.stream && random.IntN(2) == 0
	if byEvents {
		patience = c.HangAfter
		how.abortAfter = random.IntN(k.answer.tokens)
	}

	l := line{server: s, limit: patience}
	defer l.close()
	a, err := l.ask(ctx, c.body(k.chat), how)
	if errors.Is(err, errHung) && !byEvents {
		err = errAborted
	}
	return a, err
}

func (k *known) same(a answer) bool {
	return a.text == k.answer.text && a.reasoning == k.answer.reasoning &&
		a.finish == k.answer.finish && a.tokens == k.answer.tokens
}

func (k *known) differs(a answer) string {
	return fmt.Sprintf("prompt %.40q, stream %v: got %d tokens, %s, %.200q; first answer was %d tokens, %s, %.200q",
		k.prompt, k.stream, a.tokens, a.finish, a.reasoning+a.text, k.answer.tokens, k.answer.finish, k.answer.reasoning+k.answer.text)
}
