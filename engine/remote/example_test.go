package remote_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
)

// An engine is served here, and used there, as if it were here.
func Example() {
	there, err := mock.New(mock.Config{Model: "m", Source: mock.SourceEcho})
	if err != nil {
		panic(err)
	}
	defer there.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := remote.NewServer(remote.ServerConfig{Engine: there})
	go server.Serve(l) //nolint:errcheck // it ends with Close
	defer server.Close()

	here, err := remote.New(remote.Config{URL: "grpc://" + l.Addr().String()})
	if err != nil {
		panic(err)
	}
	defer here.Close()
	ctx := context.Background()
	for s := range here.Card(ctx) {
		if s.State == engine.Ready {
			fmt.Println("serves", s.Card.Model)
			break
		}
	}
	var ids []uint32
	for d, err := range here.Generate(ctx, &engine.Request{ID: "1-0", TokenIDs: []uint32{3, 4, 5}, Stop: engine.Stop{MaxTokens: 3}}) {
		if err != nil {
			panic(err)
		}
		ids = append(ids, d.TokenIDs...)
	}
	fmt.Println(ids)
	// Output:
	// serves m
	// [3 4 5]
}

// BenchmarkGenerate is what a token costs over a socket of this machine.
func BenchmarkGenerate(b *testing.B) {
	m, err := mock.New(mock.Config{Model: "m", Args: args()})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := remote.NewServer(remote.ServerConfig{Engine: m})
	go server.Serve(l) //nolint:errcheck // it ends with Close
	defer server.Close()
	client, err := remote.New(remote.Config{URL: "grpc://" + l.Addr().String()})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for name, e := range map[string]engine.Engine{"here": m, "remote": client} {
		b.Run(name, func(b *testing.B) {
			const most = 200
			for b.Loop() {
				n := 0
				for d, err := range e.Generate(b.Context(), request(most)) {
					if err != nil {
						b.Fatal(err)
					}
					n += len(d.TokenIDs)
				}
				if n != most {
					b.Fatalf("%d tokens", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*most), "ns/token")
		})
	}
}
