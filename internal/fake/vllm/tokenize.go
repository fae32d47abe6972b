package vllm

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// The tokenizer is a toy: the ids below 256 are the bytes of a text, and the others
// are written out as numbers.

func tokens(text string) []uint32 {
	ids := make([]uint32, len(text))
	for i := range len(text) {
		ids[i] = uint32(text[i])
	}
	return ids
}

func textOf(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		if id < 256 {
			b.WriteByte(byte(id))
		} else {
			b.WriteString(" " + strconv.FormatUint(uint64(id), 10))
		}
	}
	return b.String()
}

// rendered is what the routes take that make tokens of texts, or the reverse.
type rendered struct {
	Model    string          `json:"model"`
	Prompt   json.RawMessage `json:"prompt"`
	Tokens   []uint32        `json:"tokens"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
}

// prompts returns the ids of each prompt that a body has.
func (q *rendered) prompts() [][]uint32 {
	if q.Messages != nil {
		var b strings.Builder
		for _, m := range q.Messages {
			b.WriteString(m.Role + ": " + m.Content + "\n")
		}
		return [][]uint32{tokens(b.String() + "assistant: ")}
	}
	var one string
	var many []string
	var ids []uint32
	switch {
	case json.Unmarshal(q.Prompt, &one) == nil:
		return [][]uint32{tokens(one)}
	case json.Unmarshal(q.Prompt, &ids) == nil:
		return [][]uint32{ids}
	case json.Unmarshal(q.Prompt, &many) == nil:
		var out [][]uint32
		for _, text := range many {
			out = append(out, tokens(text))
		}
		return out
	}
	return nil
}

// routeTexts adds the routes that make tokens of texts, or the reverse, and generate
// nothing.
func (s *Server) routeTexts() {
	take := func(path string, answer func(q *rendered, prompts [][]uint32) any) {
		s.route("POST", path, func(w http.ResponseWriter, r *http.Request) {
			var q rendered
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				s.refuse(w, http.StatusBadRequest, "BadRequestError", err.Error())
				return
			}
			if q.Model != "" && q.Model != s.config.Mock.Model {
				s.refuse(w, http.StatusNotFound, "NotFoundError", "The model `"+q.Model+"` does not exist.")
				return
			}
			prompts := q.prompts()
			if len(prompts) == 0 && q.Tokens == nil {
				s.refuse(w, http.StatusBadRequest, "BadRequestError", "there is no prompt")
				return
			}
			write(w, http.StatusOK, answer(&q, prompts))
		})
	}
	one := func(ids []uint32) map[string]any { return map[string]any{"token_ids": ids} }
	take("/tokenize", func(_ *rendered, prompts [][]uint32) any {
		if len(prompts) == 0 {
			prompts = [][]uint32{{}}
		}
		return map[string]any{"count": len(prompts[0]), "max_model_len": s.context(), "tokens": prompts[0], "token_strs": nil}
	})
	take("/detokenize", func(q *rendered, _ [][]uint32) any { return map[string]any{"prompt": textOf(q.Tokens)} })
	take("/v1/chat/completions/render", func(_ *rendered, prompts [][]uint32) any {
		if len(prompts) == 0 {
			return one(nil)
		}
		return one(prompts[0])
	})
	take("/v1/completions/render", func(_ *rendered, prompts [][]uint32) any {
		out := []any{}
		for _, ids := range prompts {
			out = append(out, one(ids))
		}
		return out
	})
}
