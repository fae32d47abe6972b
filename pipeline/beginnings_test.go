package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// A session that goes on over midnight keeps its date, and a new one has the new.
func TestDateOfSession(t *testing.T) {
	const dated = `{{ strftime_now("%Y-%m-%d") }}{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}`
	model := templated(t, dated, prompt.Parsers{})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		h := newHouseWith(t, model, pipeline.Config{}, router.Config{Mode: router.RoundRobin}, f)
		defer h.fleet.Close()
		ask := func(session string) string {
			r := request("Hello")
			r.Identity.Key = session
			f.generate = h.say("Yes", 100, engine.FinishEOS)
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			sent := f.sent()
			text, _ := h.model.Text(sent[len(sent)-1].TokenIDs)
			day, _, _ := strings.Cut(text, "<|im_start|>")
			return day
		}
		first := ask("s")
		time.Sleep(24 * time.Hour)
		if again, other, none := ask("s"), ask("other"), ask(""); again != first || other == first || none != other {
			t.Errorf("first %s, again %s, another session %s, none %s", first, again, other, none)
		}
	})
}

// No more sessions are known than may be; those used last are.
func TestBeginningsAreBounded(t *testing.T) {
	day := time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC)
	b := pipeline.NewBeginnings(3)
	at := func(name string, days int) int { return b.Of(name, day.AddDate(0, 0, days)).Day() }
	for i := range 3 {
		at(fmt.Sprint(i), i)
	}
	at("0", 9)
	at("3", 3) // 1 makes room
	for name, want := range map[string]int{"0": 1, "2": 3, "3": 4} {
		if got := at(name, 9); got != want {
			t.Errorf("session %s began on the %d, want %d", name, got, want)
		}
	}
	if got := at("1", 9); got != 10 {
		t.Errorf("a session that is not known began on the %d", got)
	}
}
