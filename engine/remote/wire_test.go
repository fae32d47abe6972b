package remote

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// fill sets every field of a value to something that is not its zero, and different
// from field to field. Fields that do not go over the wire, and those whose values
// cannot be anything, are set by special.
type fill struct {
	n       int
	special func(path string, v reflect.Value) bool
}

func (f *fill) value(path string, v reflect.Value, depth int) {
	if f.special(path, v) || depth > 12 {
		return
	}
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(f.n), 0).UTC()))
		return
	case time.Duration:
		v.Set(reflect.ValueOf(time.Duration(f.n) * time.Second))
		return
	case json.RawMessage:
		v.SetBytes([]byte(fmt.Sprintf(`{"n":%d000000000000000001}`, f.n)))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.n))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n % 90))
	case reflect.Float64:
		v.SetFloat(float64(f.n) / 7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.value(path, v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.value(path+"[]", v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.value(path+"{}", key, depth+1)
		f.value(path+"{}", value, depth+1)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f.value(path+"."+v.Type().Field(i).Name, v.Field(i), depth+1)
		}
	default:
		panic(path + ": nothing is known of " + v.Type().String())
	}
}

// over sends a message over the wire.
func over[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Every field of a request arrives, or is named here.
func TestRequestArrives(t *testing.T) {
	stays := []string{
		".Trace",                                              // metadata of the call
		".Chat.Sampling",                                      // the request has it, in the engine's words
		".Chat.Cache", ".Chat.KeepCached", ".Chat.Summarized", // the request's directives have it
		".Chat.Truncate",                                                        // done by the frontend
		".Chat.Output.Member",                                                   // for messages of the frontend
		".Format.Member",                                                        // likewise
		".Chat.Prompt.IDs", ".Chat.Prompt.NoSpecialTokens", ".Chat.Prompt.Echo", // of texts there are only texts
	}
	words := map[string]any{
		".Disagg.Phase": engine.PhaseDecode, ".KV.Class": kv.ClassEphemeral,
		".Stop.MaxTokens": 7, ".Chat.Thinking.Adaptive": true, ".Format.Kind": chat.FormatJSONSchema,
	}
	for kind, sets := range map[chat.FormatKind]string{
		chat.FormatJSONSchema: ".Format.Schema", chat.FormatStructuralTag: ".Format.Schema", chat.FormatJSONObject: "",
		chat.FormatRegex: ".Format.Pattern", chat.FormatGrammar: ".Format.Pattern", chat.FormatChoice: ".Format.Choices",
	} {
		words[".Format.Kind"] = kind
		want := &engine.Request{}
		f := fill{special: func(path string, v reflect.Value) bool {
			switch {
			case slices.Contains(stays, path), strings.HasSuffix(path, ".Media.Path"), strings.HasSuffix(path, ".Tools[].Wire"):
				return true
			case strings.HasSuffix(path, ".Result.Blocks") && strings.Count(path, ".Result") > 1:
				return true
			case strings.HasSuffix(path, "Blocks[].Kind"), strings.HasSuffix(path, "System[].Kind"):
				v.Set(reflect.ValueOf(chat.Image))
				return true
			case strings.HasSuffix(path, ".Media.Source"):
				v.SetString("base64")
				return true
			case strings.HasSuffix(path, ".Media.Data"):
				v.SetString(base64.StdEncoding.EncodeToString([]byte(path)))
				return true
			case strings.HasPrefix(path, ".Format.") && path != sets && !slices.Contains([]string{".Format.Kind", ".Format.Name", ".Format.Strict"}, path):
				return true
			}
			w, ok := words[path]
			if ok {
				v.Set(reflect.ValueOf(w).Convert(v.Type()))
			}
			return ok
		}}
		f.value("", reflect.ValueOf(want).Elem(), 0)
		m, err := requestMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, requestOf(over(t, m))); diff != "" {
			t.Errorf("%s (-sent +arrived)\n%s", kind, diff)
		}
	}
}

// Of a request of which nothing is said, nothing arrives.
func TestEmptyRequestArrives(t *testing.T) {
	for _, want := range []*engine.Request{{}, {Chat: &chat.Request{}}} {
		m, err := requestMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, requestOf(over(t, m))); diff != "" {
			t.Errorf("(-sent +arrived)\n%s", diff)
		}
	}
}

func TestMediaArrive(t *testing.T) {
	for source, data := range map[string]string{"url": "https://h/i.png", "file": "file-1", "base64": "aGk="} {
		want := &engine.Request{Chat: &chat.Request{System: []chat.Block{{Kind: chat.Image, Media: &chat.Media{Source: source, Data: data}}}}}
		m, err := requestMessage(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, requestOf(over(t, m))); diff != "" {
			t.Error(diff)
		}
	}
	bad := &engine.Request{Chat: &chat.Request{System: []chat.Block{{Kind: chat.Image, Media: &chat.Media{Source: "base64", Data: "?", Path: "messages[0]"}}}}}
	_, err := requestMessage(bad)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.InvalidArgument || e.Param != "messages[0]" {
		t.Errorf("%v", err)
	}
}

func TestCardArrives(t *testing.T) {
	words := map[string]any{
		".Role": engine.Prefill, ".Needs[]": engine.Decode, ".Accepts[]": engine.InputChat,
		".Disagg.Port": 65535, ".Tensor.Inputs[].Parameters": engine.Parameters{"n": int64(3)}, ".Tensor.Outputs[].Parameters": engine.Parameters{"s": "x"},
	}
	want := &engine.Card{}
	f := fill{special: func(path string, v reflect.Value) bool {
		w, ok := words[path]
		if ok {
			v.Set(reflect.ValueOf(w).Convert(v.Type()))
		}
		return ok
	}}
	f.value("", reflect.ValueOf(want).Elem(), 0)
	if diff := cmp.Diff(want, cardOf(over(t, cardMessage(want)))); diff != "" {
		t.Errorf("(-sent +arrived)\n%s", diff)
	}
	for _, want := range []*engine.Card{{}, {Adapters: []string{}}} {
		if diff := cmp.Diff(want, cardOf(over(t, cardMessage(want)))); diff != "" {
			t.Errorf("(-sent +arrived)\n%s", diff)
		}
	}
	unhashed := &engine.Card{Features: engine.Features{engine.FeatureEvents, engine.FeatureSeed}}
	if got := cardOf(cardMessage(unhashed)).Features; !slices.Equal(got, engine.Features{engine.FeatureSeed}) {
		t.Errorf("features %v of a worker that does not say how its blocks are hashed", got)
	}
}

func TestDeltaArrives(t *testing.T) {
	want := engine.Delta{}
	f := fill{special: func(path string, v reflect.Value) bool {
		switch {
		case path == ".Finish":
			v.SetString(string(engine.FinishContentFilter))
			return true
		case strings.Count(path, ".Top") > 2:
			return true
		}
		return false
	}}
	f.value("", reflect.ValueOf(&want).Elem(), 0)
	if diff := cmp.Diff(want, deltaOf(over(t, deltaMessage(&want)))); diff != "" {
		t.Errorf("(-sent +arrived)\n%s", diff)
	}
	none := engine.Delta{PromptLogprobs: []engine.Logprob{{ID: 1, Logprob: math.NaN()}}}
	if got := deltaOf(over(t, deltaMessage(&none))); !math.IsNaN(got.PromptLogprobs[0].Logprob) {
		t.Errorf("a position without prediction became %v", got.PromptLogprobs[0])
	}
	odd := engine.Delta{Finish: "tired"}
	if got := deltaOf(over(t, deltaMessage(&odd))); got.Finish != engine.FinishStop || string(got.EngineData) != `"tired"` {
		t.Errorf("an unknown finish became %q %s", got.Finish, got.EngineData)
	}
}

func TestLoadArrives(t *testing.T) {
	want := engine.Load{Ranks: []engine.RankLoad{
		{Rank: 3, Running: 1, Waiting: 0, WaitingTokens: engine.Unknown, UsedBlocks: 5, TotalBlocks: 9, PrefixHits: 1, PrefixQueries: 2, Preemptions: 0},
		{Rank: 4, Running: engine.Unknown, Waiting: engine.Unknown, WaitingTokens: 0, UsedBlocks: engine.Unknown, TotalBlocks: engine.Unknown, PrefixHits: engine.Unknown, PrefixQueries: engine.Unknown, Preemptions: engine.Unknown},
	}}
	if diff := cmp.Diff(want, loadOf(loadMessages(want, time.Second))); diff != "" {
		t.Error(diff)
	}
	for _, r := range loadOf(loadMessages(want, 6*time.Second)).Ranks {
		if r.Running != engine.Unknown || r.UsedBlocks != engine.Unknown {
			t.Errorf("a reading of 6 s ago is used: %+v", r)
		}
	}
}

// Every kind arrives, with all that belongs to it.
func TestErrorArrives(t *testing.T) {
	for kind := range codeOf {
		want := &engine.Error{Kind: kind, Message: "what was wrong", Param: "stop", Code: "finer", Status: 418, RetryAfter: 3 * time.Second}
		trailer, st := statusOf(want)
		got := errorOf(st, trailer, true)
		want.FromEngine = true
		switch kind { // these are never a worker's
		case engine.ResourceExhausted:
			want.Kind = engine.WorkerOverloaded
		case engine.Cancelled:
			want.Kind = engine.EngineShutdown
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-sent +arrived)\n%s", kind, diff)
		}
		if s := status.Convert(st); s.Code() != codeOf[kind] {
			t.Errorf("%s has code %s", kind, s.Code())
		}
		back, _ := errors.AsType[*engine.Error](errorOfMessage(errorMessage(want)))
		if back == nil || back.Kind != want.Kind || back.Message != want.Message || back.Status != 418 || back.RetryAfter != 3*time.Second {
			t.Errorf("%s among many calls became %+v", kind, back)
		}
	}
	if err := errorOfMessage(errorMessage(nil)); err != nil {
		t.Errorf("success became %v", err)
	}
}

// Whatever events an engine yields, what arrives keeps their order, and what it says.
func TestChatEventsArrive(t *testing.T) {
	cached := 2
	sent := []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 9, Cached: &cached}},
		{Kind: chat.BlockStart, Index: 0, BlockKind: chat.Thought},
		{Kind: chat.ThinkingDelta, Index: 0, Text: "hm", IDs: []uint32{1}, Logprobs: []chat.Logprob{{ID: 1, Logprob: -1, Text: "hm", Bytes: []byte("hm")}}},
		{Kind: chat.BlockStop, Index: 0},
		{Kind: chat.BlockStart, Index: 1, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Index: 1, Text: "a"},
		{Kind: chat.BlockStop, Index: 1},
		{Kind: chat.BlockStart, Index: 2, BlockKind: chat.ToolCall, Tool: &chat.ToolUse{ID: "c", Name: "f", Kind: chat.ToolFunction}},
		{Kind: chat.ArgsDelta, Index: 2, Text: `{"a":`},
		{Kind: chat.BlockStop, Index: 2, Truncated: true},
		{Kind: chat.BlockStart, Index: 3, BlockKind: chat.Refusal},
		{Kind: chat.RefusalDelta, Index: 3, Text: "no"},
		{Kind: chat.BlockStop, Index: 3},
		{Kind: chat.UsageUpdate, Usage: chat.Usage{Prompt: 9, Cached: &cached, Output: 4}},
		{Kind: chat.Finished, Usage: chat.Usage{Prompt: 9, Cached: &cached, Output: 4}, Finish: chat.Finish{Reason: chat.FinishStopSequence, StopText: "x"}},
	}
	var read reading
	var got []chat.Event
	for i := range sent {
		for _, m := range eventMessages(&sent[i]) {
			events, err := read.take(over(t, m))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, events...)
		}
	}
	// That an answer used as much as was told a moment ago is told again.
	sent = slices.Insert(sent, 14, sent[13])
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("(-sent +arrived)\n%s", diff)
	}
}

// Small backends leave out what can be known.
func TestChatEventsOfSmallBackends(t *testing.T) {
	text := func(s string) *workerpb.ChatEvent {
		return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Delta{Delta: &workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Text{Text: s}}}}
	}
	thought := &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Delta{Delta: &workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Thinking{Thinking: "t"}}}}
	end := &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Finish{Finish: &workerpb.ChatFinish{Reason: "whatever"}}}
	var read reading
	var kinds []string
	for _, m := range []*workerpb.ChatEvent{text("a"), text("b"), thought, text("c"), {}, end} {
		events, err := read.take(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			kinds = append(kinds, fmt.Sprintf("%d/%d", e.Kind, e.Index))
		}
	}
	const want = "1/0 2/0 3/0 3/0 7/0 2/1 4/1 7/1 2/2 3/2 7/2 9/0"
	if got := strings.Join(kinds, " "); got != want || !read.finished {
		t.Errorf("events %s\nwant   %s", got, want)
	}
	for name, m := range map[string]*workerpb.ChatEvent{
		"arguments of no call":    {Event: &workerpb.ChatEvent_Delta{Delta: &workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Arguments{Arguments: []byte("x")}}}},
		"a call without a name":   {Event: &workerpb.ChatEvent_Start{Start: &workerpb.BlockStart{Kind: "tool_use"}}},
		"a block of another kind": {Event: &workerpb.ChatEvent_Start{Start: &workerpb.BlockStart{Kind: "hologram"}}},
	} {
		if _, err := new(reading).take(m); engine.KindOf(err) != engine.Internal {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the wire can say, no message makes a reader fall over.
func FuzzEvents(f *testing.F) {
	w := eventWriter{rebuilding: map[uint32]bool{}}
	for _, b := range []kv.Batch{
		{Rank: 1, Epoch: 2, First: 3, Last: 3, Events: []kv.Event{{Kind: kv.Stored, Blocks: []kv.Block{{Engine: 4, Local: 5}}}}},
		{Gap: kv.GapLost},
		{Snapshot: kv.SnapshotEnd, Last: 9},
		{Last: 9},
	} {
		for _, m := range w.messages(&b) {
			raw, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m workerpb.EventBatch
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		r := eventReader{rebuilding: map[uint32]bool{}, scheme: 2, plain: true}
		b, ok, err := r.batch(&m)
		if ok && err == nil && b.Snapshot == kv.SnapshotNone && b.Gap == "" && len(b.Events) > 0 && b.Last-b.First+1 != uint64(len(b.Events)) {
			t.Errorf("%d events as those from %d to %d", len(b.Events), b.First, b.Last)
		}
	})
}

func FuzzGenerateRequest(f *testing.F) {
	m, err := requestMessage(&engine.Request{TokenIDs: []uint32{1}, Chat: &chat.Request{Turns: []chat.Turn{{Blocks: []chat.Block{{Kind: chat.Text}}}}}})
	if err != nil {
		f.Fatal(err)
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m workerpb.GenerateRequest
		if proto.Unmarshal(raw, &m) != nil {
			return
		}
		r := requestOf(&m)
		again, err := requestMessage(r)
		if err != nil {
			t.Fatalf("what was read cannot be said: %v", err)
		}
		if diff := cmp.Diff(r, requestOf(again)); diff != "" {
			t.Errorf("it is another one when it is said again: %s", diff)
		}
	})
}

// Whatever a worker sends, the events of an answer keep their order.
func FuzzChatEvents(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, script []byte) {
		var read reading
		open, next, started := false, 0, false
		for _, step := range script {
			events, err := read.take(scripted(step))
			if err != nil {
				return
			}
			for _, e := range events {
				switch {
				case (e.Kind == chat.Start) == started, read.finished && e.Kind != chat.Finished && e.Kind != chat.BlockStop && e.Kind != chat.Start:
					t.Fatalf("%+v out of order", e)
				case e.Kind == chat.Start:
					started = true
				case e.Kind == chat.BlockStart && (open || e.Index != next):
					t.Fatalf("block %d begins, open %v, next %d", e.Index, open, next)
				case e.Kind == chat.BlockStart:
					open = true
				case e.Kind == chat.BlockStop && (!open || e.Index != next):
					t.Fatalf("block %d ends, open %v, next %d", e.Index, open, next)
				case e.Kind == chat.BlockStop:
					open = false
					next++
				case e.Kind == chat.Finished && open:
					t.Fatal("the answer ends in a block")
				case (e.Kind == chat.TextDelta || e.Kind == chat.ThinkingDelta || e.Kind == chat.ArgsDelta || e.Kind == chat.RefusalDelta) && (!open || e.Index != next):
					t.Fatalf("a piece of block %d, open %v, next %d", e.Index, open, next)
				}
			}
			if read.finished {
				return
			}
		}
	})
}

// scripted is one of the messages that a worker may send.
func scripted(n byte) *workerpb.ChatEvent {
	d := &workerpb.BlockDelta{}
	start := func(kind string) *workerpb.ChatEvent {
		return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Start{Start: &workerpb.BlockStart{Kind: kind, Tool: &workerpb.ToolUse{Name: "f"}}}}
	}
	switch n % 11 {
	case 0:
		d.Piece = &workerpb.BlockDelta_Text{Text: "x"}
	case 1:
		d.Piece = &workerpb.BlockDelta_Thinking{Thinking: "x"}
	case 2:
		d.Piece = &workerpb.BlockDelta_Refusal{Refusal: "x"}
	case 3:
		d.Piece = &workerpb.BlockDelta_Arguments{Arguments: []byte("x")}
	case 4:
		return start("text")
	case 5:
		return start("tool_use")
	case 6:
		return start("thinking")
	case 7:
		return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Stop{Stop: &workerpb.BlockStop{}}}
	case 8:
		return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Usage{Usage: &workerpb.Usage{OutputTokens: uint32(n)}}}
	case 9:
		return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Finish{Finish: &workerpb.ChatFinish{}}}
	case 10:
		return &workerpb.ChatEvent{}
	}
	return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Delta{Delta: d}}
}
