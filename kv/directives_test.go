package kv_test

import (
	"testing"

	"github.com/dynago/dynago/kv"
)

// An answer begins within reasoning where the prompt has begun some and not ended it.
// What needs a header begins none without.
func TestThinkingOpen(t *testing.T) {
	plain := &kv.Thinking{Start: []uint32{1, 2}, End: []uint32{8, 9}}
	header := &kv.Thinking{Start: []uint32{1}, End: []uint32{9}, Header: []uint32{5, 6}}
	for _, tt := range []struct {
		name   string
		of     *kv.Thinking
		prompt []uint32
		want   bool
	}{
		{"nothing", plain, nil, false},
		{"begun", plain, []uint32{30, 2, 31}, true},
		{"and ended", plain, []uint32{30, 2, 31, 8}, false},
		{"and begun again", plain, []uint32{1, 8, 2}, true},
		{"ended alone", plain, []uint32{30, 9, 30}, false},
		{"a header", header, []uint32{30, 1, 5, 6, 31}, true},
		{"at the end", header, []uint32{30, 1, 5, 6}, true},
		{"half of it", header, []uint32{30, 1, 5}, false},
		{"another one", header, []uint32{30, 1, 5, 7, 31}, false},
		{"a header alone", header, []uint32{5, 6, 31}, false},
		{"and ended", header, []uint32{1, 5, 6, 9, 1}, false},
		{"another behind it", header, []uint32{1, 5, 6, 1, 7}, true},
	} {
		if got := tt.of.Open(tt.prompt); got != tt.want {
			t.Errorf("%s: open %v, want %v", tt.name, got, tt.want)
		}
	}
	if plain.Lead() != 1 || header.Lead() != 2 {
		t.Errorf("leads of %d and %d", plain.Lead(), header.Lead())
	}
}
