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
	var turn struct {
		Kind       any            `json:"request_kind"`
		Compaction map[string]any `json:"compaction"`
	}
	text := s.Header("X-Codex-Turn-Metadata")
	if text == "" || json.Unmarshal([]byte(text), &turn) != nil || turn.Kind != "compaction" {
		return nil
	}
	say := func(key string) string {
		word, _ := turn.Compaction[key].(string)
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
