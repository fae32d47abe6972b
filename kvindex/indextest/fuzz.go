package indextest

import "testing"

// Fuzz reads the bytes of a fuzzer as a history, and compares an index with the
// model along it.
func Fuzz(f *testing.F, open func() Index) {
	for _, seed := range []string{"", "\x00\x01\x02", "one target, and then another", "\xff\x80\x40\x20\x10\x08\x04\x02\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newPair(open())
		n := drawNarrow(p.model, drawFrom(&data))
		var history []step
		for len(data) > 0 && len(history) < 500 {
			s := n.step()
			history = append(history, s)
			if err := p.take(s); err != nil {
				t.Fatal(report(open, history))
			}
		}
		if err := p.audit(); err != nil {
			t.Fatal(err)
		}
	})
}

// drawFrom takes each number from the next byte, or two where one is too few, and
// 0 when there are no more.
func drawFrom(data *[]byte) draw {
	next := func() int {
		if len(*data) == 0 {
			return 0
		}
		b := (*data)[0]
		*data = (*data)[1:]
		return int(b)
	}
	return func(n int) int {
		v := next()
		if n > 256 {
			v = v<<8 | next()
		}
		return v % n
	}
}
