package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// thin is the codec for tensors of any size.
func thin() codec {
	c := newCodec()
	c.large = 1
	return c
}

// cut returns a text in several buffers.
func cut(text []byte) mem.BufferSlice {
	var list mem.BufferSlice
	for len(text) > 0 {
		n := min(len(text), 1+len(text)/3)
		list = append(list, mem.SliceBuffer(text[:n]))
		text = text[n:]
	}
	return list
}

var (
	words   = rapid.SampledFrom([]string{"", "a", "text_input", "é"})
	anyRaw  = rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 0, 4)
	numbers = rapid.SliceOf(rapid.Int64())
)

func parameter(t *rapid.T) map[string]*inferencepb.InferParameter {
	if rapid.Bool().Draw(t, "bare") {
		return nil
	}
	return map[string]*inferencepb.InferParameter{"k": {ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: rapid.Int64().Draw(t, "k")}}}
}

// What is written is what the library reads.
func TestCodecWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &inferencepb.ModelInferResponse{
			ModelName: words.Draw(t, "name"), ModelVersion: words.Draw(t, "version"), Id: words.Draw(t, "id"), Parameters: parameter(t),
			RawOutputContents: anyRaw.Draw(t, "raw"),
		}
		for range r.RawOutputContents {
			r.Outputs = append(r.Outputs, &inferencepb.ModelInferResponse_InferOutputTensor{Name: words.Draw(t, "output"), Datatype: "UINT8", Shape: numbers.Draw(t, "shape"), Parameters: parameter(t)})
		}
		stream := &inferencepb.ModelStreamInferResponse{InferResponse: r}
		if rapid.IntRange(0, 4).Draw(t, "error") == 0 {
			stream.ErrorMessage = "no"
		}
		for _, m := range []proto.Message{r, stream} {
			out, err := thin().Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			text, got := out.Materialize(), m.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(text, got); err != nil || !proto.Equal(got, m) || len(text) != proto.Size(m) {
				t.Fatalf("%d bytes of %d: %v\n%v\nwant\n%v", len(text), proto.Size(m), err, got, m)
			}
		}
	})
}

// Tensors are not copied where they are large.
func TestCodecCopiesNoTensor(t *testing.T) {
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 64<<10)
	out, err := newCodec().Marshal(&inferencepb.ModelInferResponse{Id: "7", RawOutputContents: [][]byte{data}})
	if err != nil || len(out) != 2 || &out[1].ReadOnlyData()[0] != &data[0] {
		t.Errorf("%d buffers, %v", len(out), err)
	}
	text, err := proto.Marshal(&inferencepb.ModelInferRequest{Id: "7", RawInputContents: [][]byte{data, {5}}})
	if err != nil {
		t.Fatal(err)
	}
	var m inferencepb.ModelInferRequest
	if err := readCall(text, &m); err != nil || m.Id != "7" || len(m.RawInputContents) != 2 {
		t.Fatalf("%v, %v", m.Id, err)
	}
	if raw := m.RawInputContents[0]; &raw[0] != &text[len(text)-len(raw)-3] || cap(raw) != len(raw) || !bytes.Equal(raw, data) {
		t.Error("the tensor is another one, or could grow into the next")
	}
	small, err := newCodec().Marshal(&inferencepb.ModelInferResponse{Id: "7", RawOutputContents: [][]byte{{1}}})
	if err != nil || len(small) != 1 {
		t.Errorf("%d buffers of a small response, %v", len(small), err)
	}
}

// FuzzCodecReads holds what is read of any bytes against what the library reads.
func FuzzCodecReads(f *testing.F) {
	for _, m := range []*inferencepb.ModelInferRequest{
		{},
		{ModelName: "m", Id: "7", RawInputContents: [][]byte{{1, 2}, {}}},
		{Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "a", Shape: []int64{1, -1}, Contents: &inferencepb.InferTensorContents{BytesContents: [][]byte{{1}}}}}},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(append(append([]byte{}, text...), text...)) // with fields behind tensors
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte{7 << 3, 1, 7<<3 | 2, 1, 9}) // the number of the tensors, and not their kind
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 {
			return
		}
		var want, got inferencepb.ModelInferRequest
		wrong := proto.Unmarshal(text, &want)
		err := thin().Unmarshal(cut(bytes.Clone(text)), &got)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%v, and the library says %v", err, wrong)
		}
		if err == nil && !proto.Equal(&got, &want) {
			t.Errorf("%v\nwant\n%v", &got, &want)
		}
	})
}
