package toolevents_test

import (
	"testing"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/toolevents"
)

// sound checks that what was accepted is a row that says whose tool it was, and that
// readers of traces take it back.
func sound(t *testing.T, r *trace.Record) {
	t.Helper()
	line, err := r.Append(nil)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	back, ok, err := trace.Decode(line)
	if err != nil || !ok || !back.IsTool() || back.Source != trace.SourceHarness || back.Agent.Chain() == "" || back.Tool.ID == "" || back.Tool.Class == "" || back.Request != nil || back.Payload != nil {
		t.Fatalf("%s: %v, %v", line, ok, err)
	}
	again, err := toolevents.Decode(line)
	if err != nil {
		t.Fatalf("a row is refused as an event: %s: %v", line, err)
	}
	if second, _ := again.Append(nil); string(second) != string(line) {
		t.Fatalf("%s became %s", line, second)
	}
}

func FuzzMsgpack(f *testing.F) {
	for _, form := range forms {
		f.Add(packed(f, form.event, true))
		f.Add(packed(f, form.event, false))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := toolevents.DecodeMsgpack(b); err == nil {
			sound(t, r)
		}
	})
}

func FuzzBody(f *testing.F) {
	all := ""
	for _, form := range forms {
		f.Add([]byte(form.event))
		all += form.event + "\n"
	}
	f.Add([]byte(all))
	f.Add([]byte("[" + flat + "," + flat + "]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := toolevents.DecodeBody(body)
		if err != nil {
			return
		}
		if (b.Dropped > 0) != (b.Why != nil) || len(b.Accepted)+b.Dropped > toolevents.MaxEvents {
			t.Fatalf("%d accepted, %d dropped, %v", len(b.Accepted), b.Dropped, b.Why)
		}
		for _, r := range b.Accepted {
			sound(t, r)
		}
	})
}
