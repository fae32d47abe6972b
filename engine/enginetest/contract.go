package enginetest

import "github.com/dynago/dynago/engine"

// tests is the contract, in the order of its numbers. Missing numbers wait for
// engines that have what they are about: hand-off from prefill to decode (18, 23,
// 24), a limit of their own on what they admit (20), sessions and pins (29),
// tensors (30).
var tests = []test{
	{name: "01-construction", run: construction},
	{name: "02-ready-has-a-card", run: readyHasCard},
	{name: "03-restart-is-another-epoch", hook: "restart", run: restartEpoch},
	{name: "04-drain", hook: "slow drain", run: drain},
	{name: "05-one-end", run: oneEnd},
	{name: "06-same-every-time", run: sameEveryTime},
	{name: "07-logprobs", needs: engine.Features{engine.FeatureLogprobs}, run: logprobs},
	{name: "07-prompt-logprobs", needs: engine.Features{engine.FeaturePromptLogprobs}, run: promptLogprobs},
	{name: "08-limits", run: limits},
	{name: "09-stop-ids", needs: engine.Features{engine.FeatureStopIDs}, run: stopIDs},
	{name: "10-usage", run: usage},
	{name: "11-cached-tokens", needs: engine.Features{engine.FeatureEvents, engine.FeatureCachedTokens}, run: cachedTokens},
	{name: "12-streams-do-not-mix", run: doNotMix},
	{name: "13-one-loop", run: oneLoop},
	{name: "14-refusals", run: refusals},
	{name: "15-leaving", hook: "slow", run: leaving},
	{name: "16-cancelled", hook: "slow", run: cancelled},
	{name: "17-deadline", hook: "slow", run: deadline},
	{name: "19-killed", hook: "slow restart", run: killed},
	{name: "21-slow-consumer", run: slowConsumer},
	{name: "22-nothing-left", run: nothingLeft},
	{name: "25-events-fold", needs: engine.Features{engine.FeatureEvents}, run: eventsFold},
	{name: "25-namespaces", needs: engine.Features{engine.FeatureEvents, engine.FeatureCacheSalt, engine.FeatureLoRA, engine.FeatureCachedTokens}, run: namespaces},
	{name: "26-resume", needs: engine.Features{engine.FeatureEvents}, run: resume},
	{name: "26-loss", needs: engine.Features{engine.FeatureEvents, engine.FeatureCachedTokens}, hook: "lose", run: loss},
	{name: "27-restart", needs: engine.Features{engine.FeatureEvents}, hook: "restart", run: restart},
	{name: "28-load", hook: "slow", run: load},
}
