package kv

import (
	"bytes"
	"testing"
)

// Machines of both byte orders hash the same bytes.
func TestTokensAsBytes(t *testing.T) {
	tokens := []uint32{0, 1, 0x01020304, 1<<32 - 1}
	want := []byte{0, 0, 0, 0, 1, 0, 0, 0, 4, 3, 2, 1, 255, 255, 255, 255}
	if got := convert(tokens); !bytes.Equal(got, want) {
		t.Errorf("converted %x, want %x", got, want)
	}
	if got := littleEndian(tokens); !bytes.Equal(got, want) {
		t.Errorf("viewed %x, want %x", got, want)
	}
}
