package llamacpp_test

import (
	"slices"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/fake/hostile"
)

func TestHarmlessStreams(t *testing.T) {
	r := ask(12, 100, 101)
	want, _, err := run(t, plain(t, serve(t, 1, nil), nil), r)
	if err != nil || len(want) != 12 {
		t.Fatalf("%v, %v", want, err)
	}
	for name, spoil := range hostile.Harmless() {
		fake := serve(t, 1, nil)
		ids, last, err := run(t, plain(t, spoil.Handler(fake), nil), r)
		if err != nil || !slices.Equal(ids, want) || last.Finish != engine.FinishLength || last.Usage.Output != 12 {
			t.Errorf("%s: %v, %+v, %v; want %v", name, ids, last, err, want)
		}
		fake.Close()
	}
}

// Wherever a stream is cut, what came is given, the end is told, and none is
// made up.
func TestCutStreams(t *testing.T) {
	fake := serve(t, 1, nil)
	defer fake.Close()
	r := ask(3, 100, 101)
	want, _, err := run(t, plain(t, fake, nil), r)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; ; cut += 7 {
		ids, last, err := run(t, plain(t, hostile.Spoil{Cut: cut}.Handler(fake), nil), r)
		if err == nil {
			if cut < 400 || !slices.Equal(ids, want) || last.Finish != engine.FinishLength {
				t.Errorf("cut after %d bytes: %v, %+v", cut, ids, last)
			}
			return
		}
		if !slices.Equal(ids, want[:len(ids)]) || engine.KindOf(err).Retry() != engine.RetryMigrate {
			t.Fatalf("cut after %d bytes: %v, %v; want a part of %v and a kind that migrates", cut, ids, err, want)
		}
	}
}

func TestNoStreams(t *testing.T) {
	fake := serve(t, 1, nil)
	defer fake.Close()
	for name, spoil := range map[string]hostile.Spoil{"a page": {Page: true}, "another type": {Type: "text/plain"}} {
		if ids, _, err := run(t, plain(t, spoil.Handler(fake), nil), ask(3, 1)); err == nil || ids != nil {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
}
