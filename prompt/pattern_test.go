package prompt

import (
	"errors"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/tokenizer"
)

// A pattern that gives up is the client's error, and no other panic is.
func TestCatchPattern(t *testing.T) {
	try := func(r *chat.Request, with any) (err error) {
		defer catchPattern(r, &err)
		if with != nil {
			panic(with)
		}
		return nil
	}
	slow := &tokenizer.PatternError{Pattern: "(a+)+b", Bytes: 9, Limit: time.Second}
	for field, r := range map[string]*chat.Request{"messages": {}, "prompt": {Prompt: &chat.Prompt{}}} {
		const want = "the text cannot be tokenized: the model's pattern (a+)+b takes more than 1s on a text of 9 bytes"
		e, ok := errors.AsType[*engine.Error](try(r, slow))
		if !ok || e.Kind != engine.InvalidArgument || e.Param != field || e.Message != want {
			t.Errorf("%s: %+v", field, e)
		}
	}
	if err := try(&chat.Request{}, nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if got := recover(); got != "another" {
			t.Errorf("recovered %v", got)
		}
	}()
	t.Error(try(&chat.Request{}, "another"))
}
