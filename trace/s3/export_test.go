package s3

import (
	"context"
	"time"
)

// SetClock tells a sink what time it is.
func SetClock(s *Sink, now func() time.Time) { s.now = now }

// SetPut puts a sink's objects elsewhere.
func SetPut(s *Sink, put func(context.Context) error) { s.bucket = door(put) }

type door func(context.Context) error

func (d door) put(ctx context.Context, _ string, _ []byte) error { return d(ctx) }
func (door) close()                                              {}
