package nvext_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
)

func TestCaps(t *testing.T) {
	caps := &nvext.Caps{MaxPriority: p(int32(5)), MaxStrictPriority: p(uint32(0)), MaxTTL: p(time.Hour)}
	for name, c := range map[string]struct {
		caps     *nvext.Caps
		in, want *nvext.Hints
		beyond   []string
	}{
		"nobody's":     {nil, &nvext.Hints{Priority: p(int32(math.MaxInt32))}, &nvext.Hints{Priority: p(int32(math.MaxInt32))}, nil},
		"no hints":     {caps, nil, nil, nil},
		"within":       {caps, &nvext.Hints{Priority: p(int32(5)), StrictPriority: p(uint32(0))}, &nvext.Hints{Priority: p(int32(5)), StrictPriority: p(uint32(0))}, nil},
		"below":        {caps, &nvext.Hints{Priority: p(int32(math.MinInt32))}, &nvext.Hints{Priority: p(int32(math.MinInt32))}, nil},
		"beyond":       {caps, &nvext.Hints{Priority: p(int32(6)), StrictPriority: p(uint32(9)), OSL: p(uint32(7))}, &nvext.Hints{Priority: p(int32(5)), StrictPriority: p(uint32(0)), OSL: p(uint32(7))}, []string{nvext.CapPriority, nvext.CapStrictPriority}},
		"its stand-in": {caps, &nvext.Hints{LatencySensitivity: p(9.0)}, &nvext.Hints{LatencySensitivity: p(5.0)}, []string{nvext.CapPriority}},
		"which is moot": {
			caps, &nvext.Hints{Priority: p(int32(1)), LatencySensitivity: p(9.0)}, &nvext.Hints{Priority: p(int32(1)), LatencySensitivity: p(9.0)}, nil,
		},
		"one cap alone": {&nvext.Caps{MaxStrictPriority: p(uint32(2))}, &nvext.Hints{Priority: p(int32(99)), StrictPriority: p(uint32(3))}, &nvext.Hints{Priority: p(int32(99)), StrictPriority: p(uint32(2))}, []string{nvext.CapStrictPriority}},
	} {
		before := cmp.Diff(nil, c.in)
		got, beyond := c.caps.Hints(c.in)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
		if d := cmp.Diff(c.beyond, beyond); d != "" {
			t.Errorf("%s: beyond: -want +got\n%s", name, d)
		}
		if cmp.Diff(nil, c.in) != before {
			t.Errorf("%s: what was said has changed", name)
		}
	}
	if ttl, beyond := caps.TTL(365 * 24 * time.Hour); ttl != time.Hour || !beyond {
		t.Errorf("a year is cut to %v, beyond %v", ttl, beyond)
	}
	if ttl, beyond := caps.TTL(time.Hour); ttl != time.Hour || beyond {
		t.Errorf("an hour is cut to %v, beyond %v", ttl, beyond)
	}
	if ttl, beyond := (*nvext.Caps)(nil).TTL(math.MaxInt64); ttl != math.MaxInt64 || beyond {
		t.Errorf("without caps: %v, beyond %v", ttl, beyond)
	}
}
