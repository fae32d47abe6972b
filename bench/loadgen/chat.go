package loadgen

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
)

// chat is one request of the load.
type chat struct {
	past   []byte // messages before the prompt, as in [histories.of]; nil: none
	prompt string
	stream bool
	seed   uint64
}

type chatBody struct {
	Model         string         `json:"model"`
	Messages      []chatMessage  `json:"messages"`
	MaxTokens     int            `json:"max_tokens"`
	Seed          uint64         `json:"seed"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	IgnoreEOS     bool           `json:"ignore_eos,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// body renders one request.
func (c *Config) body(r chat) []byte {
	b := chatBody{
		Model:     c.Model,
		Messages:  []chatMessage{{"user", r.prompt}},
		MaxTokens: c.MaxTokens,
		Seed:      r.seed,
		Stream:    r.stream,
		IgnoreEOS: c.IgnoreEOS,
	}
	if r.stream {
		b.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	body, err := json.Marshal(b)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	if r.past == nil {
		return body
	}
	before, after, _ := bytes.Cut(body, []byte(`"messages":[`))
	return slices.Concat(before, []byte(`"messages":[`), r.past, []byte{','}, after)
}

// words are ordinary enough that any tokenizer knows them.
var words = []string{
	"the", "river", "keeps", "its", "own", "time", "and", "every", "stone",
	"remembers", "how", "water", "came", "down", "from", "hills", "where",
	"people", "once", "built", "small", "houses", "of", "wood", "clay",
	"with", "gardens", "between", "them", "to", "feed", "a", "family",
	"through", "long", "winter", "when", "roads", "are", "closed", "by",
	"snow", "nobody", "writes", "letters", "until", "first", "warm", "day",
}

// prompt makes the text of prompt number i: the same for the same seed and
// number, and different from its first words on for different ones.
func prompt(seed, i uint64, n int) string {
	random := rand.New(rand.NewPCG(seed, i))
	text := make([]byte, 0, 6*n)
	for k := range n {
		if k > 0 {
			text = append(text, ' ')
		}
		text = append(text, words[random.IntN(len(words))]...)
	}
	return string(text)
}
