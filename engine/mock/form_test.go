package mock_test

import (
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/guided"
)

var forms = map[engine.Feature]*chat.OutputFormat{
	engine.FeatureGuidedObject: {Kind: chat.FormatJSONObject},
	engine.FeatureGuidedJSON:   {Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)},
	engine.FeatureGuidedRegex:  {Kind: chat.FormatRegex, Pattern: `[a-f]{12} \d+`},
	engine.FeatureGuidedChoice: {Kind: chat.FormatChoice, Choices: []string{"yes", "no", "maybe"}},
}

// What the card promises is kept, and ends by itself.
func TestAnswersKeepTheirForm(t *testing.T) {
	e := open(t, mock.Config{Encode: encodeBytes, EOS: []uint32{eos}})
	seen := map[string]bool{}
	for feature, format := range forms {
		if !cardOf(t, e).Features.Has(feature) {
			t.Errorf("the card lacks %s", feature)
		}
		form, err := guided.Compile(format)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a-1", "b-1", "c-1", "d-1"} {
			r := ask()
			r.ID, r.Format = id, format
			text, finish := reply(t, e, r)
			if err := form.Check(text); err != nil || finish != engine.FinishEOS {
				t.Errorf("%s: %q ends with %s: %v", feature, text, finish, err)
			}
			seen[text] = true
		}
	}
	if len(seen) < 6 {
		t.Errorf("sixteen answers say only %d things", len(seen))
	}
	r := ask()
	r.Format = &chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(`{"type":"nothing"}`)}
	if _, _, err := listen(e, r); engine.KindOf(err) != engine.InvalidArgument {
		t.Errorf("a broken schema: %v", err)
	}
}

func TestFormsSwitchedOff(t *testing.T) {
	e := open(t, mock.Config{Encode: encodeBytes, EOS: []uint32{eos}}, func(a *mock.Args) { a.GuidedDecoding = false })
	for feature, format := range forms {
		r := ask()
		r.Format = format
		if _, _, err := listen(e, r); engine.KindOf(err) != engine.Unsupported || cardOf(t, e).Features.Has(feature) {
			t.Errorf("%s: promised %v, answer %v", feature, cardOf(t, e).Features.Has(feature), err)
		}
	}
}

// A script has the last word.
func TestScriptsKeepNoForm(t *testing.T) {
	e := scripted(t, `{rules: [{when: {user: hi}, emit: "hello"}]}`)
	r := ask(turn(chat.RoleUser, said("hi")))
	r.Format = forms[engine.FeatureGuidedObject]
	if text, _ := reply(t, e, r); text != "hello" {
		t.Errorf("got %q", text)
	}
}

func cardOf(t *testing.T, e *mock.Engine) *engine.Card {
	t.Helper()
	for status, err := range e.Card(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		return status.Card
	}
	t.Fatal("no card")
	return nil
}
