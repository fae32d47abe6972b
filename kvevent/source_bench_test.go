package kvevent_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// BenchmarkSource tells how many blocks per second come through: from a socket
// of an engine over TCP, decoded, hashed and in order, up to the loop over the
// source's events. An engine's batch stores 32 blocks of 16 tokens and removes as
// many.
func BenchmarkSource(b *testing.B) {
	ctx := b.Context()
	pub := zmtp.NewPub(zmtp.Options{})
	defer pub.Close()
	at, err := pub.Bind(ctx, "tcp://127.0.0.1:*")
	if err != nil {
		b.Fatal(err)
	}
	source, err := kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: []kvevent.Endpoint{{Events: at}}, Decoder: kvevent.Config{BlockSize: 16},
	})
	if err != nil {
		b.Fatal(err)
	}

	const blocks = 32
	payloads := make([][]byte, 64)
	for i := range payloads {
		var hashes, old list
		var tokens []uint32
		for j := range blocks {
			hashes = append(hashes, uint64(i*blocks+j+1)<<32)
			old = append(old, uint64((i+32)%64*blocks+j+1)<<32)
			for t := range uint32(16) {
				tokens = append(tokens, uint32(i*blocks+j)*16+t)
			}
		}
		payloads[i] = pack(list{1.5, list{
			obj{{"type", "BlockStored"}, {"block_hashes", hashes}, {"parent_block_hash", nil}, {"token_ids", tokens}, {"block_size", 16}, {"medium", "GPU"}},
			obj{{"type", "BlockRemoved"}, {"block_hashes", old}, {"medium", "GPU"}},
		}, 0})
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrived := make(chan int, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for batch, err := range source.Events(ctx, nil) {
			if err != nil {
				b.Error(err)
			}
			for _, e := range batch.Events {
				if e.Kind == kv.Stored {
					arrived <- len(e.Blocks)
				}
			}
		}
	}()
	seq := uint64(0)
	send := func() {
		_ = pub.Send([]byte{}, binary.BigEndian.AppendUint64(nil, seq), payloads[seq%64])
		seq++
	}
	for pub.Subscribers(nil) == 0 { // until it listens
		select {
		case <-ctx.Done():
		default:
		}
	}
	const ahead = 512 // messages on their way
	for range ahead {
		send()
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n += <-arrived
		send()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "blocks/s")
	cancel()
	go func() {
		for range arrived {
		}
	}()
	<-done
	close(arrived)
}
