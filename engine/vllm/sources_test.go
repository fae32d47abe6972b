package vllm

import (
	"reflect"
	"testing"

	"github.com/dynago/dynago/kvevent"
)

// Builds tell a list or an object with one, of ports that need not follow each other,
// or what each rank was told to do.
func TestSources(t *testing.T) {
	two := `[{"data_parallel_rank":1,"endpoint":"tcp://0.0.0.0:41002","replay_endpoint":null,"topic":"kv"},` +
		`{"data_parallel_rank":0,"endpoint":"tcp://10.0.0.1:41001","replay_endpoint":"tcp://*:41009","topic":"kv"}]`
	want := []kvevent.Endpoint{
		{Rank: 0, Events: "tcp://10.0.0.1:41001", Replay: "tcp://gpu7:41009"},
		{Rank: 1, Events: "tcp://gpu7:41002"},
	}
	for _, text := range []string{two, `{"sources":` + two + `}`} {
		got, err := endpointsOf(sourcesOf([]byte(text)), "gpu7", 0, 2)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	told := `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657","buffer_steps":9,"topic":"kv"},` +
		`"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://10.0.0.9:5558","replay_endpoint":null,"topic":"kv"}}`
	configured := []kvevent.Endpoint{
		{Rank: 0, Events: "tcp://gpu7:5557", Replay: "tcp://gpu7:5657"},
		{Rank: 1, Events: "tcp://10.0.0.9:5558", Bind: true}, // it connects there
	}
	if got, err := endpointsOf(sourcesOf([]byte(told)), "gpu7", 0, 2); err != nil || !reflect.DeepEqual(got, configured) {
		t.Errorf("%+v, %v, want %+v", got, err, configured)
	}
	for _, text := range []string{`{"0":{"enable_kv_cache_events":false,"publisher":"null","endpoint":"tcp://*:5557"}}`, `[]`, `{}`, `{"sources":null}`, `<html>`, `[{"endpoint":"x","transport":"nats"}]`, `{"detail":"Not Found"}`, ``} {
		if got := sourcesOf([]byte(text)); len(got) != 0 {
			t.Errorf("%s tells of %+v", text, got)
		}
	}
	if _, err := endpointsOf(sourcesOf([]byte(two)), "gpu7", 0, 3); err == nil {
		t.Error("a rank of which nothing is told has an endpoint")
	}
	if _, err := endpointsOf([]rankSource{{publisher: publisher{Endpoint: "here"}}}, "gpu7", 0, 1); err == nil {
		t.Error("an address that is none is an endpoint")
	}
}
