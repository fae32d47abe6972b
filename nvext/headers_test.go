package nvext_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
)

func TestWithHeaders(t *testing.T) {
	place := func(backend, prefill, decode *nvext.WorkerID, rank, prefillRank *uint32) *nvext.Ext {
		return &nvext.Ext{Placement: nvext.Placement{
			BackendInstanceID: backend, PrefillWorkerID: prefill, DecodeWorkerID: decode, DPRank: rank, PrefillDPRank: prefillRank,
		}}
	}
	id := func(n nvext.WorkerID) *nvext.WorkerID { return &n }
	hints := func(priority *int32, strict *uint32) *nvext.Ext {
		return &nvext.Ext{AgentHints: &nvext.Hints{Priority: priority, StrictPriority: strict}}
	}
	bads := map[string][]string{
		"the newer name is bad":     {"X-Dynamo-Worker-Instance-Id"},
		"a bad worker":              {"X-Worker-Instance-Id"},
		"a worker beyond 64 bits":   {"X-Worker-Instance-Id"},
		"a rank beyond 32 bits":     {"X-Dp-Rank"},
		"a bad priority":            {"X-Dynamo-Request-Priority"},
		"a priority beyond 32 bits": {"X-Dynamo-Request-Priority"},
		"a negative one":            {"X-Dynamo-Request-Strict-Priority"},
		"a longer one":              {"X-Tenant-Id"},
	}
	for name, c := range map[string]struct {
		ext    *nvext.Ext
		header http.Header
		want   *nvext.Ext
	}{
		"nothing":                   {nil, header("x-other", "1"), nil},
		"nothing new":               {hints(new(int32(3)), nil), header(), hints(new(int32(3)), nil)},
		"worker":                    {nil, header("x-dynamo-worker-instance-id", " 7 "), place(id(7), nil, id(7), nil, nil)},
		"worker by its older name":  {nil, header("x-worker-instance-id", "7"), place(id(7), nil, id(7), nil, nil)},
		"the newer name is bad":     {nil, header("x-dynamo-worker-instance-id", "x", "x-worker-instance-id", "7"), nil},
		"worker over the body":      {place(id(1), id(2), id(3), nil, nil), header("x-worker-instance-id", "7"), place(id(7), id(2), id(7), nil, nil)},
		"a bad worker":              {place(id(1), nil, nil, nil, nil), header("x-worker-instance-id", "-7"), place(id(1), nil, nil, nil, nil)},
		"a worker beyond 64 bits":   {nil, header("x-worker-instance-id", "18446744073709551616"), nil},
		"prefill":                   {nil, header("x-prefill-instance-id", "8"), place(nil, id(8), nil, nil, nil)},
		"ranks":                     {nil, header("x-dynamo-dp-rank", "1", "x-dynamo-prefill-dp-rank", "2"), place(nil, nil, nil, new(uint32(1)), new(uint32(2)))},
		"ranks by older names":      {nil, header("x-data-parallel-rank", "1", "x-prefill-dp-rank", "2"), place(nil, nil, nil, new(uint32(1)), new(uint32(2)))},
		"the first of them":         {nil, header("x-data-parallel-rank", "1", "x-dp-rank", "3"), place(nil, nil, nil, new(uint32(3)), nil)},
		"a rank that is not known":  {place(nil, nil, nil, new(uint32(5)), nil), header("x-dp-rank", "4294967295"), place(nil, nil, nil, new(nvext.UnsetRank), nil)},
		"a rank beyond 32 bits":     {place(nil, nil, nil, new(uint32(5)), nil), header("x-dp-rank", "4294967296"), place(nil, nil, nil, new(uint32(5)), nil)},
		"priority":                  {nil, header("x-dynamo-request-priority", "-4"), hints(new(int32(-4)), nil)},
		"priority 0 over the body":  {hints(new(int32(9)), new(uint32(1))), header("x-dynamo-request-priority", "0"), hints(new(int32(0)), new(uint32(1)))},
		"a bad priority":            {hints(new(int32(9)), nil), header("x-dynamo-request-priority", "1.5"), hints(new(int32(9)), nil)},
		"a priority beyond 32 bits": {nil, header("x-dynamo-request-priority", "2147483648"), nil},
		"strict priority":           {hints(new(int32(9)), nil), header("x-dynamo-request-strict-priority", "2"), hints(new(int32(9)), new(uint32(2)))},
		"a negative one":            {nil, header("x-dynamo-request-strict-priority", "-2"), nil},
		"tenant":                    {&nvext.Ext{CacheSalt: "a"}, header("x-tenant-id", " b "), &nvext.Ext{CacheSalt: "b"}},
		"a tenant of 1024 bytes":    {nil, header("x-tenant-id", strings.Repeat("t", 1024)), &nvext.Ext{CacheSalt: strings.Repeat("t", 1024)}},
		"a longer one":              {&nvext.Ext{CacheSalt: "a"}, header("x-tenant-id", strings.Repeat("t", 1025)), &nvext.Ext{CacheSalt: "a"}},
		"no tenant":                 {&nvext.Ext{CacheSalt: "a"}, header("x-tenant-id", " "), &nvext.Ext{CacheSalt: "a"}},
	} {
		got, bad := c.ext.WithHeaders(c.header.Values)
		if d := cmp.Diff(bads[name], bad); d != "" {
			t.Errorf("%s: bad headers: -want +got\n%s", name, d)
		}
		if there := name != "nothing" && name != "nothing new"; nvext.HasHeaders(c.header.Values) != there {
			t.Errorf("%s: there are headers: %t, want %t", name, !there, there)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

// A rank that says that it is not known is none.
func TestUnknownRank(t *testing.T) {
	for in, want := range map[string][2]uint32{
		`{"dp_rank":4294967295,"prefill_dp_rank":4294967294}`: {99, 4294967294},
		`{"dp_rank":0,"prefill_dp_rank":4294967295}`:          {0, 99},
		`{}`: {99, 99},
	} {
		ext, _, err := nvext.Decode([]byte(in), true)
		if err != nil {
			t.Fatal(err)
		}
		got := [2]uint32{99, 99} // nothing is known
		answers, prefill := ext.Ranks()
		if answers != nil {
			got[0] = *answers
		}
		if prefill != nil {
			got[1] = *prefill
		}
		if got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}
