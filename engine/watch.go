package engine

import (
	"context"
	"iter"
	"reflect"
	"time"
)

// Watch looks at an engine at about each interval, and yields what it is and every
// change of that, until ctx ends or the engine has failed for good. A look that
// brings no card leaves the one that was told; revisions are counted here.
func Watch(ctx context.Context, every time.Duration, look func(context.Context) Status) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		var told Status
		for st := range Poll(ctx, every, 0.1, func(ctx context.Context) (Status, error) { return look(ctx), nil }) {
			if st.Card == nil || reflect.DeepEqual(st.Card, told.Card) {
				st.Card, st.Revision = told.Card, told.Revision
			} else {
				st.Revision = told.Revision + 1
			}
			if told.Epoch != 0 && st == told {
				continue
			}
			if told = st; !yield(st, nil) || st.State == Failed {
				return
			}
		}
	}
}
