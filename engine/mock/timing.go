package mock

import "time"

// Work is what one pass computes, as far as its duration depends on it.
type Work struct {
	Prefills      int // requests of which prompt tokens are computed
	PromptEnds    int // prompt tokens they have after the pass, summed
	PromptStarts  int // … and had before it
	Tokens        int // tokens computed that are not a decode's single one
	Attention     float64
	Decodes       int // requests that give a token without a prefill in this pass
	DecodeContext int // their lengths, summed
	Emitting      int // requests that give a token
	ActiveTokens  int // tokens that the blocks in use have room for
	TotalTokens   int // … and all blocks
}

// timing predicts how long the two parts of a pass take, before any speed-up.
// A pass that computes no prompt has no prefill part, one that gives no token
// no decode part.
//
// Products are rounded before they are summed up, which a conversion asks for:
// some machines would fuse the two, and a simulation is to come out the same on
// all of them.
type timing interface {
	predict(w *Work) (prefill, decode time.Duration)
}

func milliseconds(ms float64) time.Duration {
	return time.Duration(max(0, ms) * float64(time.Millisecond))
}

// constant takes the same time for every pass.
type constant struct{ prefill, decode float64 }

func (c constant) predict(w *Work) (prefill, decode time.Duration) {
	if w.Tokens > 0 {
		prefill = milliseconds(c.prefill)
	}
	if w.Decodes > 0 {
		decode = milliseconds(c.decode)
	}
	return prefill, decode
}

// polynomial is the model that the field's mock engine has by default, kept for
// comparison with it. Its decode time follows from the fill of the cache alone.
type polynomial struct{}

func (polynomial) predict(w *Work) (prefill, decode time.Duration) {
	if w.Prefills > 0 {
		fresh := w.Prefills * max(0, w.PromptEnds/w.Prefills-w.PromptStarts/w.Prefills)
		prefill = milliseconds(polynomialPrefill(float64(fresh)))
	}
	if w.Emitting > 0 {
		u := float64(w.ActiveTokens) / float64(w.TotalTokens)
		decode = milliseconds(max(1, polynomialDecode(u)))
	}
	return prefill, decode
}

func polynomialPrefill(n float64) float64 {
	return float64(4.209989e-07*n*n) + float64(1.518344e-02*n) + 16.50142
}

func polynomialDecode(u float64) float64 {
	return float64(-25.74*u*u) + float64(54.01*u) + 5.74
}

// roofline is one forward pass over everything: a part for its launch, one for
// each token, one for attention over the context of prefills and one for
// reading the context of decodes. The numbers are those of an 8B model on one
// H100, roughly.
type roofline struct{}

func (roofline) predict(w *Work) (prefill, decode time.Duration) {
	const (
		launch    = 6.0
		perToken  = 0.030
		attention = 2.0e-8
		perDecode = 0.02
		perKV     = 2.0e-6
	)
	switch {
	case w.Tokens > 0:
		// Decodes ride along: their launch is paid for.
		prefill = milliseconds(launch + float64(perToken*float64(w.Tokens)) + float64(attention*w.Attention))
		decode = milliseconds(float64(perToken*float64(w.Decodes)) + float64(perKV*float64(w.DecodeContext)))
	case w.Decodes > 0:
		decode = milliseconds(launch + float64(perDecode*float64(w.Decodes)) + float64(perKV*float64(w.DecodeContext)))
	}
	return prefill, decode
}

func (a *Args) timing() timing {
	switch a.TimingModel {
	case "polynomial":
		return polynomial{}
	case "constant":
		return constant{a.PrefillMS, a.DecodeMS}
	}
	return roofline{}
}

// duration returns how long the pass takes at the engine's speed.
func (a *Args) duration(t timing, w *Work) time.Duration {
	if a.SpeedupRatio == 0 {
		return 0
	}
	prefill, decode := t.predict(w)
	d := float64(prefill) / a.SpeedupRatio
	if a.DecodeSpeedupRatio > 0 && decode > 0 {
		d += float64(decode) / (a.SpeedupRatio * a.DecodeSpeedupRatio)
	}
	return time.Duration(min(d, float64(longestPass)))
}

// longestPass bounds the time of one pass, however slow an engine is said to be, and
// every time that is asked for, so that times can be added up.
const longestPass = 100 * 365 * 24 * time.Hour
