package chat_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/chat"
)

// runes spells each id as its character, of several bytes for the larger ones.
type runes struct{}

func (runes) Spell(id uint32) []byte { return []byte(string(rune(id))) }

func (runes) Encode(text string) (ids []uint32) {
	for _, r := range text {
		ids = append(ids, uint32(r))
	}
	return ids
}

func serve(t *testing.T, c chat.Config) string {
	t.Helper()
	args := mock.DefaultArgs()
	args.SpeedupRatio, args.BlockSize = 0, 16
	c.Mock = mock.Config{Model: "m", Args: args, Source: mock.SourceRandom, ContextLength: 4096}
	c.Vocabulary = runes{}
	s, err := chat.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() { h.Close(); s.Close() })
	return h.URL
}

type answer struct {
	Choices []struct {
		Message, Delta struct{ Role, Content string }
		Finish         *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error struct{ Code, Message string }
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

const question = `{"model":"m","max_tokens":40,"temperature":0,"messages":[{"role":"user","content":"Which rivers cross Paris, and which cross Rome?"}]`

// An answer is the same whole and in pieces, each of whole characters, and counts
// what was cached.
func TestAnswers(t *testing.T) {
	url := serve(t, chat.Config{})
	var whole answer
	if status, text := post(t, url, question+"}"); status != 200 || json.Unmarshal([]byte(text), &whole) != nil {
		t.Fatalf("%d %s", status, text)
	}
	c := whole.Choices[0]
	if n := len([]rune(c.Message.Content)); n != 40 || *c.Finish != "length" || whole.Usage.Output != 40 || whole.Usage.Details.Cached != 0 {
		t.Errorf("%d characters, %+v, usage %+v", n, c, whole.Usage)
	}
	_, text := post(t, url, question+`,"stream":true,"stream_options":{"include_usage":true}}`)
	got, finish, cached := "", "", -1
	done := false
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if done = data == "[DONE]"; done {
			continue
		}
		var a answer
		if err := json.Unmarshal([]byte(data), &a); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Choices {
			if got += c.Delta.Content; strings.ContainsRune(c.Delta.Content, '\uFFFD') {
				t.Errorf("half a character in %q", data)
			}
			if c.Finish != nil {
				finish = *c.Finish
			}
		}
		if a.Usage != nil {
			cached = a.Usage.Details.Cached
		}
	}
	if got != c.Message.Content || finish != "length" || !done || cached != 48 {
		t.Errorf("%q, %s, done %v, %d cached: want %q", got, finish, done, cached, c.Message.Content)
	}
}

func TestHabits(t *testing.T) {
	stream := question + `,"stream":true,"stream_options":{"include_usage":true}}`
	if _, text := post(t, serve(t, chat.Config{NoUsage: true, NoDone: true}), stream); strings.Contains(text, "usage") || strings.Contains(text, "[DONE]") {
		t.Errorf("told %s", text)
	}
	if _, text := post(t, serve(t, chat.Config{NoCached: true}), stream); strings.Contains(text, "cached") {
		t.Errorf("told %s", text)
	}
	if status, _ := post(t, serve(t, chat.Config{Key: "k"}), question+"}"); status != 401 {
		t.Errorf("without a key: %d", status)
	}
}

func TestRefusals(t *testing.T) {
	url := serve(t, chat.Config{})
	for body, want := range map[string]string{
		`{`: "could not parse",
		`{"model":"other","messages":[{"role":"user","content":"a"}]}`:                         "does not exist",
		`{"model":"m","messages":[]}`:                                                          "messages is empty",
		`{"model":"m","max_tokens":999999999,"messages":[{"role":"user","content":"a"}]}`:      "exceed",
		`{"model":"m","max_tokens":0,"messages":[{"role":"user","content":[{"text":"abc"}]}]}`: "max_tokens is 0",
	} {
		var a answer
		status, text := post(t, url, body)
		if err := json.Unmarshal([]byte(text), &a); err != nil || status < 400 || status > 404 || !strings.Contains(a.Error.Message, want) {
			t.Errorf("%s: %d %s, want %q", body, status, text, want)
		}
	}
}
