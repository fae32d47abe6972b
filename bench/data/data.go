// Package data holds recorded traces of requests, which the benchmarks replay.
// README.md says where they are from.
package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var (
	//go:embed conversation_trace.jsonl.gz
	conversation []byte
	//go:embed synthetic_trace.jsonl.gz
	synthetic []byte
)

// Request is one request of a trace.
type Request struct {
	Timestamp    int64    `json:"timestamp"`     // milliseconds since the start
	InputLength  int      `json:"input_length"`  // tokens
	OutputLength int      `json:"output_length"` // tokens
	HashIDs      []uint32 `json:"hash_ids"`      // blocks of 512 tokens; an id stands for a whole prefix
}

// Conversation returns the requests of an hour of a chat service, in order of
// time.
func Conversation() []Request { return mustRead(conversation) }

// Synthetic returns requests made from public long-context data sets, in order
// of time.
func Synthetic() []Request { return mustRead(synthetic) }

// Packed returns a trace as it lies here, compressed by gzip: "conversation" or
// "synthetic"; nil is no trace.
func Packed(name string) []byte {
	switch name {
	case "conversation":
		return conversation
	case "synthetic":
		return synthetic
	}
	return nil
}

// mustRead panics for a file that cannot be read: it is part of the program.
func mustRead(packed []byte) []Request {
	requests, err := Read(bytes.NewReader(packed))
	if err != nil {
		panic("bench/data: " + err.Error())
	}
	return requests
}

// Read reads a trace of one JSON object a line, compressed by gzip.
func Read(r io.Reader) ([]Request, error) {
	lines, err := gzip.NewReader(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	var requests []Request
	for dec := json.NewDecoder(lines); ; {
		var request Request
		if err := dec.Decode(&request); errors.Is(err, io.EOF) {
			return requests, nil
		} else if err != nil {
			return nil, fmt.Errorf("trace: request %d: %w", len(requests)+1, err)
		}
		requests = append(requests, request)
	}
}
