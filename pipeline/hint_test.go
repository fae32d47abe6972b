package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// lending is an engine that has told of a block, which others may fetch, or of none.
type lending struct {
	*fake
	told chan struct{} // closed when the router has heard
	has  []kv.Block
}

func (l *lending) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		first := kv.Batch{Epoch: 1, First: 1, Last: 1, Events: []kv.Event{{Blocks: l.has}}}
		if l.has == nil {
			first.Events = nil
		}
		if yield(first, nil) && yield(kv.Batch{Epoch: 1, Last: 1}, nil) { // taken when the one before is done
			close(l.told)
			<-ctx.Done()
		}
	}
}

// A worker that takes hints gets one with its request, beside what else is for the
// engine alone, and no other worker does.
func TestHintsReachWorkers(t *testing.T) {
	hints := func(endpoint string) func(*engine.Card) {
		return func(c *engine.Card) {
			c.HashScheme, c.Hint = engine.SchemeXXH3, &engine.HintSource{Endpoints: map[uint32]string{0: endpoint}}
		}
	}
	probe := newHouse(t, pipeline.Config{}, &fake{})
	ids, _, err := probe.Tokenize(asks(nil).Chat, true)
	if err != nil {
		t.Fatal(err)
	}
	scheme := kv.PublicScheme(16, kv.Namespace{})
	local := scheme.AppendLocal(nil, ids[:16])
	seq := scheme.AppendSeq(nil, local)
	for _, tt := range []struct {
		name  string
		takes bool
		ext   *nvext.Ext
		want  string
	}{
		{"a hint", true, nil, `{"kv_transfer_params":{"router_hint":{"source_control_endpoint":"tcp://b","block_hashes":[%d]}}}`},
		{"and an upload", true, &nvext.Ext{MetadataUpload: &nvext.MetadataUpload{URL: "s3://x"}}, `{"kv_transfer_params":{"router_hint":{"source_control_endpoint":"tcp://b","block_hashes":[%d]}},"nvext":{"metadata_upload":{"url":"s3://x"}}}`},
		{"no hints", false, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &lending{&fake{features: engine.Features{engine.FeatureEvents}}, make(chan struct{}), nil}
			if tt.takes {
				a.change = hints("tcp://a")
			}
			b := &lending{&fake{features: engine.Features{engine.FeatureEvents}, change: hints("tcp://b")}, make(chan struct{}), []kv.Block{{Engine: kv.EngineHash(seq[0]), Local: local[0]}}}
			h := newHouseOf(t, pipeline.Config{}, router.Config{}, a, b)
			<-a.told
			<-b.told
			a.generate, b.generate = h.say("Yes.", 1, engine.FinishEOS), h.say("Yes.", 1, engine.FinishEOS)
			r := asks(&nvext.Ext{Placement: nvext.Placement{BackendInstanceID: new(nvext.WorkerID(1))}})
			if tt.ext != nil {
				r.Ext.MetadataUpload = tt.ext.MetadataUpload
			}
			run(t, h, r)
			want := ""
			if tt.want != "" {
				want = fmt.Sprintf(tt.want, seq[0])
			}
			if got := string(a.sent()[0].Extra); got != want {
				t.Errorf("the engine gets %q, want %q", got, want)
			}
		})
	}
}
