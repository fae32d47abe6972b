package router

import "math"

// ask is what the cost depends on besides the candidate.
type ask struct {
	tokens int // of the prompt
	// minPrefill is the least outstanding prefill among all candidates, tokens.
	minPrefill int
	// prefillPool says that the candidates do prefill alone.
	prefillPool bool
}

// cost returns what a request costs on c, in blocks: prefill that is waiting or
// new, less what is cached, and the blocks in use once it decodes.
func (t *Tuning) cost(a ask, c *Candidate) float64 {
	size := float64(c.BlockSize)
	credit := t.OverlapScoreCredit
	if t.TrackPrefillTokens && t.OverlapScoreCreditDecay > 0 {
		blocks := max(1, math.Ceil(float64(a.tokens)/size))
		ahead := float64(c.PrefillTokens-a.minPrefill) / size
		credit /= 1 + t.OverlapScoreCreditDecay*ahead/blocks
	}
	saved := credit*float64(c.Device) +
		t.HostCacheHitWeight*float64(c.Host) +
		t.DiskCacheHitWeight*float64(c.Disk) +
		t.SharedCacheMultiplier*float64(c.Shared)
	decode := float64(c.DecodeBlocks)
	requests := t.DecodeActiveRequestWeight * float64(c.Requests)
	if !t.TrackPrefillTokens {
		if !a.prefillPool && t.OverlapScoreCredit > 0 {
			return max(0, decode-saved) + requests
		}
		return decode + requests
	}
	// Cached tokens are added back: their credit is taken once, above.
	cached := t.cachedTokens(c)
	prefill := float64(c.PrefillTokens+a.tokens-min(cached, a.tokens)+cached) / size
	return t.PrefillLoadScale*max(0, prefill-saved) + decode + requests
}

// overlap returns the cached blocks on c, each by the weight of its tier.
func (t *Tuning) overlap(c *Candidate) float64 {
	return float64(c.Device) + t.HostCacheHitWeight*float64(c.Host) + t.DiskCacheHitWeight*float64(c.Disk)
}

// cachedTokens returns the overlap in tokens.
func (t *Tuning) cachedTokens(c *Candidate) int {
	return int(math.Round(t.overlap(c) * float64(c.BlockSize)))
}
