package kserve_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// Data stands behind the JSON in the order of the inputs, and is not copied.
func TestBytesBehindJSON(t *testing.T) {
	const text = `{"inputs":[
		{"name":"a","datatype":"UINT16","shape":[2],"parameters":{"binary_data_size":4,"k":1}},
		{"name":"b","datatype":"INT8","shape":[1],"data":[9]},
		{"name":"c","datatype":"BOOL","shape":[3],"parameters":{"binary_data_size":3}},
		{"name":"d","datatype":"FP16","shape":[0],"parameters":{"binary_data_size":0}}]}`
	body := []byte(text + "\x01\x02\x03\x04\x00\x05\x01")
	r, form, err := kserve.FromJSON(body, len(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tensors(); err != nil {
		t.Fatal(err)
	}
	if !r.Raw || len(r.Inputs) != 4 || !bytes.Equal(r.Inputs[0].Data, []byte{1, 2, 3, 4}) || !bytes.Equal(r.Inputs[1].Data, []byte{9}) ||
		!bytes.Equal(r.Inputs[2].Data, []byte{0, 1, 1}) || len(r.Inputs[3].Data) != 0 {
		t.Errorf("%+v", r)
	}
	if &r.Inputs[0].Data[0] != &body[len(text)] {
		t.Error("the data were copied")
	}
	if len(r.Inputs[0].Parameters) != 1 || r.Inputs[2].Parameters != nil {
		t.Errorf("parameters of the wire are left: %v", r.Inputs)
	}
	// Nobody asked for bytes.
	out, tail, err := kserve.ToJSON(nil, &kserve.Response{Outputs: r.Inputs[1:2]}, form)
	if err != nil || len(tail) > 0 || !strings.Contains(string(out), `"data":[9]`) {
		t.Errorf("%s %v %v", out, tail, err)
	}
}

func TestBytesRefused(t *testing.T) {
	input := func(datatype string, size any) string {
		return fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":[2],"parameters":{"binary_data_size":%v}}]}`, datatype, size)
	}
	for _, c := range []struct {
		text, tail string
		header     int // added to the length of the text
		want       string
	}{
		{input("INT8", 2), "\x01\x02\x03", 0, "1 bytes follow those that inputs claim by binary_data_size"},
		{input("INT8", 2), "\x01", 0, "binary_data_size is 2, and 1 bytes are left behind the JSON"},
		{input("INT8", -1), "", 0, "binary_data_size must be a number of bytes"},
		{input("INT8", 1.5), "", 0, "binary_data_size must be a number of bytes"},
		{input("INT8", `"2"`), "\x01\x02", 0, "binary_data_size must be a number of bytes"},
		{input("INT8", 2), "\x01\x02", 3, "Inference-Header-Content-Length is"},
		{input("INT8", 2), "\x01\x02", -1, "the JSON text ends too early"},
		{input("INT16", 3), "\x01\x02\x03", 0, "Raw input length must be a multiple of 2"},
		{input("INT16", 2), "\x01\x02", 0, "expected 2 elements, got 1 elements"},
		{input("BYTES", 4), "\x01\x00\x00\x00", 0, "length exceeds raw input size"},
		{input("BYTES", 3), "\x01\x00\x00", 0, "extra bytes at the end"},
		{input("NONE", 2), "\x01\x02", 0, "Invalid data type 'NONE'"},
		{`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1],"parameters":{"binary_data_size":1}}]}`, "\x01", 0, "has both data and binary_data_size"},
	} {
		r, _, err := kserve.FromJSON([]byte(c.text+c.tail), len(c.text)+c.header)
		if err == nil {
			_, err = r.Tensors()
		}
		if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), "Failed to parse request: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// An output says for itself whether it goes out as bytes; else the request does.
func TestWantedAsBytes(t *testing.T) {
	response := &kserve.Response{Model: "m", Version: "1", Outputs: []engine.Tensor{
		{Name: "a", Datatype: "UINT8", Shape: []int64{2}, Data: []byte{1, 2}},
		{Name: "b", Datatype: "FP16", Shape: []int64{1}, Data: []byte{0, 60}, Parameters: engine.Parameters{"k": "v"}},
		{Name: "c", Datatype: "BOOL", Shape: []int64{1}, Data: []byte{7}},
	}}
	const a, b = `{"name":"a","datatype":"UINT8","shape":[2],"data":[1,2]}`, `{"name":"b","datatype":"FP16","shape":[1],"parameters":{"binary_data_size":2,"k":"v"}}`
	const c, asBytes = `{"name":"c","datatype":"BOOL","shape":[1],"data":[true]}`, `{"name":"a","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}}`
	for _, test := range []struct{ request, outputs, tail string }{
		{`{"outputs":[{"name":"b","parameters":{"binary_data":true}}]}`, a + "," + b + "," + c, "\x00<"},
		{`{"parameters":{"binary_data_output":true},"outputs":[{"name":"a","parameters":{"binary_data":false}},{"name":"c","parameters":{"binary_data":false}}]}`, a + "," + b + "," + c, "\x00<"},
		{`{"parameters":{"binary_data_output":true},"outputs":[{"name":"c","parameters":{"binary_data":false}},{"name":"a"}]}`, asBytes + "," + b + "," + c, "\x01\x02\x00<"},
	} {
		_, form, err := kserve.FromJSON([]byte(test.request), -1)
		if err != nil {
			t.Fatal(err)
		}
		text, tail, err := kserve.ToJSON(nil, response, form)
		want := `{"model_name":"m","model_version":"1","outputs":[` + test.outputs + `]}`
		if err != nil || string(text) != want || string(slices.Concat(tail...)) != test.tail {
			t.Errorf("%s: %s %q %v", test.request, text, tail, err)
		}
	}
	if len(response.Outputs[1].Parameters) != 1 {
		t.Error("the response was changed")
	}
	_, form, _ := kserve.FromJSON([]byte(`{"parameters":{"binary_data_output":true}}`), -1)
	if _, tail, _ := kserve.ToJSON(nil, response, form); tail[2][0] != 1 {
		t.Error("a truth value that is neither 0 nor 1 went out")
	}
}

func TestFromBytes(t *testing.T) {
	input := func(datatype inferencepb.DataType, optional bool, dims ...int64) *inferencepb.ModelInput {
		return &inferencepb.ModelInput{Name: "x", DataType: datatype, Dims: dims, Optional: optional}
	}
	const number, text = inferencepb.DataType_TYPE_INT16, inferencepb.DataType_TYPE_STRING
	for _, c := range []struct {
		inputs []*inferencepb.ModelInput
		batch  int32
		body   string
		shape  []int64
		data   string
		fault  string
	}{
		{[]*inferencepb.ModelInput{input(number, false, 2)}, 0, "abcd", []int64{2}, "abcd", ""},
		{[]*inferencepb.ModelInput{input(number, false, -1, 2)}, 0, "abcdefgh", []int64{2, 2}, "abcdefgh", ""},
		{[]*inferencepb.ModelInput{input(number, false, -1)}, 4, "abcd", []int64{1, 2}, "abcd", ""},
		{[]*inferencepb.ModelInput{input(number, false, -1)}, 0, "", []int64{0}, "", ""},
		{[]*inferencepb.ModelInput{input(text, false, 1), input(number, true, 1)}, 0, "hi", []int64{1}, "\x02\x00\x00\x00hi", ""},
		{[]*inferencepb.ModelInput{input(text, false, -1)}, 1, "hi", []int64{1, 1}, "\x02\x00\x00\x00hi", ""},
		{[]*inferencepb.ModelInput{input(number, true, 1)}, 0, "ab", []int64{1}, "ab", ""},
		{[]*inferencepb.ModelInput{input(number, false, 3)}, 0, "abcd", nil, "", "expected 3 elements, got 2"},
		{[]*inferencepb.ModelInput{input(number, false, -1)}, 0, "abc", nil, "", "must be a multiple of 2"},
		{[]*inferencepb.ModelInput{input(text, false, 2)}, 0, "abc", nil, "", "expected 2 elements, got 1"},
		{[]*inferencepb.ModelInput{input(number, false, -1, -1)}, 0, "abcd", nil, "", "several dimensions of any length"},
		{[]*inferencepb.ModelInput{input(number, false, -1, 0)}, 0, "", nil, "", "negative dimension"},
		{[]*inferencepb.ModelInput{input(0, false, 1)}, 0, "abcd", nil, "", "Invalid data type 'INVALID'"},
		{[]*inferencepb.ModelInput{input(number, false, 1), input(number, false, 1)}, 0, "abcd", nil, "", "model 'm' has 2"},
		{nil, 0, "abcd", nil, "", "model 'm' has none"},
	} {
		config := &inferencepb.ModelConfig{Name: "m", Input: c.inputs, MaxBatchSize: c.batch}
		before := proto.Clone(config)
		r, form, err := kserve.FromBytes([]byte(c.body), config)
		if err == nil {
			_, err = r.Tensors()
		}
		if c.fault != "" {
			if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || len(r.Inputs) != 1 || !slices.Equal(r.Inputs[0].Shape, c.shape) || string(r.Inputs[0].Data) != c.data {
			t.Errorf("%+v: %+v %v", c, r, err)
			continue
		}
		if _, tail, err := kserve.ToJSON(nil, &kserve.Response{Outputs: r.Inputs}, form); err != nil || len(tail) != 1 {
			t.Errorf("%+v: answered by %v %v", c, tail, err)
		}
		if !proto.Equal(before, config) {
			t.Errorf("the configuration became %v", config)
		}
	}
}

// FuzzFromJSON reads anything as a request, cut anywhere.
func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"id":"r","inputs":[{"name":"x","datatype":"BYTES","shape":[1],"data":["a"]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"k":1}}`), -1)
	const text = `{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}]}`
	f.Add([]byte(text+"\x01\x00\x00\x00a\x00\x00\x00\x00"), len(text))
	f.Add([]byte(`{"id":"`+"\xff"+`","inputs":[{"name":"`+"\xff"+`","datatype":"BOOL","shape":[0],"data":[],"parameters":{"`+"\xff"+`":1}}],"parameters":{"`+"\xff\\ud800"+`":"`+"\xff"+`"}}`), -1)
	f.Fuzz(func(t *testing.T, body []byte, header int) {
		r, form, err := kserve.FromJSON(body, header)
		if err != nil {
			if engine.KindOf(err) != engine.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		sent, err := r.Tensors()
		if err != nil {
			return
		}
		texts := append([]string{sent.ID}, sent.Outputs...)
		texts = append(texts, textsOf(sent.Parameters)...)
		for i := range r.Inputs {
			texts = append(append(texts, r.Inputs[i].Name), textsOf(r.Inputs[i].Parameters)...)
		}
		for _, s := range texts {
			if !utf8.ValidString(s) {
				t.Fatalf("no message to a worker holds %q", s)
			}
		}
		size := 0
		for i := range r.Inputs {
			if err := r.Inputs[i].Check(); err != nil {
				t.Fatalf("what was decoded is no tensor: %v", err)
			}
			size += len(r.Inputs[i].Data)
		}
		if size > 8*len(body) {
			t.Fatalf("%d bytes became %d", len(body), size)
		}
		if _, _, err := kserve.ToJSON(nil, &kserve.Response{Outputs: r.Inputs}, form); err != nil && engine.KindOf(err) != engine.InvalidArgument {
			t.Fatal(err)
		}
	})
}

// textsOf returns the names of parameters, and those values that are texts.
func textsOf(all engine.Parameters) (texts []string) {
	for name, value := range all {
		texts = append(texts, name)
		if text, ok := value.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// arrayOf returns an array of about size bytes of JSON.
func arrayOf(datatype string, size int) (text []byte, n int) {
	random := rand.New(rand.NewPCG(1, 2))
	text = append(text, '[')
	for ; len(text) < size; n++ {
		switch datatype {
		case "FP32":
			text = strconv.AppendFloat(text, float64(random.Float32()), 'g', -1, 32)
		case "FP64":
			text = strconv.AppendFloat(text, random.Float64(), 'g', -1, 64)
		case "INT64":
			text = strconv.AppendInt(text, random.Int64()>>random.IntN(64), 10)
		case "UINT8":
			text = strconv.AppendInt(text, int64(random.IntN(256)), 10)
		case "BYTES":
			text = append(text, `"some words of a text"`...)
		}
		text = append(text, ',')
	}
	text[len(text)-1] = ']'
	return text, n
}

// However many elements a request has, they cost one piece of memory.
func TestJSONAllocations(t *testing.T) {
	for _, datatype := range []string{"FP32", "FP64", "INT64", "UINT8", "BYTES"} {
		text, n := arrayOf(datatype, 1<<20)
		body := fmt.Appendf(nil, `{"inputs":[{"name":"x","datatype":%q,"shape":[%d],"data":%s}]}`, datatype, n, text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, _, err := kserve.FromJSON(body, -1)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		pieces, size := after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
		if most := uint64(len(r.Inputs[0].Data) + len(body)/8 + 64<<10); pieces > 100 || size > most {
			t.Errorf("%s: %d pieces of %d bytes together, want at most %d", datatype, pieces, size, most)
		}
	}
}

// A shape that claims more than there is costs nothing.
func TestJSONClaims(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, _, err := kserve.FromJSON([]byte(`{"inputs":[{"name":"x","datatype":"FP64","shape":[1000000000000],"data":[1]}]}`), -1)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Tensors(); err == nil {
		t.Error("it passes")
	}
	if size := after.TotalAlloc - before.TotalAlloc; size > 64<<10 {
		t.Errorf("it took %d bytes", size)
	}
}

// What a request of 16 MB of JSON costs, and an answer of the same elements.
func BenchmarkJSON(b *testing.B) {
	for _, datatype := range []string{"FP32", "FP64", "INT64", "UINT8", "BYTES"} {
		text, n := arrayOf(datatype, 16<<20)
		body := fmt.Appendf(nil, `{"inputs":[{"name":"x","datatype":%q,"shape":[%d],"data":%s}]}`, datatype, n, text)
		r, _, err := kserve.FromJSON(body, -1)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("read/"+datatype, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := kserve.FromJSON(body, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("write/"+datatype, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := kserve.ToJSON(nil, &kserve.Response{Outputs: r.Inputs}, kserve.Binary{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
