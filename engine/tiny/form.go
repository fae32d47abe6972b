package tiny

import (
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/guided/mask"
)

// forms are the forms that an answer may be held to, and the features that stand for
// them.
var forms = map[chat.FormatKind]engine.Feature{
	chat.FormatJSONObject:    engine.FeatureGuidedObject,
	chat.FormatJSONSchema:    engine.FeatureGuidedJSON,
	chat.FormatRegex:         engine.FeatureGuidedRegex,
	chat.FormatChoice:        engine.FeatureGuidedChoice,
	chat.FormatGrammar:       engine.FeatureGuidedGrammar,
	chat.FormatStructuralTag: engine.FeatureStructuralTag,
}

// guided lists the features that are forms.
func (e *Engine) guided() (list engine.Features) {
	if e.forms == nil {
		return nil
	}
	for _, f := range forms {
		list = append(list, f)
	}
	slices.Sort(list)
	return list
}

// form is what an answer is held to.
type form struct {
	state mask.State
	bits  []uint64
}

// formOf returns what a request wants its answer to be held to, or nil.
func (e *Engine) formOf(r *engine.Request) (*form, error) {
	if r.Format == nil || r.Format.Kind == chat.FormatText {
		return nil, nil
	}
	if _, ok := forms[r.Format.Kind]; !ok || e.forms == nil {
		return nil, engine.Errorf(engine.Unsupported, "guided output (%s) is not available on the tiny engine", r.Format.Kind)
	}
	g, err := e.forms.Compile(r.Format)
	if err != nil {
		e := engine.Errorf(engine.InvalidArgument, "the form of the answer cannot be used: %v", err)
		e.Param = r.Format.Field()
		return nil, e
	}
	return &form{g.Start(), make([]uint64, (e.model.Config().Vocab+63)/64)}, nil
}

// mask returns which tokens may come next; nil: all.
func (f *form) mask() ([]uint64, error) {
	if f == nil {
		return nil, nil
	}
	return f.bits, f.state.Mask(f.bits)
}

// ended says whether the form has nothing more to say than the end that it has said.
func (f *form) ended() bool { return f != nil && f.state.Ended() }

// accept reads a token.
func (f *form) accept(id uint32) error {
	if f == nil {
		return nil
	}
	return f.state.Advance(id)
}
