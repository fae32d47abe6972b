package pipeline

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/prompt"
)

// What a client wants to know besides its answer is told by events of their own, of
// kind [chat.Aside], ahead of the event that comes from the same item of its worker.
// Who asks for nothing has no asides, and pays one comparison an item. What a trace is
// told comes from the same looks at the clock.

// asides gather what one choice has to tell. They are for the goroutine of their
// choice. A nil one wants nothing.
type asides struct {
	want  nvext.Fields
	notes *Notes

	prefill  *kv.Target // that has computed the prompt for another worker; or nil
	at, told whereabouts

	arrived time.Time
	course  *Course           // its own, or that of a trace
	traced  bool              // it is that of a trace
	data    []json.RawMessage // of the engine, not told yet
	likely  []engine.Logprob
	dropped []uint32 // of text that nobody sees
}

// whereabouts are the workers of an answer; the zero value is nowhere.
type whereabouts struct {
	known           bool
	prefill, decode kv.Target
}

// asidesOf returns the asides of one choice of a request.
func asidesOf(r *Request, index int) *asides {
	const here = nvext.WantWorkerID | nvext.WantTiming | nvext.WantRoutedExperts | nvext.WantEngineData |
		nvext.WantCompletionTokenIDs | nvext.WantPromptLogprobs
	want := r.Ext.Fields() & here
	course := r.course(index)
	switch {
	case course != nil:
		return &asides{want: want, notes: r.Notes, arrived: r.Arrived, course: course, traced: true}
	case want == 0:
		return nil
	}
	return &asides{want: want, notes: r.Notes, arrived: r.Arrived, course: new(Course)}
}

// annotate notes what a client wants to know of its prompt before the answer. Only the
// APIs of plain chunks have a place for it.
func annotate(r *Request, built *prompt.Prompt) {
	switch r.Chat.API {
	case chat.APIChat:
		r.Notes.Formatted = built.Text
	case chat.APICompletions:
	default:
		return
	}
	given := r.Ext != nil && r.Ext.TokenData != nil || r.Chat.Prompt != nil && r.Chat.Prompt.IDs != nil
	if !given && r.Ext.Annotated(nvext.AnnotateTokenIDs) {
		r.Notes.TokenIDs = built.IDs
	}
}

// now returns the time, if somebody wants to know.
func (a *asides) now() time.Time {
	if !a.traced && !a.want.Has(nvext.WantTiming) {
		return time.Time{}
	}
	return time.Now()
}

// attempt begins another attempt. What was measured of one that has not answered does
// not count.
func (a *asides) attempt() {
	if a != nil && a.course.First.IsZero() {
		a.course.Sent, a.course.Computed = time.Time{}, time.Time{}
	}
}

// asked notes that a worker is asked: the first of an attempt computes the prompt.
func (a *asides) asked() {
	if a != nil && a.course.Sent.IsZero() {
		a.course.Sent = a.now()
	}
}

// legs notes which worker computes the prompt for the one that answers, or with nil
// that the latter does so itself.
func (a *asides) legs(prefill *kv.Target) {
	if a != nil {
		a.prefill = prefill
	}
}

// prefilled notes when the prompt was computed for another worker.
func (a *asides) prefilled(at time.Time) {
	if a != nil && a.course.Computed.IsZero() {
		a.course.Computed = at
	}
}

// delta takes what an item of an answer brings.
func (a *asides) delta(d *engine.Delta, from kv.Target) {
	if a == nil {
		return
	}
	a.item(len(d.TokenIDs), d.Finish != engine.Running, from)
	a.course.Finish = d.Finish
	if len(d.EngineData) > 0 && a.want.Has(nvext.WantEngineData|nvext.WantRoutedExperts) {
		a.data = append(a.data, d.EngineData)
	}
	if d.PromptLogprobs != nil {
		a.likely = d.PromptLogprobs
	}
}

// item notes that an item has come, with so many tokens.
func (a *asides) item(tokens int, last bool, from kv.Target) {
	if a == nil {
		return
	}
	a.at = whereabouts{true, from, from}
	if a.prefill != nil {
		a.at.prefill = *a.prefill
	}
	if a.traced {
		a.course.Placed, a.course.Prefill, a.course.Decode = true, a.at.prefill, a.at.decode
		a.course.Tokens += tokens
	}
	if tokens > 0 && a.course.First.IsZero() {
		a.course.First = a.now()
	}
	if last && a.course.Last.IsZero() {
		a.course.Last = a.now()
	}
}

// drop keeps the tokens of an event that nobody sees for the next one that somebody
// does.
func (a *asides) drop(e *chat.Event) {
	if a != nil && a.want.Has(nvext.WantCompletionTokenIDs) {
		a.dropped = append(a.dropped, e.IDs...)
	}
}

// ahead returns what is to be told before an event of the answer. The first one tells
// nothing: an answer begins with it.
func (a *asides) ahead(j *job, e *chat.Event) (list []chat.Event) {
	if a == nil || e.Kind == chat.Start {
		return nil
	}
	if e.Kind == chat.Finished && a.course.Last.IsZero() {
		a.course.Last = a.now()
	}
	if a.want == 0 {
		return nil
	}
	if len(a.dropped) > 0 {
		e.IDs, a.dropped = slices.Concat(a.dropped, e.IDs), nil
	}
	tell := func(name string, value []byte) {
		list = append(list, chat.Event{Kind: chat.Aside, Choice: e.Choice, Reason: name, Text: string(value)})
	}
	if a.at != a.told && a.want.Has(nvext.WantWorkerID) {
		tell(nvext.MemberWorkerID, a.at.json())
	}
	a.told = a.at
	for _, data := range a.data {
		a.engine(data, tell)
	}
	a.data = nil
	if e.Kind != chat.Finished {
		return list
	}
	if a.want.Has(nvext.WantPromptLogprobs) && a.likely != nil {
		tell(nvext.MemberPromptLogprobs, j.likelihoods(a.likely))
	}
	if a.want.Has(nvext.WantTiming) {
		timing := a.course.Timing(a.arrived, e.Usage.Output, a.notes, new(Numbers))
		tell(nvext.MemberTiming, marshal(&timing))
	}
	return list
}

func (w *whereabouts) json() []byte {
	return marshal(&nvext.Placed{
		PrefillWorkerID: &w.prefill.Worker, PrefillDPRank: &w.prefill.Rank,
		DecodeWorkerID: &w.decode.Worker, DecodeDPRank: &w.decode.Rank,
	})
}

// marshal returns JSON of what always has some.
func marshal(v any) []byte {
	text, err := jsonv2.Marshal(v, jsonv2.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return []byte("null")
	}
	return text
}

// lenient is how JSON of engines is read.
var lenient = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// engine tells what the engine has told, as it has said it.
func (a *asides) engine(data json.RawMessage, tell func(name string, value []byte)) {
	if !jsontext.Value(data).IsValid(lenient) {
		return
	}
	if a.want.Has(nvext.WantRoutedExperts) {
		var has struct {
			Experts jsontext.Value `json:"routed_experts"`
		}
		if err := jsonv2.Unmarshal(data, &has, lenient); err == nil && has.Experts != nil {
			tell(nvext.MemberRoutedExperts, has.Experts)
		}
	}
	if a.want.Has(nvext.WantEngineData) {
		tell(nvext.MemberEngineData, data)
	}
}

// likelihood is how likely one token of a prompt was.
type likelihood struct {
	Logprob float64 `json:"logprob"`
	Rank    int     `json:"rank,omitzero"`
	Token   string  `json:"decoded_token,omitzero"`
}

// likelihoods returns the log probabilities of a prompt as they are told: an object
// for each position, by token id, and null where there is no prediction.
func (j *job) likelihoods(all []engine.Logprob) []byte {
	list := make([]*map[string]likelihood, len(all))
	for i := range all {
		if math.IsNaN(all[i].Logprob) {
			continue
		}
		at := make(map[string]likelihood, 1+len(all[i].Top))
		for k := range all[i].Top {
			j.likely(at, &all[i].Top[k])
		}
		j.likely(at, &all[i])
		list[i] = &at
	}
	return marshal(list)
}

// impossible stands for a log probability that JSON has no number for.
const impossible = -9999

func (j *job) likely(at map[string]likelihood, l *engine.Logprob) {
	told := likelihood{Logprob: l.Logprob, Rank: l.Rank}
	if math.IsInf(l.Logprob, 0) || math.IsNaN(l.Logprob) {
		told.Logprob = impossible
	}
	if j.model.Tokenizer != nil {
		told.Token = strings.ToValidUTF8(string(j.model.Tokenizer.Bytes(l.ID)), "\uFFFD")
	}
	at[strconv.FormatUint(uint64(l.ID), 10)] = told
}
