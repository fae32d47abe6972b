package rpc_test

import (
	"context"
	"testing"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// What a call costs beside gRPC itself: all of the way but the worker.
func BenchmarkModelInfer(b *testing.B) {
	for name, in := range map[string]*pb.ModelInferRequest{"text": text("1", "Hello world"), "tensors": tensors("1", 1)} {
		b.Run(name, func(b *testing.B) {
			h := open(b, nil)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.rpc.Call(ctx, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
