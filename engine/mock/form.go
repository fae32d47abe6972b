package mock

import (
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/guided"
)

// forms are the features that stand for the forms an answer may be held to.
var forms = map[chat.FormatKind]engine.Feature{
	chat.FormatJSONObject: engine.FeatureGuidedObject,
	chat.FormatJSONSchema: engine.FeatureGuidedJSON,
	chat.FormatRegex:      engine.FeatureGuidedRegex,
	chat.FormatChoice:     engine.FeatureGuidedChoice,
}

// guides says whether the engine can hold answers to forms: it has to spell what
// it makes up.
func (e *Engine) guides() bool { return e.cfg.Args.GuidedDecoding && e.cfg.Encode != nil }

// guided lists the features that are forms.
func (e *Engine) guided() engine.Features {
	if !e.guides() {
		return nil
	}
	var list engine.Features
	for _, f := range forms {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}

// formed says whether a request wants a form.
func formed(r *engine.Request) bool { return r.Format != nil && r.Format.Kind != chat.FormatText }

// checkForm refuses a form that the engine cannot hold an answer to.
func (e *Engine) checkForm(r *engine.Request) error {
	if !formed(r) {
		return nil
	}
	if _, ok := forms[r.Format.Kind]; !ok || !e.guides() {
		return engine.Errorf(engine.Unsupported, "guided output (%s) is not available on the mock engine", r.Format.Kind)
	}
	if _, err := guided.Compile(r.Format); err != nil {
		return badForm(r, "the form of the answer cannot be used", err)
	}
	return nil
}

func badForm(r *engine.Request, what string, err error) error {
	e := engine.Errorf(engine.InvalidArgument, "%s: %v", what, err)
	e.Param = r.Format.Field()
	return e
}

// sample makes a request give a text of its form. What a form leaves open is
// decided by what decides on prose, too.
func (e *Engine) sample(r *engine.Request) (Generator, error) {
	prompt, answered := r.Divide()
	d := e.origin(r)
	for _, id := range prompt {
		d = d.add(id)
	}
	text, err := guided.Sample(r.Format, uint64(d))
	if err != nil {
		return nil, badForm(r, "the mock engine makes no answer of this form", err)
	}
	ids, end := e.cfg.Encode(nil, text), e.ending(r)
	end.min += len(answered)
	return &scriptTokens{ids: ids, given: len(answered), end: end, after: func() Generator {
		whole := *r
		whole.TokenIDs, whole.Answered, whole.Stop.MinTokens = prompt, 0, end.min-len(ids)
		return e.generator(&whole)
	}}, nil
}
