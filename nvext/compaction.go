package nvext

import "encoding/json"

// Compaction is what Codex tells of a request that sums up its conversation, in its
// own words.
type Compaction struct {
	Trigger, Reason, Implementation, Phase, Strategy string
}

// Compaction returns what the sources say of a compaction, nil if the request is
// none. It changes nothing about the request, and stands in the metadata of a turn
// that Codex sends with its thread.
func (s Sources) Compaction() *Compaction {
	if s.header("Thread-Id") == "" {
		return nil
	}
	text, kind := s.Header("X-Codex-Turn-Metadata"), ""
	// Only the members that are read are parsed, and what they hold of another kind is
	// as good as missing: others may say there what they like.
	var turn, told map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &turn) != nil || json.Unmarshal(turn["request_kind"], &kind) != nil || kind != "compaction" {
		return nil
	}
	_ = json.Unmarshal(turn["compaction"], &told)
	say := func(key string) (word string) {
		_ = json.Unmarshal(told[key], &word)
		return word
	}
	return &Compaction{say("trigger"), say("reason"), say("implementation"), say("phase"), say("strategy")}
}

// InBody says whether the member agent_context of the extension names the chain, and
// not one of the sources ahead of it.
func (s Sources) InBody() bool {
	return s.Ext != nil && s.Ext.AgentContext != nil && s.Ext.AgentContext.TrajectoryID != "" &&
		s.header("X-Dynamo-Session-Id", "X-Dynamo-Trajectory-Id") == ""
}

// Final returns what the headers say of whether more of the chain will come, nil if
// they say nothing.
func (s Sources) Final() *bool {
	return truth(s.header("X-Dynamo-Session-Final", "X-Dynamo-Trajectory-Final"))
}
