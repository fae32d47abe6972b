package prompt

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/harmony"
	"github.com/dynago/dynago/tokenizer"
)

// speaksHarmony tells that a vocabulary has all control tokens of Harmony, the
// format of gpt-oss.
func speaksHarmony(t *tokenizer.Tokenizer) bool {
	return !slices.ContainsFunc(harmony.Tokens(), func(token string) bool {
		id, ok := t.ID(token)
		return !ok || !t.IsSpecial(id)
	})
}

// withHarmony adds what the files of a model that speaks Harmony may lack: the
// template, and one of the two tokens that end an answer, <|return|>, and <|call|>
// where a tool is to run. It returns the source of the template, or what stands
// for it.
func (m *Model) withHarmony(shown string, cfg chattemplate.Config) string {
	if !speaksHarmony(m.Tokenizer) {
		return shown
	}
	if m.Template == nil {
		m.Template = chattemplate.Harmony(cfg)
		shown = strings.Join(harmony.Tokens(), "")
	}
	if !harmony.Writes(shown) {
		return shown
	}
	for _, token := range []string{harmony.Return, harmony.Call} {
		if id, _ := m.Tokenizer.ID(token); !slices.Contains(m.EOS, id) {
			m.EOS = append(m.EOS, id)
		}
	}
	slices.Sort(m.EOS)
	return shown
}
