package vllm

import (
	"cmp"

	"github.com/dynago/dynago/engine"
)

// defaultMaxLogprobs is how many alternatives a server gives unless told
// otherwise.
const defaultMaxLogprobs = 20

// card puts together what is known of the server.
func (e *Engine) card(b *build, model *served, models []served, page readings) *engine.Card {
	info := &b.server.Config
	c := &engine.Card{
		Model:            model.ID,
		Engine:           "vllm " + b.version,
		Accepts:          []engine.Input{engine.InputTokens},
		ContextLength:    e.config.ContextLength,
		BlockSize:        e.config.BlockSize,
		DPStart:          e.config.DPStart,
		TotalBlocks:      e.config.TotalBlocks,
		MaxSeqs:          info.Scheduler.MaxSeqs,
		MaxBatchedTokens: info.Scheduler.MaxBatchedTokens,
		MaxLogprobs:      defaultMaxLogprobs,
		EOS:              e.config.EOS,
	}
	if model.MaxModelLen != nil {
		c.ContextLength = cmp.Or(c.ContextLength, *model.MaxModelLen)
	}
	c.ContextLength = cmp.Or(c.ContextLength, info.Model.MaxModelLen)
	c.BlockSize = cmp.Or(c.BlockSize, b.blockSize.Load())
	if n, ok := page.config("block_size"); ok {
		c.BlockSize = cmp.Or(c.BlockSize, uint32(n))
	}
	if c.BlockSize > 0 {
		c.HashScheme = engine.SchemeXXH3
	}
	if n, ok := page.config("num_gpu_blocks"); ok {
		c.TotalBlocks = cmp.Or(c.TotalBlocks, n)
	}
	if n := info.Model.MaxLogprobs; n != nil && *n >= 0 {
		c.MaxLogprobs = uint32(*n)
	}
	ranks := page.ranks()
	switch {
	case e.config.DPSize > 0:
		c.DPSize = e.config.DPSize
	case len(ranks) > 0:
		// Of a node that has some of the ranks, they do not begin with 0.
		c.DPSize = uint32(len(ranks))
		c.DPStart = cmp.Or(c.DPStart, ranks[0])
	default:
		c.DPSize = max(1, info.Parallel.Size)
	}
	for i := range models {
		switch m := &models[i]; {
		case m.Parent != nil:
			c.Adapters = append(c.Adapters, m.ID)
		case m.ID != model.ID:
			c.Aliases = append(c.Aliases, m.ID)
		}
	}
	lora := len(c.Adapters) > 0 || page.has("vllm:lora_requests_info") || b.paths["/v1/load_lora_adapter"] ||
		len(info.LoRA) > 0 && string(info.LoRA) != "null"
	if lora && c.Adapters == nil {
		c.Adapters = []string{}
	}
	c.Role = e.roleOf(b)
	c.Disagg = e.transferOf(b, c.Role)
	c.Features = e.features(b, c, lora)
	for i := range controls {
		if b.paths[controls[i].path] {
			c.Controls = append(c.Controls, controls[i].name)
		}
	}
	return c
}

func (e *Engine) features(b *build, c *engine.Card, lora bool) engine.Features {
	f := engine.Features{
		engine.FeatureSeed, engine.FeatureLogitBias, engine.FeatureMinTokens, engine.FeatureStopIDs,
		engine.FeatureLogprobs, engine.FeaturePromptLogprobs,
		engine.FeatureGuidedJSON, engine.FeatureGuidedObject, engine.FeatureGuidedRegex, engine.FeatureGuidedChoice,
		engine.FeatureGuidedGrammar, engine.FeatureStructuralTag,
	}
	info := &b.server.Config
	for _, may := range []struct {
		feature engine.Feature
		has     bool
	}{
		{engine.FeatureThinkingBudget, e.config.ThinkingBudget || (info.Guided.ReasoningParser != "" || info.Reasoning.Enabled) && b.field("thinking_token_budget", 0, 15)},
		{engine.FeaturePriority, e.config.Priority || info.Scheduler.Policy == "priority"},
		{engine.FeatureDPRank, c.DPSize > 1},
		{engine.FeatureLoRA, lora},
		{engine.FeatureCacheSalt, b.field("cache_salt", 0, 9)},
		{engine.FeatureCachedTokens, e.cached.Load()},
		{engine.FeatureHandoff, c.Disagg.Style != "" && c.Role != engine.Decode},
		{engine.FeatureEvents, e.eventsOf(b).Endpoint != "" && c.BlockSize > 0},
	} {
		if may.has && !b.refuses(may.feature) {
			f = append(f, may.feature)
		}
	}
	return f
}
