package standing_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynago/dynago/frontend/rpc"
	"github.com/dynago/dynago/internal/demo"
	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/pipeline"
)

const kserveModel = "/v2/models/" + demo.Name

// triton opens the house to clients of gRPC, and returns one.
func (h *house) triton(t testing.TB, patience time.Duration) pb.GRPCInferenceServiceClient {
	t.Helper()
	server := rpc.New(rpc.Config{Frontend: h.front, Patience: patience})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	go server.Serve(l) //nolint:errcheck // calls would fail
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() {
		conn.Close()
		server.Close()
	})
	return pb.NewGRPCInferenceServiceClient(conn)
}

// inferCall is a call of a model of text, for each wire to write in its way.
type inferCall struct {
	text       string
	parameters object          // strings and whole numbers
	flags      map[string]bool // inputs of one truth value
}

// seeded makes calls whose answers can be compared.
func seeded(text string, more object) inferCall {
	parameters := object{"seed": 5, "max_tokens": 40}
	maps.Copy(parameters, more)
	return inferCall{text: text, parameters: parameters}
}

func (c inferCall) with(flags map[string]bool) inferCall {
	c.flags = flags
	return c
}

// message is the call over gRPC, its tensors as bytes or as values.
func (c inferCall) message(stream, raw bool) *pb.ModelInferRequest {
	m := &pb.ModelInferRequest{ModelName: demo.Name, Id: "1", Parameters: map[string]*pb.InferParameter{}}
	add := func(name, datatype string, contents *pb.InferTensorContents, data []byte) {
		in := &pb.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: []int64{1}}
		if raw {
			m.RawInputContents = append(m.RawInputContents, data)
		} else {
			in.Contents = contents
		}
		m.Inputs = append(m.Inputs, in)
	}
	framed := append(binary.LittleEndian.AppendUint32(nil, uint32(len(c.text))), c.text...)
	add("text_input", "BYTES", &pb.InferTensorContents{BytesContents: [][]byte{[]byte(c.text)}}, framed)
	flags := maps.Clone(c.flags)
	if flags == nil {
		flags = map[string]bool{}
	}
	flags["streaming"] = stream
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		data := []byte{0}
		if flags[name] {
			data[0] = 1
		}
		add(name, "BOOL", &pb.InferTensorContents{BoolContents: []bool{flags[name]}}, data)
	}
	for name, v := range c.parameters {
		p := &pb.InferParameter{ParameterChoice: &pb.InferParameter_StringParam{StringParam: fmt.Sprint(v)}}
		if n, ok := v.(int); ok {
			p.ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: int64(n)}
		}
		m.Parameters[name] = p
	}
	return m
}

// inferBody is the call over REST, and generateBody in Triton's short form.
func (c inferCall) inferBody() object {
	inputs := []any{object{"name": "text_input", "datatype": "BYTES", "shape": []int{1}, "data": []string{c.text}}}
	for name, v := range c.flags {
		inputs = append(inputs, object{"name": name, "datatype": "BOOL", "shape": []int{1}, "data": []bool{v}})
	}
	return object{"inputs": inputs, "parameters": c.parameters}
}

func (c inferCall) generateBody() object {
	body := object{"text_input": c.text, "parameters": c.parameters}
	for name, v := range c.flags {
		body[name] = v
	}
	return body
}

// completion is the same request on the route that KServe's models of text go by.
func (c inferCall) completion() object {
	body := object{"model": demo.Name, "prompt": c.text}
	maps.Copy(body, c.parameters)
	if list, ok := body["stop"].(string); ok && list[0] == '[' {
		body["stop"] = json.RawMessage(list)
	}
	if excluded, ok := c.flags["exclude_input_in_output"]; ok {
		body["echo"] = !excluded
	}
	return body
}

// reply is one response as any of the wires brings it: the elements of its outputs and
// its parameters.
type reply struct {
	outputs    map[string][]any
	parameters object
}

// ofMessage reads a response of gRPC.
func ofMessage(t testing.TB, m *pb.ModelInferResponse) reply {
	t.Helper()
	r := reply{map[string][]any{}, object{}}
	for i, out := range m.GetOutputs() {
		var list []any
		switch {
		case len(m.RawOutputContents) == 0 && out.Datatype == "BYTES":
			for _, text := range out.Contents.BytesContents {
				list = append(list, string(text))
			}
		case len(m.RawOutputContents) == 0:
			for _, n := range out.Contents.UintContents {
				list = append(list, float64(n))
			}
		default:
			for data := m.RawOutputContents[i]; len(data) > 0; {
				n := binary.LittleEndian.Uint32(data)
				if data = data[4:]; out.Datatype == "BYTES" {
					list, data = append(list, string(data[:n])), data[n:]
				} else {
					list = append(list, float64(n))
				}
			}
		}
		if len(out.Shape) != 1 || int(out.Shape[0]) != len(list) {
			t.Errorf("%s has %d elements and shape %v", out.Name, len(list), out.Shape)
		}
		r.outputs[out.Name] = list
	}
	for name, p := range m.GetParameters() {
		switch v := p.GetParameterChoice().(type) {
		case *pb.InferParameter_Int64Param:
			r.parameters[name] = float64(v.Int64Param)
		case *pb.InferParameter_BoolParam:
			r.parameters[name] = v.BoolParam
		}
	}
	return r
}

// ofInfer reads a response of REST, and ofGenerate one in Triton's short form.
func ofInfer(o object) reply {
	r := reply{map[string][]any{}, object{}}
	for _, v := range o["outputs"].([]any) {
		r.outputs[v.(object)["name"].(string)] = v.(object)["data"].([]any)
	}
	if parameters, ok := o["parameters"].(object); ok {
		r.parameters = parameters
	}
	return r
}

func ofGenerate(o object) reply {
	r := reply{map[string][]any{}, object{}}
	for name, v := range o {
		switch list, several := v.([]any); {
		case strings.HasSuffix(name, "_tokens") && !strings.HasPrefix(name, "num_"):
			r.parameters[name] = v
		case several:
			r.outputs[name] = list
		case name != "model_name" && name != "model_version" && name != "id":
			r.outputs[name] = []any{v}
		}
	}
	return r
}

// counted are the outputs that a client may ask for besides.
var counted = map[string]bool{"return_num_input_tokens": true, "return_num_output_tokens": true}

// inferred is what an answer has come to, for comparing.
type inferred struct {
	Texts, Reasons []string
	Said           []float64 // tokens of each choice, where that was asked for
	Prompt, Output any       // tokens
}

// together puts responses together, however many there are, and fails the test unless
// each choice has one end and nothing behind it.
func together(t testing.TB, replies []reply) inferred {
	t.Helper()
	if len(replies) == 0 {
		t.Fatal("there is no response")
	}
	n := len(replies[0].outputs["text_output"])
	all := inferred{Texts: make([]string, n), Reasons: make([]string, n)}
	for i, r := range replies {
		if len(r.outputs["text_output"]) != n || len(r.outputs["finish_reason"]) != n {
			t.Fatalf("response %d is of other choices: %v", i, r.outputs)
		}
		for k, text := range r.outputs["text_output"] {
			reason := r.outputs["finish_reason"][k].(string)
			if all.Reasons[k] != "" && (text != "" || reason != "") {
				t.Errorf("choice %d goes on behind its end: %v", k, r.outputs)
			}
			all.Texts[k] += text.(string)
			all.Reasons[k] += reason
		}
		if said := r.outputs["num_output_tokens"]; said != nil {
			if all.Said == nil {
				all.Said = make([]float64, n)
			}
			for k, v := range said {
				all.Said[k] += v.(float64)
			}
		}
		if told := r.parameters["prompt_tokens"]; (told != nil) != (i == len(replies)-1) {
			t.Errorf("response %d of %d tells that there were %v tokens", i, len(replies), told)
		}
	}
	last := replies[len(replies)-1]
	all.Prompt, all.Output = last.parameters["prompt_tokens"], last.parameters["completion_tokens"]
	if slices.Contains(all.Reasons, "") {
		t.Errorf("a choice has no end: %q", all.Reasons)
	}
	return all
}

// ofCompletion is what an answer of the other route has come to.
func ofCompletion(o object) (all inferred) {
	for _, c := range o["choices"].([]any) {
		all.Texts = append(all.Texts, c.(object)["text"].(string))
		all.Reasons = append(all.Reasons, c.(object)["finish_reason"].(string))
	}
	usage := o["usage"].(object)
	all.Prompt, all.Output = usage["prompt_tokens"], usage["completion_tokens"]
	return all
}

// exchangeOn sends one call on a stream of its own, and returns its responses and the
// error that came in the place of more. It fails the test unless the last message is
// marked as such, and no other.
func exchangeOn(t testing.TB, client pb.GRPCInferenceServiceClient, m *pb.ModelInferRequest) (replies []reply, fault string) {
	t.Helper()
	m.Parameters["triton_enable_empty_final_response"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}
	stream, err := client.ModelStreamInfer(t.Context())
	check(t, err)
	check(t, stream.Send(m))
	check(t, stream.CloseSend())
	for final := false; ; {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if !final {
				t.Error("no response was the last one")
			}
			return replies, fault
		}
		check(t, err)
		if final {
			t.Fatalf("a message behind the last one: %v", answer)
		}
		r := ofMessage(t, answer.GetInferResponse())
		final = r.parameters["triton_final_response"].(bool)
		if fault = answer.GetErrorMessage(); fault == "" && len(r.outputs) > 0 {
			replies = append(replies, r)
		}
	}
}

// inferences are the calls that the properties are tried on, by name.
var inferences = map[string]inferCall{
	"plain":     seeded("hello", nil),
	"short":     seeded("hello", object{"max_tokens": 7}),
	"letter":    seeded("hello", object{"max_tokens": 9}),
	"stop":      seeded("please stop", object{"stop": "STOP"}),
	"stops":     seeded("please stop", object{"stop": `["never", "STOP"]`}),
	"choices":   seeded("hello", object{"n": 3}),
	"echo":      seeded("hello", nil).with(map[string]bool{"exclude_input_in_output": false}),
	"raw calls": seeded("agent", object{"max_tokens": 200}),
	"counted":   seeded("hello", object{"n": 2}).with(counted),
}

// 1 and 2, for KServe. Whichever wire an answer takes, at once or in pieces, and
// however the engine cuts it, it is the one that completions give.
func TestKServeAnswersAreTheSameHoweverTheyCome(t *testing.T) {
	answers := map[string]inferred{}
	for _, pace := range []string{"", "pace: {tokens_per_delta: 2}", "pace: {tokens_per_delta: 7}", "pace: {tokens_per_delta: 1000}"} {
		h := build(t, plan{script: scripted(pace), workers: 1})
		client := h.triton(t, 0)
		for name, call := range inferences {
			t.Run(name+"/"+pace, func(t *testing.T) {
				unary, err := client.ModelInfer(t.Context(), call.message(false, true))
				check(t, err)
				want := together(t, []reply{ofMessage(t, unary)})
				same := func(wire string, replies ...reply) {
					t.Helper()
					if diff := cmp.Diff(want, together(t, replies)); diff != "" {
						t.Errorf("over gRPC against %s: %s", wire, diff)
					}
				}
				pieces, fault := exchangeOn(t, client, call.message(true, false))
				same("a stream"+fault, pieces...)
				folded, fault := exchangeOn(t, client, call.message(false, false))
				same("one response of a stream"+fault, folded...)
				same("REST", ofInfer(h.unary(t, kserveModel+"/infer", call.inferBody())))
				same("generate", ofGenerate(h.unary(t, kserveModel+"/generate", call.generateBody())))
				var events []reply
				for _, o := range h.generateStream(t, call.generateBody()).chunks {
					events = append(events, ofGenerate(o))
				}
				same("generate_stream", events...)

				other := ofCompletion(h.unary(t, completionsRoute, call.completion()))
				other.Said = want.Said // of which it does not tell
				if diff := cmp.Diff(want, other); diff != "" {
					t.Errorf("KServe against completions: %s", diff)
				}
				if before, ok := answers[name]; ok {
					if diff := cmp.Diff(before, want); diff != "" {
						t.Error(diff)
					}
				}
				answers[name] = want
			})
		}
		h.idle(t)
	}
}

// generateStream reads what generate_stream sends.
func (h *house) generateStream(t testing.TB, body object) transcript {
	t.Helper()
	raw, err := json.Marshal(body)
	check(t, err)
	resp, err := http.Post(h.url+kserveModel+"/generate_stream", "application/json", bytes.NewReader(raw))
	check(t, err)
	defer resp.Body.Close()
	return readGenerated(t, resp)
}

// readGenerated reads events of generate_stream, whose error is a text.
func readGenerated(t testing.TB, resp *http.Response) (s transcript) {
	t.Helper()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	s = readStream(t, resp.Body)
	for i, o := range s.chunks {
		if o["error"] == nil {
			continue
		}
		if s.fault, s.chunks = o, s.chunks[:i]; i < len(s.chunks) {
			t.Errorf("events behind an error: %v", s.chunks[i+1:])
		}
		break
	}
	return s
}

// 3, for KServe. What was held back is released at the end, in pieces as at once.
func TestNothingIsStuckInKServe(t *testing.T) {
	h := build(t, plan{script: scripted("")})
	client := h.triton(t, 0)
	whole := ""
	for n := 60; n > 0; n -= 3 {
		call := seeded("hello", object{"max_tokens": n, "stop": "STOP"})
		unary, err := client.ModelInfer(t.Context(), call.message(false, true))
		check(t, err)
		text := together(t, []reply{ofMessage(t, unary)}).Texts[0]
		pieces, _ := exchangeOn(t, client, call.message(true, true))
		if streamed := together(t, pieces).Texts[0]; streamed != text {
			t.Errorf("%d tokens: %q at once, %q in pieces", n, text, streamed)
		}
		if whole == "" {
			whole = text
		}
		if cut := strings.TrimSuffix(text, "\uFFFD"); !strings.HasPrefix(whole, cut) {
			t.Errorf("%d tokens: %q is no beginning of %q", n, text, whole)
		}
	}
	if whole != "Plain text with éü and 👍 in it, and a partial STO" {
		t.Errorf("text %q", whole)
	}
	h.idle(t)
}

// 4, for KServe. There is exactly one end, and a fault never looks like a good one.
func TestKServeAnswersHaveOneEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		cut    string
		code   codes.Code
		status int
		early  bool // before the first token
	}{
		"no finish":    {"cut: {after: 3, as: stream_incomplete}", codes.Unavailable, 503, false},
		"disconnected": {"cut: {after: 3, as: disconnected}", codes.Unavailable, 503, false},
		"engine fault": {"cut: {after: 3, as: internal}", codes.Internal, 500, false},
		"silence":      {"cut: {after: 3, as: stall}", codes.DeadlineExceeded, 504, false},
		"refused":      {"cut: {after: 0, as: invalid_argument, message: \"temperature must be even\"}", codes.InvalidArgument, 400, true},
		"overloaded":   {"cut: {after: 0, as: worker_overloaded}", codes.ResourceExhausted, 529, true},
		"early fault":  {"cut: {after: 0, as: internal}", codes.Internal, 500, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan{script: "default:\n  emit: \"one two three four five six seven eight\"\n  " + tc.cut + "\n"}
			if tc.status == http.StatusGatewayTimeout {
				p.limits = pipeline.Limits{FirstItem: 300 * time.Millisecond, Inactivity: 300 * time.Millisecond}
			}
			h := build(t, p)
			client, call := h.triton(t, 0), seeded("x", nil)
			if answer, err := client.ModelInfer(t.Context(), call.message(false, true)); status.Code(err) != tc.code {
				t.Errorf("over gRPC: %v, %v", answer, err)
			}
			for _, streaming := range []bool{true, false} {
				pieces, fault := exchangeOn(t, client, call.message(streaming, false))
				if fault == "" || (len(pieces) > 0) != (streaming && !tc.early) {
					t.Errorf("on a stream, in pieces %v: %d responses and the error %q", streaming, len(pieces), fault)
				}
				for _, r := range pieces {
					if r.outputs["finish_reason"][0] != "" {
						t.Errorf("an end before the fault: %v", r.outputs)
					}
				}
			}
			for path, body := range map[string]object{"/infer": call.inferBody(), "/generate": call.generateBody()} {
				code, raw := h.post(t, kserveModel+path, body)
				if code != tc.status || !bytes.HasPrefix(raw, []byte(`{"error":"`)) {
					t.Errorf("%s: %d %s", path, code, raw)
				}
			}
			if tc.early {
				if code, raw := h.post(t, kserveModel+"/generate_stream", call.generateBody()); code != tc.status {
					t.Errorf("generate_stream: %d %s", code, raw)
				}
			} else if s := h.generateStream(t, call.generateBody()); s.fault == nil || len(s.chunks) == 0 {
				t.Errorf("generate_stream: %v, and then %v", s.chunks, s.fault)
			}
			h.idle(t)
		})
	}
}

// 6, for KServe. No prompt is refused for its bytes: those that are no text count as
// what they count as on the other APIs.
func TestNoPromptIsRefusedByKServe(t *testing.T) {
	h := build(t, plan{workers: 1})
	client := h.triton(t, 0)
	for name, tc := range map[string]struct{ bytes, text string }{
		"no UTF-8":         {"a\xff\xfeb", "a\uFFFD\uFFFDb"},
		"NUL":              {"a\x00b", "a\uFFFDb"},
		"half a character": {"東\xe4\xba", "東\uFFFD\uFFFD"},
		"nothing at all":   {"\x00", "\uFFFD"},
	} {
		got, err := client.ModelInfer(t.Context(), seeded(tc.bytes, nil).message(false, true))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := ofCompletion(h.unary(t, completionsRoute, seeded(tc.text, nil).completion()))
		if diff := cmp.Diff(want, together(t, []reply{ofMessage(t, got)})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	h.idle(t)
}

// 8, for KServe. When the client has left, or takes its stream with it, everything
// stops and every booking is released.
func TestGoneIsGoneOfKServe(t *testing.T) {
	h := build(t, plan{
		script: "rules:\n  - {when: {user: never}, emit: x, cut: {after: 0, as: stall}}\n" +
			"default:\n  emit: \"" + strings.Repeat("word ", 3000) + "\"\n  pace: {itl: 2ms}\n",
		maxRunning: 4,
	})
	client := h.triton(t, 0)
	long := seeded("x", object{"max_tokens": 3000})
	for _, text := range []string{"x", "never"} {
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := client.ModelInfer(ctx, seeded(text, object{"max_tokens": 3000, "n": 2}).message(false, true))
			gone <- err
		}()
		waitFor(t, "the call is under way", func() bool { return h.booked() == 2 })
		leave()
		if err := <-gone; status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", text, err)
		}
		h.idle(t)
	}
	// More on one stream than the engines run at once: some leave while they wait.
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	stream, err := client.ModelStreamInfer(ctx)
	check(t, err)
	for i := range 20 {
		check(t, stream.Send(long.message(i%2 == 0, true)))
	}
	waitFor(t, "all calls are under way", func() bool { return h.booked() == 20 })
	_, err = stream.Recv()
	check(t, err)
	leave()
	h.idle(t)

	h.leave(t, kserveModel+"/infer", long.inferBody(), 0)
	h.idle(t)
	h.leave(t, kserveModel+"/generate_stream", long.generateBody(), 3000)
	h.idle(t)
}

// 9, for KServe. Streams that nobody reads cost a bounded amount, for a bounded time.
func TestSlowReadersOfKServeAreBounded(t *testing.T) {
	h := build(t, plan{timing: &sse.Timing{}})
	client := h.triton(t, 2*time.Second)
	const streams, calls = 20, 5
	before := heap()
	for range streams {
		stream, err := client.ModelStreamInfer(t.Context())
		check(t, err)
		for range calls {
			check(t, stream.Send(seeded("x", object{"max_tokens": 10000, "ignore_eos": "true"}).message(true, true)))
		}
	}
	waitFor(t, "all calls are under way", func() bool { return h.booked() == streams*calls && h.prefilled() })
	if held := heap() - before; held > streams*calls<<20 {
		t.Errorf("%d streams that nobody reads hold %d KiB", streams, held>>10)
	}
	h.idle(t) // the server's patience ends them all
}
