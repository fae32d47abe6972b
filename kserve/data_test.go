package kserve_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// drawn is a tensor with its elements as numbers of a message, and what its bytes are
// by the rules of the protocol and with no thought of speed.
type drawn struct {
	datatype string
	n        int
	contents *inferencepb.InferTensorContents
	data     []byte
}

// tensors draws tensors of all datatypes that have numbers.
var tensors = rapid.Custom(func(t *rapid.T) drawn {
	d := drawn{
		datatype: rapid.SampledFrom([]string{
			"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES",
		}).Draw(t, "datatype"),
		n:        rapid.IntRange(0, 20).Draw(t, "n"),
		contents: &inferencepb.InferTensorContents{},
	}
	c := d.contents
	for range d.n {
		switch d.datatype {
		case "BOOL":
			v := rapid.Bool().Draw(t, "v")
			c.BoolContents = append(c.BoolContents, v)
			d.put(v)
		case "UINT8":
			v := rapid.Uint8().Draw(t, "v")
			c.UintContents = append(c.UintContents, uint32(v))
			d.put(v)
		case "UINT16":
			v := rapid.Uint16().Draw(t, "v")
			c.UintContents = append(c.UintContents, uint32(v))
			d.put(v)
		case "UINT32":
			v := rapid.Uint32().Draw(t, "v")
			c.UintContents = append(c.UintContents, v)
			d.put(v)
		case "UINT64":
			v := rapid.Uint64().Draw(t, "v")
			c.Uint64Contents = append(c.Uint64Contents, v)
			d.put(v)
		case "INT8":
			v := rapid.Int8().Draw(t, "v")
			c.IntContents = append(c.IntContents, int32(v))
			d.put(v)
		case "INT16":
			v := rapid.Int16().Draw(t, "v")
			c.IntContents = append(c.IntContents, int32(v))
			d.put(v)
		case "INT32":
			v := rapid.Int32().Draw(t, "v")
			c.IntContents = append(c.IntContents, v)
			d.put(v)
		case "INT64":
			v := rapid.Int64().Draw(t, "v")
			c.Int64Contents = append(c.Int64Contents, v)
			d.put(v)
		case "FP32":
			v := math.Float32frombits(rapid.Uint32().Draw(t, "v"))
			c.Fp32Contents = append(c.Fp32Contents, v)
			d.put(v)
		case "FP64":
			v := math.Float64frombits(rapid.Uint64().Draw(t, "v"))
			c.Fp64Contents = append(c.Fp64Contents, v)
			d.put(v)
		case "BYTES":
			v := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "v")
			c.BytesContents = append(c.BytesContents, v)
			d.put(uint32(len(v)))
			d.data = append(d.data, v...)
		}
	}
	return d
})

func (d *drawn) put(v any) {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
	d.data = append(d.data, b.Bytes()...)
}

// call is a request with tensors as numbers or as bytes.
func call(list []drawn, raw bool) *inferencepb.ModelInferRequest {
	m := &inferencepb.ModelInferRequest{}
	for i, d := range list {
		in := &inferencepb.ModelInferRequest_InferInputTensor{Name: fmt.Sprint(i), Datatype: d.datatype, Shape: []int64{int64(d.n), 1}}
		if raw {
			m.RawInputContents = append(m.RawInputContents, d.data)
		} else {
			in.Contents = d.contents
		}
		m.Inputs = append(m.Inputs, in)
	}
	return m
}

// Whichever form a request has, it says the same, and so do responses: over the wire,
// in, across, out and over the wire again.
func TestFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(tensors, 1, 4).Draw(t, "tensors")
		for _, raw := range []bool{false, true} {
			wire, err := proto.Marshal(call(list, raw))
			if err != nil {
				t.Fatal(err)
			}
			m := &inferencepb.ModelInferRequest{}
			if err := proto.Unmarshal(wire, m); err != nil {
				t.Fatal(err)
			}
			r, err := kserve.FromProto(m)
			if err != nil {
				t.Fatal(err)
			}
			in, err := r.Tensors()
			if err != nil {
				t.Fatal(err)
			}
			for i, d := range list {
				if !bytes.Equal(in.Inputs[i].Data, d.data) {
					t.Fatalf("%s, raw %v: data is %x, want %x", d.datatype, raw, in.Inputs[i].Data, d.data)
				}
				if err := in.Inputs[i].Check(); err != nil {
					t.Fatal(err)
				}
			}
			for _, rawOut := range []bool{false, true} {
				compareOutputs(t, list, r.FromTensors(&engine.TensorResponse{Outputs: in.Inputs}), rawOut)
			}
		}
	})
}

func compareOutputs(t *rapid.T, list []drawn, r *kserve.Response, raw bool) {
	out, err := kserve.ToProto(r, raw)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := proto.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	got := &inferencepb.ModelInferResponse{}
	if err := proto.Unmarshal(wire, got); err != nil {
		t.Fatal(err)
	}
	for i, d := range list {
		o := got.Outputs[i]
		if o.Name != fmt.Sprint(i) || o.Datatype != d.datatype || len(o.Shape) != 2 {
			t.Fatalf("output %d is %v", i, o)
		}
		switch {
		case raw && (o.Contents != nil || !bytes.Equal(got.RawOutputContents[i], d.data)):
			t.Fatalf("%s: bytes are %x, want %x", d.datatype, got.RawOutputContents[i], d.data)
		case !raw && (len(got.RawOutputContents) > 0 || !sameContents(o.Contents, d.contents)):
			t.Fatalf("%s: contents are %v, want %v", d.datatype, o.Contents, d.contents)
		}
	}
}

// sameContents compares bit for bit: one that is not a number is like itself.
func sameContents(a, b *inferencepb.InferTensorContents) bool {
	one, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	two, err2 := proto.MarshalOptions{Deterministic: true}.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(one, two)
}

// Bytes that a worker has cut out of the middle of something are numbers, too.
func TestNumbersThatLieOdd(t *testing.T) {
	for _, c := range datatypes {
		if c.contents == "" {
			continue
		}
		for offset := range 8 {
			data := append(make([]byte, offset, offset+len(c.data)), c.data...)[offset:]
			out, err := kserve.ToProto(&kserve.Response{Outputs: []engine.Tensor{{Datatype: c.datatype, Data: data}}}, false)
			if err != nil {
				t.Fatal(err)
			}
			if want := parsed[inferencepb.InferTensorContents](t, c.contents); !proto.Equal(out.Outputs[0].Contents, want) {
				t.Errorf("%s, %d bytes in: %v, want %v", c.datatype, offset, out.Outputs[0].Contents, want)
			}
		}
	}
}

// Bytes that differ from the good ones in any way are told, or are good as well, and
// [engine.Tensor.Check] agrees.
func TestSpoiltBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := tensors.Draw(t, "tensor")
		data := bytes.Clone(d.data)
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			at := rapid.IntRange(0, len(data)).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				data = append(data, rapid.Byte().Draw(t, "byte"))
			case 1:
				data = data[:at]
			case 2:
				if at < len(data) {
					data[at] = rapid.Byte().Draw(t, "byte")
				}
			}
		}
		d.data = data
		r, err := kserve.FromProto(call([]drawn{d}, true))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Tensors()
		if plain := r.Inputs[0].Check(); (err == nil) != (plain == nil) {
			t.Fatalf("%s of %d with %x: %v, but %v", d.datatype, d.n, data, err, plain)
		}
	})
}
