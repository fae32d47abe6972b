package kserve_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// parsed returns the message that a text is.
func parsed[M any, P interface {
	*M
	proto.Message
}](t testing.TB, text string) P {
	t.Helper()
	m := P(new(M))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// datatypes has each datatype with its elements as numbers of a message, and as
// bytes. FP16 and BF16 have no numbers.
var datatypes = []struct {
	datatype, shape, contents, data string
}{
	{"BOOL", "2", `bool_contents: [true, false]`, "\x01\x00"},
	{"UINT8", "3", `uint_contents: [0, 7, 255]`, "\x00\x07\xff"},
	{"UINT16", "2", `uint_contents: [258, 65535]`, "\x02\x01\xff\xff"},
	{"UINT32", "2", `uint_contents: [1, 4294967295]`, "\x01\x00\x00\x00\xff\xff\xff\xff"},
	{"UINT64", "1", `uint64_contents: 18446744073709551614`, "\xfe\xff\xff\xff\xff\xff\xff\xff"},
	{"INT8", "3", `int_contents: [-128, -1, 127]`, "\x80\xff\x7f"},
	{"INT16", "2", `int_contents: [-32768, 32767]`, "\x00\x80\xff\x7f"},
	{"INT32", "2", `int_contents: [-2147483648, 3]`, "\x00\x00\x00\x80\x03\x00\x00\x00"},
	{"INT64", "1", `int64_contents: -9223372036854775807`, "\x01\x00\x00\x00\x00\x00\x00\x80"},
	{"FP32", "2", `fp32_contents: [1.5, -0.25]`, "\x00\x00\xc0\x3f\x00\x00\x80\xbe"},
	{"FP64", "1", `fp64_contents: -2.5`, "\x00\x00\x00\x00\x00\x00\x04\xc0"},
	{"BYTES", "3", `bytes_contents: ["hi", "", "\xff\x00"]`, "\x02\x00\x00\x00hi\x00\x00\x00\x00\x02\x00\x00\x00\xff\x00"},
	{"FP16", "2", "", "\x00\x3c\x01\xfc"},
	{"BF16", "1", "", "\x80\x3f"},
	{"INT64", "0", "", ""},
	{"BYTES", "0", "", ""},
}

// octets writes bytes for a message in text.
func octets(data string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(data) {
		out.WriteString(`\x` + string("0123456789abcdef"[data[i]>>4]) + string("0123456789abcdef"[data[i]&15]))
	}
	out.WriteByte('"')
	return out.String()
}

func TestEveryDatatype(t *testing.T) {
	for _, c := range datatypes {
		half := c.datatype == "FP16" || c.datatype == "BF16"
		said := `name: "x" datatype: "` + c.datatype + `" shape: ` + c.shape
		for _, form := range []struct {
			text string
			raw  bool
		}{
			{`inputs { ` + said + ` contents { ` + c.contents + ` } }`, false},
			{`inputs { ` + said + ` } raw_input_contents: ` + octets(c.data), true},
		} {
			if half && !form.raw {
				continue
			}
			r, err := kserve.FromProto(parsed[inferencepb.ModelInferRequest](t, form.text))
			if err != nil {
				t.Errorf("%s: %v", form.text, err)
				continue
			}
			if r.Raw != form.raw || string(r.Inputs[0].Data) != c.data {
				t.Errorf("%s: raw is %v and data %q, want %v and %q", form.text, r.Raw, r.Inputs[0].Data, form.raw, c.data)
			}
			in, err := r.Tensors()
			if err != nil {
				t.Errorf("%s: %v", form.text, err)
				continue
			}
			for _, raw := range []bool{false, true} {
				out, err := kserve.ToProto(r.FromTensors(&engine.TensorResponse{Outputs: in.Inputs}), raw)
				if err != nil {
					t.Errorf("%s, raw %v: %v", form.text, raw, err)
					continue
				}
				want := `model_version: "1" outputs { ` + said
				if raw || half {
					want += ` } raw_output_contents: ` + octets(c.data)
				} else {
					want += ` contents { ` + c.contents + ` } }`
				}
				if diff := cmp.Diff(parsed[inferencepb.ModelInferResponse](t, want), out, protocmp.Transform()); diff != "" {
					t.Errorf("%s, raw %v (-want +got):\n%s", form.text, raw, diff)
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	input := func(datatype, shape, rest string) string {
		return `inputs { name: "x" datatype: "` + datatype + `" shape: ` + shape + ` ` + rest + ` }`
	}
	raw := func(datatype, shape, data string) string {
		return input(datatype, shape, "") + ` raw_input_contents: ` + octets(data)
	}
	typed := func(datatype, shape, contents string) string {
		return input(datatype, shape, `contents { `+contents+` }`)
	}
	for _, c := range []struct{ request, want string }{
		{`inputs { name: "x" } inputs { name: "y" } raw_input_contents: "a"`, "`raw_input_contents` must be used for all inputs, got 1 for 2 inputs"},
		{`raw_input_contents: ""`, "`raw_input_contents` must be used for all inputs"},
		{input("INT8", "1", `contents {}`) + ` raw_input_contents: "a"`, "contents of input tensor 'x' must not be given where `raw_input_contents` is used"},
		{input("INT8", "1", ""), "unable to find data for input tensor 'x'"},
		{raw("INT8", "1", "a") + input("INT8", "1", "") + ` raw_input_contents: "b"`, "Duplicate input name: 'x'"},
		{input("INT8", "1", `parameters { key: "shared_memory_region" value { string_param: "r" } }`), "shared memory is not supported"},
		{`inputs { name: "x" parameters { key: "shared_memory_region" value { string_param: "r" } } } inputs { name: "y" } raw_input_contents: "a"`, "shared memory is not supported"},
		{`outputs { name: "y" parameters { key: "shared_memory_region" value { string_param: "r" } } }`, "shared memory is not supported"},
		{`parameters { key: "b" value {} } parameters { key: "a" value {} } parameters { key: "0" value { bool_param: true } }`, "Parameter 'a' has no value"},
		{input("INT8", "1", `parameters { key: "" value {} }`), "Parameter '' has no value"},
		{`outputs { name: "y" parameters { key: "k" } }`, "Parameter 'k' has no value"},

		{raw("STRING", "1", "a"), "Invalid data type 'STRING' of input tensor 'x'"},
		{typed("", "1", ""), "Invalid data type '' of input tensor 'x'"},
		{raw("INT8", "[2, -1]", ""), "Shape contains negative dimension: -1"},
		{raw("INT8", "[0, -3]", ""), "Shape contains negative dimension: -3"},
		{typed("INT8", "-1", "int_contents: 1"), "only -1 is allowed as a wildcard dimension"},
		{raw("INT8", "[4294967296, 2147483648]", ""), "Overflow occurred while calculating element count"},
		{typed("INT8", "[4294967296, 2147483648]", ""), "Overflow occurred while calculating element count"},
		{raw("INT8", "9223372036854775807", ""), "expected 9223372036854775807 elements, got 0 elements"},
		{raw("INT32", "1", "abc"), "Raw input length must be a multiple of 4"},
		{raw("FP16", "1", "abc"), "Raw input length must be a multiple of 2"},
		{raw("INT32", "[-1]", "abc"), "Shape contains negative dimension: -1"},
		{raw("INT32", "2", "abcd"), "Raw input element count for 'x' does not match expected size, expected 2 elements, got 1 elements"},
		{raw("BOOL", "[]", ""), "Raw input element count for 'x' does not match expected size, expected 1 elements, got 0 elements"},
		{raw("BYTES", "1", "\x02\x00\x00\x00a"), "Invalid length-prefixed BYTES input for 'x', length exceeds raw input size"},
		{raw("BYTES", "1", "\xff\xff\xff\xffa"), "Invalid length-prefixed BYTES input for 'x', length exceeds raw input size"},
		{raw("BYTES", "1", "\x01\x00\x00\x00abc"), "Invalid length-prefixed BYTES input for 'x', extra bytes at the end"},
		{raw("BYTES", "1", "ab"), "Invalid length-prefixed BYTES input for 'x', extra bytes at the end"},
		{raw("BYTES", "2", "\x01\x00\x00\x00a"), "Raw input element count for 'x' does not match expected size, expected 2 elements, got 1 elements"},
		{raw("BYTES", "[]", ""), "Raw input element count for 'x' does not match expected size, expected 1 elements, got 0 elements"},

		{typed("INT32", "[2, 2]", "int_contents: [1, 2, 3]"), "input tensor 'x': shape implies 4 elements but data has 3"},
		{typed("BYTES", "1", ""), "input tensor 'x': shape implies 1 elements but data has 0"},
		{typed("FP32", "1", "fp64_contents: 1"), "input tensor 'x' of FP32 must be given in fp32_contents, not in fp64_contents"},
		{typed("BOOL", "1", "bool_contents: true int_contents: 1"), "must be given in bool_contents, not in int_contents"},
		{typed("FP16", "1", "fp32_contents: 1"), "input tensor 'x' of FP16 must be given in `raw_input_contents`"},
		{typed("BF16", "0", ""), "input tensor 'x' of BF16 must be given in `raw_input_contents`"},
		{typed("INT8", "2", "int_contents: [1, 128]"), "element 1 of input tensor 'x' is 128, which is out of range for INT8"},
		{typed("INT8", "1", "int_contents: -129"), "is -129, which is out of range for INT8"},
		{typed("INT16", "1", "int_contents: 32768"), "is 32768, which is out of range for INT16"},
		{typed("INT16", "1", "int_contents: -32769"), "is -32769, which is out of range for INT16"},
		{typed("UINT8", "1", "uint_contents: 256"), "is 256, which is out of range for UINT8"},
		{typed("UINT16", "1", "uint_contents: 65536"), "is 65536, which is out of range for UINT16"},
	} {
		r, err := kserve.FromProto(parsed[inferencepb.ModelInferRequest](t, c.request))
		if err == nil {
			_, err = r.Tensors()
		}
		if err == nil {
			t.Errorf("%s is taken, want %q", c.request, c.want)
			continue
		}
		e, ok := err.(*engine.Error)
		if !ok || e.Kind != engine.InvalidArgument || !strings.HasPrefix(e.Message, "Failed to parse request: ") || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %q", c.request, err, c.want)
		}
	}
}

// Messages of errors travel in trailers, which clients limit.
func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat("名", 10_000)
	m := parsed[inferencepb.ModelInferRequest](t, `inputs { datatype: "INT8" shape: 1 }`)
	m.Inputs[0].Name = long
	_, err := kserve.FromProto(m)
	for _, err := range []error{err, kserve.NotFound(long)} {
		e, ok := err.(*engine.Error)
		if !ok || len(e.Message) > 1000 || !utf8.ValidString(e.Message) || !strings.Contains(e.Message, "名…") {
			t.Errorf("%.2000s", err)
		}
	}
}

// Many inputs are looked up and not compared one with another.
func TestManyInputsWithOneName(t *testing.T) {
	m := &inferencepb.ModelInferRequest{}
	for i := range 100 {
		m.Inputs = append(m.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{
			Name: string(rune('0' + i)), Datatype: "INT8", Shape: []int64{0}, Contents: &inferencepb.InferTensorContents{},
		})
	}
	if _, err := kserve.FromProto(m); err != nil {
		t.Error(err)
	}
	m.Inputs[99].Name = "0"
	if _, err := kserve.FromProto(m); err == nil || !strings.Contains(err.Error(), "Duplicate input name: '0'") {
		t.Errorf("a name that comes twice: %v", err)
	}
}

// What is wrong with data does not keep a model of text from saying it in words of
// its own.
func TestFaultsAreToldLate(t *testing.T) {
	r, err := kserve.FromProto(parsed[inferencepb.ModelInferRequest](t, `
		inputs { name: "good" datatype: "INT8" shape: 1 }
		inputs { name: "text_input" datatype: "BYTES" shape: 1 }
		inputs { name: "bad" datatype: "?" shape: -1 }
		raw_input_contents: "a" raw_input_contents: "ab" raw_input_contents: ""`))
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Inputs[1].Data) != "ab" {
		t.Errorf("data is %q, want what the client has sent", r.Inputs[1].Data)
	}
	if _, err := r.Tensors(); err == nil || !strings.Contains(err.Error(), "'text_input'") {
		t.Errorf("%v, want what is wrong with the first", err)
	}
}

func TestRequestsKeepWhatIsSaid(t *testing.T) {
	const five = ` parameters { key: "b" value { bool_param: true } } parameters { key: "i" value { int64_param: -3 } }
		parameters { key: "s" value { string_param: "en" } } parameters { key: "d" value { double_param: 0.5 } }
		parameters { key: "u" value { uint64_param: 18446744073709551615 } } `
	want := engine.Parameters{"b": true, "i": int64(-3), "s": "en", "d": 0.5, "u": uint64(math.MaxUint64)}

	r, err := kserve.FromProto(parsed[inferencepb.ModelInferRequest](t, `model_name: "m" model_version: "7" id: "job"`+five+`
		inputs { name: "x" datatype: "INT8" shape: [] contents { int_contents: 5 }`+five+`}
		outputs { name: "z"`+five+`} outputs { name: "y" }`))
	if err != nil {
		t.Fatal(err)
	}
	in, err := r.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&engine.TensorRequest{
		ID: "job", Model: "m", Version: "7", Parameters: want, Outputs: []string{"z", "y"},
		Inputs: []engine.Tensor{{Name: "x", Datatype: "INT8", Parameters: want, Data: []byte{5}}},
	}, in); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]kserve.Wanted{{Name: "z", Parameters: want}, {Name: "y"}}, r.Outputs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	answer := &engine.TensorResponse{ID: "the worker's", Model: "M", Version: "2", Parameters: want, Outputs: []engine.Tensor{
		{Name: "y", Datatype: "INT8", Shape: []int64{1}, Data: []byte{1}},
		{Name: "x", Datatype: "INT8", Shape: []int64{1}, Data: []byte{2}},
		{Name: "z", Datatype: "INT8", Shape: []int64{1}, Data: []byte{3}, Parameters: want},
	}}
	out, err := kserve.ToProto(r.FromTensors(answer), r.Raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parsed[inferencepb.ModelInferResponse](t, `model_name: "M" model_version: "1" id: "job"`+five+`
		outputs { name: "z" datatype: "INT8" shape: 1 contents { int_contents: 3 }`+five+`}
		outputs { name: "y" datatype: "INT8" shape: 1 contents { int_contents: 1 } }`), out, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(answer.Outputs) != 3 || answer.Outputs[1].Name != "x" {
		t.Errorf("the worker's own answer was changed: %v", answer.Outputs)
	}
	if out := r.FromTensors(&engine.TensorResponse{}); out.Model != "m" {
		t.Errorf("an answer without a model is of %q", out.Model)
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct{ has, wanted, want string }{
		{"a b c", "", "a b c"},
		{"a b c", "c a", "c a"},
		{"a b c", "b b b", "b"},
		{"a b c", "b b a", "b a"},
		{"a b c", "d a", "a"},
		{"a b c", "d", ""},
		{"a a", "a", "a"},
		{"", "a", ""},
	} {
		r := &kserve.Response{}
		for _, name := range strings.Fields(c.has) {
			r.Outputs = append(r.Outputs, engine.Tensor{Name: name})
		}
		var wanted []kserve.Wanted
		for _, name := range strings.Fields(c.wanted) {
			wanted = append(wanted, kserve.Wanted{Name: name})
		}
		r.Select(wanted)
		var got []string
		for _, o := range r.Outputs {
			got = append(got, o.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("of %q, %q selects %q, want %q", c.has, c.wanted, got, c.want)
		}
	}
}

// A client may want all of very many outputs, in an order of its own.
func TestSelectMany(t *testing.T) {
	const n = 200_000
	r := &kserve.Response{Outputs: []engine.Tensor{{Name: "twice", Datatype: "first"}, {Name: "twice", Datatype: "second"}}}
	wanted := []kserve.Wanted{{Name: "twice"}, {Name: "nowhere"}, {Name: "twice"}}
	for i := range n {
		r.Outputs = append(r.Outputs, engine.Tensor{Name: strconv.Itoa(i)})
		wanted = append(wanted, kserve.Wanted{Name: strconv.Itoa(n - 1 - i)})
	}
	begun := time.Now()
	r.Select(wanted)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(r.Outputs) != n+1 || r.Outputs[0].Datatype != "first" || r.Outputs[1].Name != strconv.Itoa(n-1) || r.Outputs[n].Name != "0" {
		t.Errorf("%d outputs, from %v to %v", len(r.Outputs), r.Outputs[:2], r.Outputs[len(r.Outputs)-1])
	}
}

// The two forms never mix, and bytes are there for each output.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		datatypes string
		raw, want bool
	}{
		{"INT8 INT8", false, false},
		{"INT8 INT8", true, true},
		{"INT8 FP16", false, true},
		{"BF16 INT8", false, true},
	} {
		r := &kserve.Response{}
		for _, d := range strings.Fields(c.datatypes) {
			r.Outputs = append(r.Outputs, engine.Tensor{Datatype: d, Shape: []int64{0}})
		}
		m, err := kserve.ToProto(r, c.raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(m.RawOutputContents); got != 0 && !c.want || got != len(r.Outputs) && c.want {
			t.Errorf("%s, raw %v: %d outputs have bytes", c.datatypes, c.raw, got)
		}
		for _, o := range m.Outputs {
			if (o.Contents == nil) != c.want {
				t.Errorf("%s, raw %v: an output has %v", c.datatypes, c.raw, o.Contents)
			}
		}
	}
}

func TestResponsesThatNoMessageCanSay(t *testing.T) {
	output := func(datatype, data string) kserve.Response {
		return kserve.Response{Outputs: []engine.Tensor{{Name: "y", Datatype: datatype, Data: []byte(data)}}}
	}
	for _, c := range []struct {
		response kserve.Response
		raw      bool
		want     string
	}{
		{kserve.Response{ID: "\xff"}, true, "not valid UTF-8"},
		{kserve.Response{Model: "\xff"}, true, "not valid UTF-8"},
		{kserve.Response{Parameters: engine.Parameters{"k": 1}}, true, "parameter 'k' is a int, want bool, int64"},
		{kserve.Response{Parameters: engine.Parameters{"k": "\xff"}}, true, "parameter 'k' is not valid UTF-8"},
		{kserve.Response{Parameters: engine.Parameters{"\xff": true}}, true, `name of parameter "\xff" is not valid UTF-8`},
		{kserve.Response{Outputs: []engine.Tensor{{Name: "\xff"}}}, true, "must be valid UTF-8"},
		{kserve.Response{Outputs: []engine.Tensor{{Datatype: "\xff"}}}, true, "must be valid UTF-8"},
		{kserve.Response{Outputs: []engine.Tensor{{Name: "y", Parameters: engine.Parameters{"k": nil}}}}, true, "parameter 'k' is a <nil>"},
		{output("?", ""), false, "output tensor 'y': no contents hold the datatype '?'"},
		{output("INT32", "abc"), false, "output tensor 'y': 3 bytes of data are no elements of INT32"},
		{output("INT16", "a"), false, "are no elements of INT16"},
		{output("BYTES", "\x02\x00\x00\x00a"), false, "output tensor 'y': 5 bytes of data are no elements of BYTES"},
		{output("BYTES", "\x01\x00\x00\x00abc"), false, "are no elements of BYTES"},
	} {
		_, err := kserve.ToProto(&c.response, c.raw)
		if err == nil || engine.KindOf(err) != engine.Internal || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.response, err, c.want)
		}
	}
}

// Any byte is true for clients, and inside there are two.
func TestBooleansAreZeroAndOne(t *testing.T) {
	m := parsed[inferencepb.ModelInferRequest](t, `inputs { name: "x" datatype: "BOOL" shape: 4 } raw_input_contents: "\x00\x02\xff\x01"`)
	r, err := kserve.FromProto(m)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Inputs[0].Data) != "\x00\x01\x01\x01" {
		t.Errorf("data is %q", r.Inputs[0].Data)
	}
	if string(m.RawInputContents[0]) != "\x00\x02\xff\x01" {
		t.Errorf("the message has become %q", m.RawInputContents[0])
	}
	odd := &kserve.Response{Outputs: []engine.Tensor{{Datatype: "BOOL", Shape: []int64{3}, Data: []byte{0, 8, 1}}}}
	out, err := kserve.ToProto(odd, true)
	if err != nil || string(out.RawOutputContents[0]) != "\x00\x01\x01" {
		t.Errorf("bytes are %q, %v", out.RawOutputContents, err)
	}
	out, err = kserve.ToProto(odd, false)
	if err != nil || !out.Outputs[0].Contents.BoolContents[1] {
		t.Errorf("booleans are %v, %v", out, err)
	}
}

// Bytes lie where the message has them, on the way in and on the way out, and so do
// numbers of four and eight bytes.
func TestNothingIsCopied(t *testing.T) {
	same := func(what string, a, b []byte) {
		t.Helper()
		if unsafe.SliceData(a) != unsafe.SliceData(b) || len(a) != len(b) {
			t.Errorf("%s are copied", what)
		}
	}
	data := make([]byte, 64)
	m := &inferencepb.ModelInferRequest{
		Inputs:           []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP64", Shape: []int64{8}}},
		RawInputContents: [][]byte{data},
	}
	r, err := kserve.FromProto(m)
	if err != nil {
		t.Fatal(err)
	}
	same("bytes on the way in", r.Inputs[0].Data, data)
	out, err := kserve.ToProto(&kserve.Response{Outputs: r.Inputs}, true)
	if err != nil {
		t.Fatal(err)
	}
	same("bytes on the way out", out.RawOutputContents[0], data)

	floats := make([]float32, 16)
	m.Inputs[0].Datatype, m.Inputs[0].Shape, m.RawInputContents = "FP32", []int64{16}, nil
	m.Inputs[0].Contents = &inferencepb.InferTensorContents{Fp32Contents: floats}
	if r, err = kserve.FromProto(m); err != nil {
		t.Fatal(err)
	}
	same("numbers on the way in", r.Inputs[0].Data, unsafe.Slice((*byte)(unsafe.Pointer(&floats[0])), 64))
	if out, err = kserve.ToProto(&kserve.Response{Outputs: r.Inputs}, false); err != nil {
		t.Fatal(err)
	}
	if back := out.Outputs[0].Contents.Fp32Contents; &back[0] != &floats[0] || len(back) != 16 {
		t.Error("numbers on the way out are copied")
	}
}
