package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRecordsComeBackFromTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		blob := rapid.SliceOfN(rapid.Byte(), 0, 40)
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Item {
			return Item{ID: text.Draw(t, "item"), JSON: blob.Draw(t, "json")}
		}), 0, 4)
		r := &Record{
			ID: text.Draw(t, "id"), Tenant: text.Draw(t, "tenant"), Previous: text.Draw(t, "previous"), Status: text.Draw(t, "status"),
			Created: time.Unix(0, rapid.Int64().Draw(t, "created")), Expires: time.Unix(0, rapid.Int64().Draw(t, "expires")),
			Input: items.Draw(t, "input"), Output: items.Draw(t, "output"), Events: blob.Draw(t, "events"),
			head: blob.Draw(t, "head"), tail: blob.Draw(t, "tail"),
		}
		parent := text.Draw(t, "parent")
		s := sum{}.withAll(r.Input)
		b := appendRecord([]byte("before"), r, parent, s)[len("before"):]
		got, err := decodeRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got, cmp.AllowUnexported(Record{})); diff != "" {
			t.Fatal(diff)
		}
		h, err := decodeHead(b)
		if err != nil || h.parent != parent || h.sum != s || h.bytes != int64(len(b)) {
			t.Fatalf("head: %+v, %v", h, err)
		}
		// No file that is cut short or changed anywhere is taken for a record.
		if _, err := decodeRecord(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]); err == nil {
			t.Fatal("a cut record decodes")
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := decodeRecord(b); err == nil {
			t.Fatal("a changed record decodes")
		}
	})
}

// FuzzDecodeRecord reads any bytes, and anything that reads as a record must
// come back when it is written again.
func FuzzDecodeRecord(f *testing.F) {
	r := &Record{
		ID: "resp_1", Status: "completed", Created: time.Unix(1, 0), Expires: time.Unix(2, 0),
		Input: []Item{{"a", []byte(`{}`)}}, Output: []Item{{"b", []byte(`{"x":1}`)}}, head: []byte("{"), tail: []byte("}"),
	}
	f.Add(appendRecord(nil, r, "", sum{1}))
	f.Add(appendRecord(nil, r, "resp_0", sum{})[:50])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHead(b)
		got, errWhole := decodeRecord(b)
		if err != nil {
			if errWhole == nil {
				t.Fatal("a record without a head")
			}
			return
		}
		if errWhole != nil {
			return
		}
		again := appendRecord(nil, got, h.parent, h.sum)
		if !bytes.Equal(again, b) {
			second, err := decodeRecord(again)
			if err != nil || cmp.Diff(got, second, cmp.AllowUnexported(Record{})) != "" {
				t.Fatalf("written again it is another record: %v", err)
			}
		}
	})
}

func FuzzOutputOf(f *testing.F) {
	f.Add([]byte(`{"id":"x","output":[{"id":"a"},{}],"y":{"output":[1]}}`))
	f.Add([]byte(`{"output":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewRecord(Record{ID: "resp"}, b)
		if err != nil {
			return
		}
		object := r.AppendObject(nil)
		again, err := NewRecord(Record{ID: "resp"}, object)
		if err != nil || len(again.Output) != len(r.Output) || !bytes.Equal(again.AppendObject(nil), object) {
			t.Fatalf("%q became %q: %v", b, object, err)
		}
	})
}
