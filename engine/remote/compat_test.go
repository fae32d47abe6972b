package remote

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

var update = flag.Bool("update", false, "take the service as it is for the one that holds")

const frozen = "testdata/v1.txt"

// What was released once stays as it is: fields may come, and none may go, or change
// its number or its type.
func TestServiceIsFrozen(t *testing.T) {
	now := outline(workerpb.File_dynago_worker_v1_worker_proto)
	if *update {
		if err := os.WriteFile(frozen, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("%q is gone or has changed: workers that are out there have it", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			t.Errorf("%q is new: from now on it stays, with go test ./engine/remote -run Frozen -update", line)
		}
	}
}

// outline is one line for each thing that goes over the wire.
func outline(f protoreflect.FileDescriptor) (lines []string) {
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			lines = append(lines, fmt.Sprintf("rpc %s %s stream=%v -> %s stream=%v", m.FullName(), m.Input().Name(), m.IsStreamingClient(), m.Output().Name(), m.IsStreamingServer()))
		}
	}
	for i := range f.Enums().Len() {
		e := f.Enums().Get(i)
		for j := range e.Values().Len() {
			lines = append(lines, fmt.Sprintf("enum %s %s = %d", e.Name(), e.Values().Get(j).Name(), e.Values().Get(j).Number()))
		}
	}
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		for j := range m.Fields().Len() {
			d := m.Fields().Get(j)
			kind := kindName(d)
			if d.IsMap() {
				kind = fmt.Sprintf("map<%s,%s>", d.MapKey().Kind(), kindName(d.MapValue()))
			}
			oneof := ""
			if o := d.ContainingOneof(); o != nil {
				oneof = " in " + string(o.Name())
			}
			lines = append(lines, fmt.Sprintf("%s.%s = %d %s %s%s", m.Name(), d.Name(), d.Number(), d.Cardinality(), kind, oneof))
		}
	}
	slices.Sort(lines)
	return lines
}

func kindName(d protoreflect.FieldDescriptor) string {
	switch {
	case d.Message() != nil:
		return string(d.Message().Name())
	case d.Enum() != nil:
		return string(d.Enum().Name())
	}
	return d.Kind().String()
}

// later adds to a message what only a later version knows.
func later[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	raw = protowire.AppendTag(raw, 1999, protowire.BytesType)
	raw = protowire.AppendString(raw, "from the future")
	out := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Messages of a later version are read as far as they are known here.
func TestLaterVersions(t *testing.T) {
	r := &engine.Request{ID: "1", TokenIDs: []uint32{1, 2}, Stop: engine.Stop{MaxTokens: 3}}
	m, err := requestMessage(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, requestOf(later(t, m))); diff != "" {
		t.Error(diff)
	}
	card := cardOf(later(t, &workerpb.Card{
		Model: "m", Role: 42, Needs: []workerpb.Role{42, workerpb.Role_ROLE_DECODE}, Features: []string{"telepathy", "seed"},
		Accepts: []workerpb.Input{9, workerpb.Input_INPUT_TOKENS},
	}))
	want := &engine.Card{Model: "m", Needs: []engine.Role{engine.Decode}, Features: engine.Features{"telepathy", "seed"}, Accepts: []engine.Input{engine.InputTokens}}
	if diff := cmp.Diff(want, card); diff != "" {
		t.Error(diff)
	}
	// A form of guiding that is not known here must not be taken for none.
	if f := formatOf(later(t, &workerpb.Guided{})); f == nil || f.Kind == "" {
		t.Errorf("an unknown form became %+v", f)
	}
	d := deltaOf(later(t, &workerpb.Delta{TokenIds: []uint32{5}, Finish: 88}))
	if d.Finish != engine.FinishStop || len(d.TokenIDs) != 1 || len(d.EngineData) == 0 {
		t.Errorf("%+v", d)
	}
	var read eventReader
	if _, ok, err := read.batch(later(t, &workerpb.EventBatch{First: 1, Last: 1})); ok || err != nil {
		t.Errorf("events of another kind: %v %v", ok, err)
	}
}
