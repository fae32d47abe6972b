package kvstore

import (
	"bufio"
	"bytes"
	"fmt"
	"testing"
)

// FuzzDecoder reads any bytes: what it takes for a request it reads the same when
// it is written anew, and memory is taken for what came and given back.
func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{
		"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nset\r\n$1\r\nk\r\n$5\r\nvalue\r\n", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99\r\nshort",
		"*-1\r\n", "*2\r\n$3\r\nGET\r\n$70000\r\n", "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$0\r\n\r\n", "a b\n\nc\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		pending := int64(0)
		reserve := func(n int64) bool { pending += n; return true }
		open := func(b []byte) *decoder {
			return &decoder{
				r: bufio.NewReader(bytes.NewReader(b)), maxValue: 1 << 20, reserve: reserve,
				keep: func() bool { return true }, progress: func() {},
			}
		}
		d := open(sent)
		for {
			args, refused, err := d.next()
			if pending > int64(2*len(sent)+step) {
				t.Fatalf("%d bytes taken for %d", pending, len(sent))
			}
			if err != nil {
				break
			}
			if refused != nil || len(args) == 0 {
				continue
			}
			again := fmt.Appendf(nil, "*%d\r\n", len(args))
			for _, a := range args {
				again = fmt.Appendf(again, "$%d\r\n%s\r\n", len(a), a)
			}
			e := open(again)
			got, refused, err := e.next()
			if refused != nil || err != nil || len(got) != len(args) {
				t.Fatalf("%q again: %q, %v, %v", args, got, refused, err)
			}
			for i := range args {
				if !bytes.Equal(args[i], got[i]) {
					t.Fatalf("argument %d: %q, then %q", i, args[i], got[i])
				}
			}
			e.giveBack()
		}
		d.giveBack()
		if pending != 0 {
			t.Fatalf("%d bytes not given back", pending)
		}
	})
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"a*c", "abbc", true},
		{"a*c", "abbd", false},
		{"a?c", "abc", true},
		{"*/x", "m/l/x", true},
		{"[a-c]x", "bx", true},
		{"[^a-c]x", "bx", false},
		{"[c-a]x", "bx", true},
		{`\*`, "*", true},
		{`\*`, "a", false},
		{"[", "a", false},
		{`a\`, `a\`, true},
		{"a**b", "ab", true},
		{"[]]", "]", false},
		{`[\]]`, "]", true},
		{"a*", "b", false},
	} {
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
	if glob("*a*a*a*a*a*a*a*a*a*a*b", string(bytes.Repeat([]byte("a"), 5000))) {
		t.Error("matched without a b")
	}
}
