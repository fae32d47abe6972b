package enginetest

import "github.com/dynago/dynago/engine"

// anything is for tests of engines whatever they take; the others are of engines that
// take tokens.
const anything engine.Input = "anything"

// tests is the contract, in the order of its numbers.
var tests = []test{
	{name: "01-construction", in: anything, run: construction},
	{name: "02-ready-has-a-card", in: anything, run: readyHasCard},
	{name: "03-restart-is-another-epoch", hook: "restart", run: restartEpoch},
	{name: "03-connection-lost", rare: true, hook: "slow cut", run: connectionLost},
	{name: "04-drain", hook: "slow drain", run: drain},
	{name: "05-one-end", run: oneEnd},
	{name: "06-same-every-time", run: sameEveryTime},
	{name: "06-goes-on", rare: true, needs: engine.Features{engine.FeatureContinues}, run: goesOn},
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
	{name: "18-gone-while-waiting", rare: true, hook: "meeting", run: goneWhileWaiting},
	{name: "19-killed", hook: "slow restart", run: killed},
	{name: "20-full", rare: true, hook: "full", run: full},
	{name: "21-slow-consumer", run: slowConsumer},
	{name: "22-nothing-left", run: nothingLeft},
	{name: "23-handoff", rare: true, hook: "legs", run: handoff},
	{name: "24-two-legs", rare: true, hook: "legs", run: twoLegs},
	{name: "25-events-fold", needs: engine.Features{engine.FeatureEvents}, run: eventsFold},
	{name: "25-namespaces", needs: engine.Features{engine.FeatureEvents, engine.FeatureCacheSalt, engine.FeatureCachedTokens}, run: namespaces},
	{name: "26-resume", needs: engine.Features{engine.FeatureEvents}, run: resume},
	{name: "26-loss", needs: engine.Features{engine.FeatureEvents, engine.FeatureCachedTokens}, hook: "lose", run: loss},
	{name: "27-restart", needs: engine.Features{engine.FeatureEvents}, hook: "restart", run: restart},
	{name: "28-load", hook: "slow", run: load},
	{name: "29-abilities", in: anything, run: abilities},
	{name: "29-sessions", rare: true, needs: engine.Features{engine.FeatureSessions}, run: sessions},
	{name: "29-controls", rare: true, when: func(c *engine.Card) bool { return len(c.Controls) > 0 }, run: controls},
	{name: "30-tensors", in: engine.InputTensor, run: tensors},
}
