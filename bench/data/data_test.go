package data_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/dynago/dynago/bench/data"
)

// The counts are those that the release's paper and its readers give.
func TestTraces(t *testing.T) {
	for _, tt := range []struct {
		name                         string
		requests                     []data.Request
		count, blocks, unique, reuse int
	}{
		{"conversation", data.Conversation(), 12031, 288500, 182790, 3664},
		{"synthetic", data.Synthetic(), 3993, 121877, 43924, 6396},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parents := map[uint32]uint32{}
			blocks, reused, last := 0, 0, int64(0)
			for i, r := range tt.requests {
				if r.Timestamp < last {
					t.Fatalf("request %d comes at %d ms, after one at %d", i, r.Timestamp, last)
				}
				last = r.Timestamp
				blocks += len(r.HashIDs)
				known := true
				parent := ^uint32(0)
				for _, id := range r.HashIDs {
					before, ok := parents[id]
					if ok && before != parent {
						t.Fatalf("request %d: block %d follows %d, and %d elsewhere: it does not stand for a prefix", i, id, parent, before)
					}
					if known = known && ok; known {
						reused++
					}
					parents[id] = parent
					parent = id
				}
			}
			if len(tt.requests) != tt.count || blocks != tt.blocks || len(parents) != tt.unique {
				t.Errorf("%d requests, %d blocks, %d distinct; want %d, %d, %d", len(tt.requests), blocks, len(parents), tt.count, tt.blocks, tt.unique)
			}
			if got := (10000*reused + blocks/2) / blocks; got != tt.reuse {
				t.Errorf("an unbounded cache would serve %d of 10,000 blocks, want %d", got, tt.reuse)
			}
		})
	}
}

func TestReadSaysWhichRequestIsBroken(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write([]byte("{\"timestamp\": 1, \"hash_ids\": [0]}\n{\"hash_ids\": [-1]}\n")); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := data.Read(&packed); err == nil || !strings.Contains(err.Error(), "request 2") {
		t.Errorf("error %v, want one that names request 2", err)
	}
	if _, err := data.Read(strings.NewReader("plain text")); err == nil {
		t.Error("no error for a trace that is not compressed")
	}
}
