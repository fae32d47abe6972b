// Command calls sends calls of KServe's gRPC service to one server or to two of them
// in turn, and prints how long they took as JSON. With -serve it is itself the least
// that can answer them, which servers are held against:
//
//	go run ./bench/calls -serve
//	go run ./bench/calls -address 127.0.0.1:8001 -model echo -size 16777216 -n 200
//
// The model gives back what it is sent. Each answer is looked at: its tensor must have
// the bytes that went out. Turns are short, so that what else the machine does falls
// on both servers alike.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// config is what is asked for.
type config struct {
	address, against     string
	model                string
	size                 int
	clients, connections int
	calls, turn          int
}

// Result is what became of it, for each server in the order of the flags.
type Result struct {
	Calls int `json:"calls"` // of each server
	// Turns are the calls per second of each turn, by server.
	Turns [][]float64 `json:"turns"`
	Wrong int         `json:"wrong"` // answers that were not what went out
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var c config
	flags := flag.NewFlagSet("calls", flag.ContinueOnError)
	bare := flags.Bool("serve", false, "answer calls, on a port that is printed")
	flags.StringVar(&c.address, "address", "127.0.0.1:8001", "server")
	flags.StringVar(&c.against, "against", "", "second server, asked in turn with the first")
	flags.StringVar(&c.model, "model", "echo", "model")
	flags.IntVar(&c.size, "size", 64, "bytes of the tensor")
	flags.IntVar(&c.clients, "clients", 16, "calls that are under way at once")
	flags.IntVar(&c.connections, "connections", 2, "connections to each server")
	flags.IntVar(&c.calls, "n", 10000, "calls in all, of each server")
	flags.IntVar(&c.turn, "turn", 1000, "calls of a turn")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *bare {
		return serve(out)
	}
	if min(c.size, c.clients, c.connections, c.calls, c.turn) < 1 {
		return errors.New("want numbers of at least 1")
	}
	call, err := newCall(c.model, c.size)
	if err != nil {
		return err
	}
	var servers []*server
	for _, address := range []string{c.address, c.against} {
		if address == "" {
			continue
		}
		s, err := connect(&c, call, address)
		if err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		defer s.close()
		servers = append(servers, s)
		if _, err := s.each(min(c.turn, c.calls)); err != nil { // until connections, windows and pools are what they will be
			return fmt.Errorf("%s: %w", address, err)
		}
	}
	r := Result{Turns: make([][]float64, len(servers))}
	for r.Calls < c.calls {
		n := min(c.turn, c.calls-r.Calls)
		for i, s := range servers {
			took, err := s.each(n)
			if err != nil {
				return fmt.Errorf("server %d: %w", i+1, err)
			}
			r.Turns[i] = append(r.Turns[i], float64(n)/took.Seconds())
		}
		r.Calls += n
	}
	for _, s := range servers {
		r.Wrong += int(s.wrong.Load())
	}
	return json.NewEncoder(out).Encode(r)
}

// call is what each client sends, and what must stand in the answer.
type call struct{ message, tensor []byte }

// newCall makes a call with one tensor of so many bytes.
func newCall(model string, size int) (call, error) {
	tensor := make([]byte, size)
	for i := range tensor {
		tensor[i] = byte(i * 31 >> 3)
	}
	message, err := proto.Marshal(&inferencepb.ModelInferRequest{
		ModelName: model, Id: "42",
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "UINT8", Shape: []int64{int64(size)}}},
		RawInputContents: [][]byte{tensor},
	})
	return call{message, tensor}, err
}

// server is one with the connections to it.
type server struct {
	*config
	call
	lines []*grpc.ClientConn
	wrong atomic.Int64
}

func connect(c *config, of call, address string) (*server, error) {
	s := &server{config: c, call: of}
	for range c.connections {
		line, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(plain{}), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
		if err != nil {
			s.close()
			return nil, err
		}
		s.lines = append(s.lines, line)
	}
	return s, nil
}

func (s *server) close() {
	for _, l := range s.lines {
		l.Close() //nolint:errcheck // nothing runs on it
	}
}

// each makes n calls, as many at once as there are clients.
func (s *server) each(n int) (time.Duration, error) {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make([]error, s.clients)
	began := time.Now()
	for i := range s.clients {
		group.Go(func() {
			for int(next.Add(1)) <= n && failed[i] == nil {
				failed[i] = s.ask(s.lines[i%len(s.lines)])
			}
		})
	}
	group.Wait()
	return time.Since(began), errors.Join(failed...)
}

// ask makes one call. The bytes of the tensor stand at the end of the answer.
func (s *server) ask(line *grpc.ClientConn) error {
	var answer mem.BufferSlice
	if err := line.Invoke(context.Background(), inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, s.message, &answer); err != nil {
		return err
	}
	defer answer.Free()
	want := s.tensor
	skip := answer.Len() - len(want)
	if skip < 0 {
		s.wrong.Add(1)
		return nil
	}
	for _, b := range answer {
		data := b.ReadOnlyData()
		cut := min(skip, len(data))
		data, skip = data[cut:], skip-cut
		if !bytes.Equal(data, want[:len(data)]) {
			s.wrong.Add(1)
			return nil
		}
		want = want[len(data):]
	}
	return nil
}

// plain is the codec of messages that are bytes already, so that clients cost as little
// as can be.
type plain struct{}

func (plain) Name() string { return "proto" }

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (plain) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = data
	return nil
}

var _ encoding.CodecV2 = plain{}
