package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dynago/dynago/engine"
)

func TestCauseOf(t *testing.T) {
	for cause, want := range map[error]engine.ErrorKind{
		engine.ErrQueueTimeout: engine.ResourceExhausted,
		engine.ErrFirstItem:    engine.ResponseTimeout,
		engine.ErrInactive:     engine.ResponseTimeout,
		engine.ErrWorkerLost:   engine.Disconnected,
		engine.ErrDeadline:     engine.DeadlineExceeded,
		engine.ErrClientGone:   engine.Cancelled,
		engine.ErrShutdown:     engine.Unavailable,
		engine.ErrSuperseded:   engine.Cancelled,
		errors.New("whatever"): engine.Internal,
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		got := engine.CauseOf(ctx, ctx.Err())
		if engine.KindOf(got) != want || !errors.Is(got, cause) {
			t.Errorf("%v: got %v, want kind %s", cause, got, want)
		}
	}
	live := errors.New("live")
	if got := engine.CauseOf(context.Background(), live); got != live {
		t.Errorf("a live context changed the error to %v", got)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(engine.ErrClientGone)
	if got := engine.CauseOf(ctx, engine.Errorf(engine.Disconnected, "eof")); engine.KindOf(got) != engine.Disconnected {
		t.Errorf("a known kind became %v", got)
	}
	if got := engine.CauseOf(ctx, nil); got != nil {
		t.Errorf("no error became %v", got)
	}
}

func ExampleKindOf() {
	err := fmt.Errorf("route: %w", &engine.Error{Kind: engine.Unavailable, Message: "no workers"})
	fmt.Println(engine.KindOf(err), engine.KindOf(err).Retry() == engine.RetryEarly)
	// Output: unavailable true
}
