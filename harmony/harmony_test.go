package harmony_test

import (
	"fmt"
	"testing"

	"github.com/dynago/dynago/harmony"
)

// Every form has a header and an id of its own, and both lead back to it.
func TestForms(t *testing.T) {
	seen := map[string]harmony.Form{}
	for f := range harmony.Form(20) {
		before, after := f.Header()
		header := before + "ns.f" + after
		if other, ok := seen[header]; ok {
			t.Errorf("forms %d and %d are both %s", other, f, header)
		}
		seen[header] = f
		if got, ok := harmony.FormOf(header, "ns.f"); got != f || !ok {
			t.Errorf("FormOf(%q) = %d, %v, want %d", header, got, ok, f)
		}
		if got := harmony.FormOfID(f.Tag("call_123")); got != f {
			t.Errorf("FormOfID(%q) = %d, want %d", f.Tag("call_123"), got, f)
		}
	}
	for _, header := range []string{"", " to=functions.f", "<|channel|>final to=functions.ns.f", " to=functions.f<|channel|>commentary <|constrain|>json", " to=functions.ns.f<|channel|>commentary  json"} {
		if f, ok := harmony.FormOf(header, "ns.f"); ok {
			t.Errorf("FormOf(%q) = %d", header, f)
		}
	}
	for _, id := range []string{"", "a", "_hm", "_hmu", "_hmA", "call_1", "call_hma_"} {
		if f := harmony.FormOfID(id); f != 0 {
			t.Errorf("FormOfID(%q) = %d", id, f)
		}
	}
}

func TestWrites(t *testing.T) {
	for template, want := range map[string]bool{
		"": false, "<|start|><|message|>": false, "{{ '<|start|>' }}<|channel|>final<|message|>": true,
	} {
		if harmony.Writes(template) != want {
			t.Errorf("Writes(%q) = %v", template, !want)
		}
	}
}

// The parser has read a call, and the layout writes it again as it was.
func Example() {
	const generated = "<|channel|>commentary to=functions.ls <|constrain|>json"
	form, _ := harmony.FormOf(generated, "ls")
	id := form.Tag("call_4f2b")
	before, after := harmony.FormOfID(id).Header()
	fmt.Println(id)
	fmt.Println(before + "ls" + after)
	// Output:
	// call_4f2b_hmk
	// <|channel|>commentary to=functions.ls <|constrain|>json
}
