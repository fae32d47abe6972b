package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

type traceShow struct {
	recordedSettings
	Session string `name:"session" env:"DYN_SESSION" placeholder:"ID" help:"Show only this session, chain or run, and what is below it."`
	Most    int    `name:"most-sessions" env:"DYN_MOST_SESSIONS" default:"20" range:"1.." placeholder:"N" help:"Show no more sessions than so many."`
	Alone   bool   `name:"alone" env:"DYN_ALONE" negatable:"" help:"Show requests that belong to no session, too."`
	JSON    bool   `name:"json" env:"DYN_JSON" negatable:"" help:"Show all that is known as a JSON object."`
}

// Run looks at a trace twice: which chains there are, and then at those that are wanted.
// What it holds is the names of all and the turns of those.
func (c *traceShow) Run(to outlet) error {
	rows, _, err := c.rows(to, true)
	if err != nil {
		return err
	}
	var kin tree.Kin
	alone := 0
	for r, err := range rows {
		if err != nil {
			return err
		}
		if kin.Add(r.Record); r.Agent == nil && r.EventType == trace.RequestEnd {
			alone++
		}
	}
	wanted, more := kin.Roots(c.Most)
	if c.Session != "" {
		if wanted, more = kin.Of(c.Session), 0; len(wanted) == 0 {
			return fmt.Errorf("--session: %q: no record is of such a session, chain or run", c.Session)
		}
	}
	if c.Alone {
		wanted[""] = true
	}
	b := tree.Builder{Only: func(chain string) bool { return wanted[chain] }}
	if rows, _, err = c.rows(to, false); err != nil {
		return err
	}
	for r, err := range rows {
		if err != nil {
			return err
		}
		b.Add(r.Record)
	}
	t := b.Tree()
	if c.JSON {
		return showJSON(to.out, t)
	}
	out := bufio.NewWriter(to.out)
	for _, s := range t.Sessions {
		sketch(out, chainNode(s, "session"))
	}
	if len(t.Alone.Turns) > 0 {
		sketch(out, chainNode(t.Alone, ""))
	}
	if more > 0 {
		fmt.Fprintf(out, "%s more: choose one with --session, or raise --most-sessions\n", count(more, "session"))
	}
	if alone > 0 && !c.Alone && c.Session == "" {
		fmt.Fprintf(out, "%s of no session: --alone shows them\n", count(alone, "request"))
	}
	return out.Flush()
}

// node is a few lines and what is below them.
type node struct {
	lines []string
	below []*node
}

// deepest is how far lines are indented.
const deepest = 32

// sketch draws a node and all below it.
func sketch(out *bufio.Writer, root *node) {
	var draw func(n *node, head, rest string, depth int)
	draw = func(n *node, head, rest string, depth int) {
		for i, line := range n.lines {
			if i == 0 {
				fmt.Fprintln(out, head+line)
				continue
			}
			bar := "   "
			if len(n.below) > 0 {
				bar = "│  "
			}
			fmt.Fprintln(out, rest+bar+line)
		}
		for i, b := range n.below {
			next, bar := "├─ ", "│  "
			if i == len(n.below)-1 {
				next, bar = "└─ ", "   "
			}
			if depth >= deepest {
				bar = ""
			}
			draw(b, rest+next, rest+bar, depth+1)
		}
	}
	draw(root, "", "", 0)
}

// chainNode draws a chain. Kind is what it is called: a session, or an agent.
func chainNode(c *tree.Chain, kind string) *node {
	n := &node{lines: []string{chainLine(c, kind)}}
	for i, t := range c.Turns {
		n.below = append(n.below, turnNode(t, i))
	}
	for _, u := range c.Tools {
		n.below = append(n.below, &node{lines: []string{toolLine(u)}})
	}
	for _, child := range c.Children {
		if child.Opened == nil {
			n.below = append(n.below, chainNode(child, "agent"))
		}
	}
	return n
}

func chainLine(c *tree.Chain, kind string) string {
	agents := -1 // not itself
	c.Walk(func(*tree.Chain) { agents++ })
	if c.ID == "" {
		return "requests of no session  " + count(len(c.Turns), "turn")
	}
	parts := []string{kind + " " + plain(c.ID), count(len(c.Turns), "turn")}
	if agents > 0 {
		parts = append(parts, count(agents, "sub-agent"))
	}
	if len(c.Turns) > 0 {
		end := c.Turns[0].End
		for _, t := range c.Turns {
			if t.End.After(end) {
				end = t.End
			}
		}
		parts = append(parts, c.Start().Format("2006-01-02 15:04:05.000Z"), short(end.Sub(c.Start())))
	}
	if c.Run != "" {
		parts = append(parts, strings.TrimSpace(plain(c.Type)+" run "+plain(c.Run)))
	}
	switch {
	case c.Missing:
		parts = append(parts, "nothing was recorded of it")
	case c.Disputed:
		parts = append(parts, "its records disagree about its parent")
	case c.Parent == nil && c.ParentID != "":
		parts = append(parts, "opened by "+plain(c.ParentID))
	}
	return strings.Join(parts, "  ")
}

func turnNode(t *tree.Turn, i int) *node {
	n := &node{lines: []string{turnLine(t, i), placed(t.Request)}}
	if len(t.Unasked) > 0 {
		n.lines = append(n.lines, "brings "+count(len(t.Unasked), "result")+" for which no turn that was recorded has asked")
	}
	// Tools and agents are told in the order in which they began.
	tools := t.Tools
	for _, child := range t.Children {
		for len(tools) > 0 && !tools[0].Start.After(child.Start()) {
			n.below = append(n.below, &node{lines: []string{toolLine(tools[0])}})
			tools = tools[1:]
		}
		n.below = append(n.below, chainNode(child, "agent"))
	}
	for _, u := range tools {
		n.below = append(n.below, &node{lines: []string{toolLine(u)}})
	}
	return n
}

func turnLine(t *tree.Turn, i int) string {
	r := t.Request
	parts := []string{fmt.Sprintf("turn %d", i+1), "+" + short(t.Start.Sub(t.Chain.Turns[0].Start))}
	if t.Agent != nil && t.Agent.InputTrigger != "" {
		parts = append(parts, plain(t.Agent.InputTrigger))
	}
	if t.Agent != nil && t.Agent.Compaction != nil {
		parts = append(parts, "compaction")
	}
	parts = append(parts, figures(r))
	return strings.Join(append(parts, plain(tree.Ending(r))), "  ")
}

// figures tells the tokens of a request and its times.
func figures(r *trace.Request) string {
	input, cached := r.InputTokens, ""
	if input == nil && r.Replay != nil && r.Replay.InputLength >= 0 {
		input = new(uint64(r.Replay.InputLength))
	}
	switch {
	case input != nil && r.CachedTokens != nil && *input > 0:
		cached = fmt.Sprintf(" (cached %s)", percent(float64(*r.CachedTokens)/float64(*input)))
	case input != nil:
		cached = " (cached ?)"
	}
	parts := []string{"in " + tokens(input) + cached, "out " + tokens(r.OutputTokens)}
	if r.TTFT != nil {
		parts = append(parts, "ttft "+milli(*r.TTFT))
	}
	if r.TotalTime != nil {
		parts = append(parts, "total "+milli(*r.TotalTime))
	}
	return strings.Join(parts, "  ")
}

func toolLine(u *tree.Tool) string {
	name := "tool " + plain(cmp.Or(u.Class, "?"))
	switch {
	case u.Running():
		return name + "  begun, and no end was told"
	case u.Inferred() && u.Answered != nil:
		return name + "  ≤ " + short(u.Duration) + ", until its result came"
	case u.Inferred() && u.Duration > 0 && u.Chain.ID != "":
		return name + "  ≤ " + short(u.Duration) + ", until the next turn"
	case u.Inferred():
		return name + "  nobody has told of it"
	}
	parts := []string{name}
	if u.Duration > 0 {
		parts = append(parts, short(u.Duration))
	}
	if s := u.Record.Tool.Status; s != "" {
		parts = append(parts, plain(s))
	} else if u.Failed() {
		parts = append(parts, "error")
	}
	if e := u.Record.Tool.ErrorType; e != "" {
		parts = append(parts, plain(e))
	}
	return strings.Join(parts, "  ")
}

// reasons are what of a routing decision a record may have.
type reasons struct {
	Worker     string `json:"worker"`
	Reason     string `json:"reason"`
	Session    string `json:"session"`
	Class      string `json:"policy_class"`
	Candidates int    `json:"candidates"`
	Best       []struct {
		Worker string  `json:"worker"`
		Cost   float64 `json:"cost"`
		Cached int     `json:"cached_blocks"`
	} `json:"best"`
}

// placed says where a request ran, and why.
func placed(r *trace.Request) string {
	var d reasons
	if r.Dynago != nil && len(r.Dynago.Decision) > 0 {
		_ = json.Unmarshal(r.Dynago.Decision, &d) // what cannot be read is not told
	}
	parts := []string{where(r.Worker, d.Worker)}
	if d.Reason != "" {
		parts[0] += ": " + plain(d.Reason)
	}
	if d.Candidates > 1 {
		parts = append(parts, fmt.Sprintf("of %d candidates", d.Candidates))
	}
	for _, b := range d.Best {
		if b.Worker != d.Worker {
			parts = append(parts, fmt.Sprintf("next %s for %s blocks", plain(b.Worker), number(b.Cost)))
			break
		}
	}
	if o := r.Dynago; o != nil {
		if o.OverlapBlocks != nil && o.InputBlocks != nil {
			parts = append(parts, fmt.Sprintf("expected %d of %d blocks", *o.OverlapBlocks, *o.InputBlocks))
		}
		if s := cmp.Or(o.Session, d.Session); s != "" && s != "none" {
			parts = append(parts, "session "+plain(s))
		}
		if o.Attempts > 1 {
			parts = append(parts, fmt.Sprintf("%d attempts", o.Attempts))
		}
		if o.ReusedTokens != nil && o.LastTokens != nil && *o.LastTokens > 0 {
			parts = append(parts, fmt.Sprintf("begins with %s of the turn before", percent(float64(*o.ReusedTokens)/float64(*o.LastTokens))))
		}
		if o.Error != "" {
			parts = append(parts, "error "+plain(o.Error))
		}
	} else if r.KVHitRate != nil {
		parts = append(parts, "expected "+percent(*r.KVHitRate))
	}
	if r.QueueTime != nil && *r.QueueTime > 0 {
		parts = append(parts, "queued "+milli(*r.QueueTime))
	}
	return strings.Join(parts, ", ")
}

// where names the workers of a request, that of the prompt first.
func where(w *trace.Worker, name string) string {
	if w == nil || w.PrefillWorkerID == nil && w.DecodeWorkerID == nil {
		return cmp.Or(plain(name), "on a worker that was not recorded")
	}
	one := func(id *uint64, rank *uint32) string {
		if id == nil {
			return "?"
		}
		s := strconv.FormatUint(*id, 10)
		if rank != nil && *rank > 0 {
			s += fmt.Sprintf(" rank %d", *rank)
		}
		return s
	}
	prefill, decode := one(w.PrefillWorkerID, w.PrefillRank), one(w.DecodeWorkerID, w.DecodeRank)
	if prefill != decode {
		return "prefill on " + prefill + ", decode on " + decode
	}
	if name != "" {
		return "on " + plain(name) + " (" + prefill + ")"
	}
	return "on " + prefill
}

// plain returns text of clients so that it cannot move the cursor of a terminal.
func plain(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func tokens(n *uint64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatUint(*n, 10)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func milli(ms float64) string { return short(time.Duration(min(ms, 1e12) * 1e6)) }

// short returns a time in a few digits: 0.81 ms, 44.5 ms, 3.20 s, 5m3s.
func short(d time.Duration) string {
	switch ms := float64(d) / 1e6; {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.2f ms", ms)
	}
}

// Sessions as JSON.
type (
	shownTree struct {
		Sessions   []shownChain `json:"sessions"`
		Alone      []shownTurn  `json:"alone,omitempty"`
		Duplicates int          `json:"duplicates"`
	}
	shownChain struct {
		ID       string       `json:"session_id"`
		Parent   string       `json:"parent_session_id,omitzero"`
		Run      string       `json:"run_id,omitzero"`
		Type     string       `json:"run_type,omitzero"`
		Missing  bool         `json:"missing,omitzero"`
		Disputed bool         `json:"disputed,omitzero"`
		Turns    []shownTurn  `json:"turns"`
		Tools    []shownTool  `json:"tools,omitempty"`  // of no turn
		Agents   []shownChain `json:"agents,omitempty"` // opened by no turn that is known
	}
	shownTurn struct {
		Start   string              `json:"start"`
		End     string              `json:"end"`
		Trigger string              `json:"input_trigger,omitzero"`
		Ending  string              `json:"ending"`
		Cached  *float64            `json:"cached_share,omitzero"`
		Placed  string              `json:"placed"`
		Agent   *trace.AgentContext `json:"agent_context,omitzero"`
		Request *trace.Request      `json:"request"`
		Tools   []shownTool         `json:"tools,omitempty"`
		Unasked []string            `json:"unasked_results,omitempty"`
		Agents  []shownChain        `json:"agents,omitempty"`
	}
	shownTool struct {
		ID       string   `json:"tool_call_id,omitzero"`
		Class    string   `json:"tool_class"`
		Start    string   `json:"start"`
		Duration *float64 `json:"duration_ms,omitzero"`
		Inferred bool     `json:"inferred,omitzero"`
		Running  bool     `json:"running,omitzero"`
		Failed   bool     `json:"failed,omitzero"`
		Status   string   `json:"status,omitzero"`
		Answered string   `json:"answered_by,omitzero"` // id of the request that brings the result
	}
)

func showJSON(out io.Writer, t *tree.Tree) error {
	shown := shownTree{Sessions: []shownChain{}, Alone: shownTurns(t.Alone.Turns), Duplicates: t.Duplicates}
	for _, s := range t.Sessions {
		shown.Sessions = append(shown.Sessions, showChain(s))
	}
	if err := json.MarshalWrite(out, shown, jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

func showChain(c *tree.Chain) shownChain {
	s := shownChain{
		ID: c.ID, Parent: c.ParentID, Run: c.Run, Type: c.Type, Missing: c.Missing, Disputed: c.Disputed,
		Turns: shownTurns(c.Turns), Tools: shownTools(c.Tools),
	}
	for _, child := range c.Children {
		if child.Opened == nil {
			s.Agents = append(s.Agents, showChain(child))
		}
	}
	return s
}

func shownTurns(turns []*tree.Turn) []shownTurn {
	list := []shownTurn{}
	for _, t := range turns {
		s := shownTurn{
			Start: instant(t.Start), End: instant(t.End), Ending: tree.Ending(t.Request), Placed: placed(t.Request),
			Agent: t.Agent, Request: t.Request, Tools: shownTools(t.Tools), Unasked: t.Unasked,
		}
		if t.Agent != nil {
			s.Trigger = t.Agent.InputTrigger
		}
		if r := t.Request; r.InputTokens != nil && r.CachedTokens != nil && *r.InputTokens > 0 {
			s.Cached = new(float64(*r.CachedTokens) / float64(*r.InputTokens))
		}
		for _, child := range t.Children {
			s.Agents = append(s.Agents, showChain(child))
		}
		list = append(list, s)
	}
	return list
}

func shownTools(tools []*tree.Tool) []shownTool {
	var list []shownTool
	for _, u := range tools {
		s := shownTool{ID: u.ID, Class: u.Class, Start: instant(u.Start), Inferred: u.Inferred(), Running: u.Running(), Failed: u.Failed()}
		if u.Duration > 0 && (!u.Inferred() || u.Chain.ID != "") {
			s.Duration = new(float64(u.Duration) / float64(time.Millisecond))
		}
		if u.Record != nil {
			s.Status = u.Record.Tool.Status
		}
		if u.Answered != nil {
			s.Answered = u.Answered.Request.RequestID
		}
		list = append(list, s)
	}
	return list
}

func instant(t time.Time) string { return t.Format("2006-01-02T15:04:05.000000Z") }
