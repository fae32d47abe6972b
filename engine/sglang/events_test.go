package sglang_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/sglang"
	"github.com/dynago/dynago/internal/fake/publish"
	"github.com/dynago/dynago/kv"
)

// Where a server publishes is what the operator says, else what its flag says, else
// what its parts say. Wherever it is told, events come from there.
func TestWhereEventsAre(t *testing.T) {
	m, err := mock.New(mock.Config{Model: "m", Args: func() mock.Args {
		a := mock.DefaultArgs()
		a.BlockSize, a.SpeedupRatio = 16, 0
		return a
	}()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := publish.New(publish.Config{Dialect: publish.SGLang, Endpoint: "tcp://127.0.0.1:*", Replay: "tcp://127.0.0.1:*", Topic: "kv", ShortReplay: true}, 1, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	m.Hear(p.Hear)
	r := &engine.Request{Stop: engine.Stop{MaxTokens: 1}}
	for i := range uint32(33) {
		r.TokenIDs = append(r.TokenIDs, 100+i)
	}
	for _, err := range m.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := kv.AppendLocalHashes(nil, r.TokenIDs, 16, kv.Namespace{}.Seed())
	port := p.Endpoint()[strings.LastIndexByte(p.Endpoint(), ':')+1:]
	flag := fmt.Sprintf(`"{\"publisher\":\"zmq\",\"endpoint\":\"%s\",\"replay_endpoint\":\"%s\",\"topic\":\"kv\"}"`, p.Endpoint(), p.Replay())
	for name, c := range map[string]struct {
		info   string
		config live.Published
		past   bool // what was before is told again
	}{
		"the operator":               {`{"page_size":16,"kv_events_config":"{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:1\"}"}`, live.Published{Endpoint: p.Endpoint(), Replay: p.Replay()}, true},
		"the flag":                   {`{"page_size":16,"kv_events_config":` + flag + `,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":1}}`, live.Published{}, true},
		"the parts":                  {`{"page_size":16,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":` + port + `,"topic":"kv","block_size":16}}`, live.Published{}, false},
		"the parts, and a replay":    {`{"page_size":16,"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":` + port + `}}`, live.Published{Replay: p.Replay()}, true},
		"nobody":                     {`{"page_size":16,"kv_events":{"publisher":"null"},"kv_events_config":null}`, live.Published{}, false},
		"nobody, and cannot be read": {`{"page_size":16,"kv_events_config":"{"}`, live.Published{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := described(c.info).serve(t, sglang.Config{Events: c.config})
			told := status(t, e, engine.Ready).Card.Features.Has(engine.FeatureEvents)
			if told != !strings.HasPrefix(name, "nobody") {
				t.Fatalf("the card has events: %v", told)
			}
			if !told {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			go func() { // until there is somebody who hears it
				for ctx.Err() == nil && !c.past {
					if p.Listeners(0) > 0 {
						m.Forget()
						for range m.Generate(ctx, r) {
						}
						return
					}
					<-time.After(time.Millisecond)
				}
			}()
			var got []kv.LocalHash
			for b, err := range e.Events(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				for _, event := range b.Events {
					for _, block := range event.Blocks {
						got = append(got, block.Local)
					}
				}
				if len(got) >= len(want) {
					break
				}
			}
			if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
				t.Errorf("stored %x, want %x", got, want)
			}
		})
	}
}

func TestBadEventsAddress(t *testing.T) {
	_, err := sglang.New(sglang.Config{HTTP: httpapi.Config{URL: "http://gpu7:30000"}, Events: live.Published{Endpoint: "udp://gpu7:1"}})
	if err == nil || !strings.Contains(err.Error(), "must begin with tcp:// or ipc://") {
		t.Errorf("%v", err)
	}
}
