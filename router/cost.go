package router

import "math"

// decays says whether the credit depends on who has the least to compute.
func (t *Tuning) decays() bool { return t.TrackPrefillTokens && t.OverlapScoreCreditDecay > 0 }

// ask is what the cost depends on besides the candidate.
type ask struct {
	tokens int // of the prompt
	// minPrefill is the least outstanding prefill among all candidates, tokens.
	minPrefill int
	// prefillPool says that the candidates do prefill alone.
	prefillPool bool
}

// Terms are the parts of a cost, in blocks unless said otherwise:
//
//	total = (prefill + decode + requests) · preference
//	prefill = scale · max(0, raw prefill − credit)
//
// Where prefill is not counted, and the workers decode, the credit is taken from
// decode instead.
type Terms struct {
	RawPrefill float64 // outstanding, and all of the prompt
	Decay      float64 // of the credit for the device, 0..1
	Credit     float64 // for what is cached, each block by its tier
	Undecayed  float64 // what the credit would be without decay
	Scale      float64 // what a block of raw prefill and of credit counts
	Prefill    float64
	Decode     float64 // in use once the request decodes
	Requests   float64 // running ones, by their weight
	Preference float64 // factor
	Total      float64
}

// terms returns what a request costs on c, part by part.
func (t *Tuning) terms(a ask, c *Candidate) Terms {
	size := float64(c.BlockSize)
	out := Terms{Decay: 1, Preference: c.Preference, Decode: float64(c.DecodeBlocks)}
	if t.decays() {
		blocks := max(1, math.Ceil(float64(a.tokens)/size))
		ahead := float64(c.PrefillTokens-a.minPrefill) / size
		out.Decay = 1 / (1 + t.OverlapScoreCreditDecay*ahead/blocks)
	}
	below := t.HostCacheHitWeight*float64(c.Host) +
		t.DiskCacheHitWeight*float64(c.Disk) +
		t.SharedCacheMultiplier*float64(c.Shared)
	out.Credit = t.OverlapScoreCredit*out.Decay*float64(c.Device) + below
	out.Undecayed = t.OverlapScoreCredit*float64(c.Device) + below
	out.Requests = t.DecodeActiveRequestWeight * float64(c.Requests)
	switch {
	case t.TrackPrefillTokens:
		// Cached tokens are in the prompt, and beyond it where they were rounded up:
		// their credit is taken once, here.
		cached := t.cachedTokens(c)
		out.RawPrefill = float64(c.PrefillTokens+a.tokens-min(cached, a.tokens)+cached) / size
		out.Scale = t.PrefillLoadScale
		out.Prefill = out.Scale * max(0, out.RawPrefill-out.Credit)
	case !a.prefillPool && t.OverlapScoreCredit > 0:
		out.Scale = 1
		out.Decode = max(0, out.Decode-out.Credit)
	}
	out.Total = (out.Prefill + out.Decode + out.Requests) * out.Preference
	return out
}

// finite returns the terms for those who write them down: factors beyond all
// measure may have made some endless, and JSON has no word for that.
func (t Terms) finite() Terms {
	for _, term := range []*float64{&t.RawPrefill, &t.Credit, &t.Undecayed, &t.Prefill, &t.Decode, &t.Requests, &t.Total} {
		*term = min(*term, math.MaxFloat64)
	}
	return t
}

// cost returns what a request costs on c, in blocks.
func (t *Tuning) cost(a ask, c *Candidate) float64 { return t.terms(a, c).Total }

// price fills in the costs of all candidates: the totals of their terms, bit by
// bit, without what most candidates do not have.
func (t *Tuning) price(a ask, rows []Candidate) {
	quick := t.TrackPrefillTokens && !t.decays()
	credit, scale, weight := t.OverlapScoreCredit, t.PrefillLoadScale, t.DecodeActiveRequestWeight
	last, size, per := 0, 0.0, 0.0 // per is 1/size where that is exact, else 0
	for i := range rows {
		c := &rows[i]
		if !quick || c.Host|c.Disk|c.Shared != 0 {
			c.Cost = t.cost(a, c)
			continue
		}
		if c.BlockSize != last {
			last, size, per = c.BlockSize, float64(c.BlockSize), 0
			if last&(last-1) == 0 {
				per = 1 / size
			}
		}
		raw := float64(c.PrefillTokens + max(a.tokens, c.Device*last))
		if per != 0 {
			raw *= per
		} else {
			raw /= size
		}
		prefill := scale * max(0, raw-credit*float64(c.Device))
		c.Cost = (prefill + float64(c.DecodeBlocks) + weight*float64(c.Requests)) * c.Preference
	}
}

// overlap returns the cached blocks on c, each by the weight of its tier.
func (t *Tuning) overlap(c *Candidate) float64 {
	if c.Host|c.Disk == 0 {
		return float64(c.Device)
	}
	return float64(c.Device) + t.HostCacheHitWeight*float64(c.Host) + t.DiskCacheHitWeight*float64(c.Disk)
}

// cachedTokens returns the overlap in tokens.
func (t *Tuning) cachedTokens(c *Candidate) int {
	return int(math.Round(t.overlap(c) * float64(c.BlockSize)))
}
