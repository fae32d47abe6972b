package parser

import (
	"maps"
	"strings"
)

// thoughtGrammar says how a family marks thinking.
type thoughtGrammar struct {
	name string
	// open and close are the markers around a thought, in all spellings.
	open, close []string
	// label stands behind the opener and is a part of it, if it is there whole.
	label string
	// forced begins every generation in a thought, unless the prompt closed one.
	forced bool
	// once reads the first thought alone. The markers are words of a language, and
	// where they cannot mark a thought they are text.
	once bool
	// exits end a thought, too, and are then read as what they are in a response.
	exits []string
	// strip are markers that mean nothing, and are removed from text.
	strip []string
	// off says whether a request switches reasoning off; nil is never.
	off func(Controls) bool
}

// Controls are what a request says of thinking, after all spellings of it have
// been brought into these (normalised template arguments).
type Controls struct {
	Thinking *bool  // thinking, or enable_thinking
	Mode     string // thinking_mode: enabled, disabled, chat, thinking, adaptive …
	Effort   string // reasoning_effort
}

func (c Controls) is(on bool) bool { return c.Thinking != nil && *c.Thinking == on }

// The switches: by default on, and by default off.
func unlessOff(c Controls) bool      { return c.is(false) }
func unlessChat(c Controls) bool     { return c.is(false) || c.Mode == "chat" }
func ifAsked(c Controls) bool        { return !c.is(true) && c.Mode != "thinking" }
func ifOn(c Controls) bool           { return !c.is(true) }
func ifEffort(c Controls) bool       { return c.Effort == "" || c.Effort == "none" }
func unlessDisabled(c Controls) bool { return c.Mode == "disabled" }

// thinks makes the grammar of <think> and </think>, which most families use; how
// they differ is what the options say.
func thinks(name string, options ...func(*thoughtGrammar)) *thoughtGrammar {
	g := &thoughtGrammar{name: name, open: []string{"<think>"}, close: []string{"</think>"}}
	for _, o := range options {
		o(g)
	}
	return g
}

func forced(g *thoughtGrammar) { g.forced = true }

func offIf(f func(Controls) bool) func(*thoughtGrammar) {
	return func(g *thoughtGrammar) { g.off = f }
}

// The reasoning grammars, by the names that --dyn-reasoning-parser takes.
var (
	gptOSS = &thoughtGrammar{name: "gpt_oss"} // has a machine of its own

	basic      = thinks("basic")
	qwen3      = thinks("qwen3")
	glm45      = thinks("glm45")
	deciThinks = thinks("nemotron_deci")
	step3      = thinks("step3", forced)
	deepseekR1 = thinks("deepseek_r1", forced, offIf(unlessChat))
	deepseekV3 = thinks("deepseek_v3_1", forced, offIf(ifAsked))
	dsmlThinks = thinks("deepseek_v3_2", forced, offIf(unlessChat))
	deepseekV4 = thinks("deepseek_v4", offIf(unlessChat))
	kimiK25    = thinks("kimi_k25", forced, offIf(unlessOff))
	minimaxM2  = thinks("minimax_m2", forced, offIf(unlessChat))
	nemotron3  = thinks("nemotron3", forced, offIf(unlessOff))

	kimi      = &thoughtGrammar{name: "kimi", open: []string{"◁think▷"}, close: []string{"◁/think▷"}}
	magistral = &thoughtGrammar{
		name: "mistral", open: []string{"[THINK]"}, close: []string{"[/THINK]"}, forced: true, off: ifEffort,
	}
	gemma4Thinks = &thoughtGrammar{
		name: "gemma4", open: []string{"<|channel>"}, close: []string{"<channel|>"}, label: "thought\n", off: ifOn,
	}
	minimaxM3Thinks = &thoughtGrammar{
		name: "minimax_m3", open: []string{"<mm:think>"}, close: []string{"</mm:think>"}, off: unlessDisabled,
	}
	kimiK3Thinks = &thoughtGrammar{
		name: "kimi_k3", open: xtml(xtmlOpen, "think"), close: xtml(xtmlClose, "think"),
		exits: []string{xtmlOpen, xtmlClose, "<|end_of_msg|>"}, off: unlessOff,
		strip: xtmlMessage,
	}
	granite = &thoughtGrammar{
		name: "granite", once: true,
		open:  []string{"Here's my thought process:", "Here is my thought process:"},
		close: []string{"Here's my response:", "Here is my response:"},
	}

	coreThoughts = map[string]*thoughtGrammar{
		"none":    nil,
		"gpt_oss": gptOSS,
		"basic":   basic, "qwen3": qwen3, "glm45": glm45, "nemotron_deci": deciThinks, "step3": step3,
		"deepseek_r1": deepseekR1, "deepseek_v3": deepseekV3, "deepseek_v3_1": deepseekV3, "deepseek_v3_2": dsmlThinks,
		"deepseek_v4": deepseekV4, "deepseek-v4": deepseekV4, "deepseekv4": deepseekV4,
		"kimi": kimi, "kimi_k25": kimiK25, "kimi_k3": kimiK3Thinks, "kimi-k3": kimiK3Thinks,
		"minimax_m2": minimaxM2, "minimax_m3": minimaxM3Thinks, "minimax-m3": minimaxM3Thinks,
		"nemotron3": nemotron3, "nemotron_v3": nemotron3, "nemotron_nano": nemotron3,
		"mistral": magistral, "gemma4": gemma4Thinks, "gemma-4": gemma4Thinks, "granite": granite,
	}
	// moreThoughts are those of families whose messages are wrapped as a whole.
	moreThoughts = map[string]*thoughtGrammar{"inkling": inklingThinks, "muse": museThinks, "muse_glimmer": museThinks}
	thoughts     = joined(coreThoughts, moreThoughts)
)

// joined returns the grammars of all maps by their names.
func joined[G any](all ...map[string]*G) map[string]*G {
	out := map[string]*G{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// startOf returns the state behind the end of a prompt.
func (g *thoughtGrammar) startOf(tail string) Start {
	tail = strings.TrimRight(tail, " \t\r\n")
	label := strings.TrimRight(g.label, "\n")
	for _, open := range g.open {
		if strings.HasSuffix(tail, open) || label != "" && strings.HasSuffix(tail, open+label) {
			return StartReasoning
		}
	}
	for _, closer := range g.close {
		if strings.HasSuffix(tail, closer) {
			return StartResponse
		}
	}
	return StartNone
}

// opener returns the longest opener that s begins with, or says that more of s
// may become one.
func (g *thoughtGrammar) opener(s string) (open string, partial bool) {
	for _, o := range g.open {
		switch {
		case strings.HasPrefix(s, o):
			if len(o) > len(open) {
				open = o
			}
		case strings.HasPrefix(o, s):
			partial = true
		}
	}
	return open, partial
}
