package kserve_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// le returns numbers as tensors hold them.
func le(numbers any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, numbers); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// elementsOf returns elements of BYTES as tensors hold them.
func elementsOf(elements ...string) []byte {
	var data []byte
	for _, e := range elements {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(e))), e...)
	}
	return data
}

func TestJSONData(t *testing.T) {
	for _, c := range []struct {
		datatype, shape, data string
		want                  []byte
	}{
		{"BOOL", "[3]", "[true,false , true]", []byte{1, 0, 1}},
		{"UINT8", "[3]", "[0,7,255]", []byte{0, 7, 255}},
		{"UINT16", "[2]", "[0,65535]", le([]uint16{0, 65535})},
		{"UINT32", "[2]", "[0,4294967295]", le([]uint32{0, math.MaxUint32})},
		{"UINT64", "[2]", "[9007199254740993,18446744073709551615]", le([]uint64{1<<53 + 1, math.MaxUint64})},
		{"INT8", "[3]", "[-128,-0,127]", le([]int8{-128, 0, 127})},
		{"INT16", "[2]", "[-32768,32767]", le([]int16{-32768, 32767})},
		{"INT32", "[2]", "[-2147483648,2147483647]", le([]int32{math.MinInt32, math.MaxInt32})},
		{"INT64", "[3]", "[-9223372036854775808,9223372036854775807,-9007199254740993]", le([]int64{math.MinInt64, math.MaxInt64, -1<<53 - 1})},
		{"FP32", "[6]", "[0,-0.0,1,1e38,0.1,3.4028235e38]", le([]float32{0, float32(math.Copysign(0, -1)), 1, 1e38, .1, math.MaxFloat32})},
		{"FP64", "[4]", "[0.1,1e308,123456789012345678,-2.5e-300]", le([]float64{.1, 1e308, 123456789012345678, -2.5e-300})},
		{"BYTES", "[5]", `["a,]\"b","","\u00e9\n","\u0000","\\"]`, elementsOf("a,]\"b", "", "é\n", "\x00", `\`)},
		{"BYTES", "[3]", `["\ud800","\ud83d\ude00",` + "\"a\xffb\"]", elementsOf("\uFFFD", "😀", "a\uFFFDb")},
		{"BYTES", "[1]", "[\"two\nlines\"]", elementsOf("two\nlines")},
		// flat, and nested as the shape says
		{"INT8", "[2,2]", "[1,2,3,4]", []byte{1, 2, 3, 4}},
		{"INT8", "[2,2]", "\n[ [1 , 2] ,\t[3,4] ]", []byte{1, 2, 3, 4}},
		{"INT8", "[2,1,2]", "[[[1,2]],[[3,4]]]", []byte{1, 2, 3, 4}},
		{"INT8", "[]", "[5]", []byte{5}},
		{"INT8", "[]", "5", []byte{5}},
		{"INT8", "[0]", "[]", nil},
		{"INT8", "[2,0]", "[[],[]]", nil},
		{"INT8", "[2,0]", "[]", nil},
		{"INT8", "[0,2]", "[ ]", nil},
		{"BYTES", "[1,2]", `[["x","y"]]`, elementsOf("x", "y")},
	} {
		body := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":%s,"data":%s}]}`, c.datatype, c.shape, c.data)
		request, _, err := kserve.FromJSON([]byte(body), -1)
		if err == nil {
			_, err = request.Tensors()
		}
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if got := request.Inputs[0].Data; !bytes.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", body, got, c.want)
		}
	}
}

// Numbers that lie next to the middle between two of FP32 are rounded once, not first
// to FP64 and then again.
func TestJSONRounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	var list []string
	for range n {
		bits := 0x3f000000 + random.Uint32N(1<<24) // from 0.5 to 2
		middle := (float64(math.Float32frombits(bits)) + float64(math.Float32frombits(bits+1))) / 2
		list = append(list, strconv.FormatFloat(middle, 'f', 12+random.IntN(4), 64))
	}
	body := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"FP32","shape":[%d],"data":[%s]}]}`, n, strings.Join(list, ","))
	r, _, err := kserve.FromJSON([]byte(body), -1)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range list {
		want, _ := strconv.ParseFloat(text, 32)
		if got := math.Float32frombits(binary.LittleEndian.Uint32(r.Inputs[0].Data[4*i:])); got != float32(want) {
			t.Fatalf("%s became %v, want %v", text, got, float32(want))
		}
	}
}

func TestJSONRefusals(t *testing.T) {
	input := func(rest string) string { return `{"inputs":[{"name":"x",` + rest + `}]}` }
	for _, c := range []struct{ body, want string }{
		{`[]`, "expected an object, got an array"},
		{``, "the JSON text ends too early"},
		{`{"inputs":[]} x`, "invalid character"},
		{`{"inputs":[]}{}`, "more than one JSON value in the body"},
		{`{"inputs":{}}`, "inputs: expected an array of tensors, got an object"},
		{`{"id":5}`, "id: expected a string, got a number"},
		{`{"parameters":{"k":null}}`, "Parameter 'k' has no value"},
		{`{"parameters":{"k":[1]}}`, "parameters.k: expected a string, a number or a boolean, got an array"},
		{`{"parameters":{"k":1e999}}`, "number 1e999 is out of range"},
		{`{"parameters":{"binary_data_output":1}}`, "parameter 'binary_data_output' must be true or false"},
		{`{"outputs":[{"name":"y","parameters":{"binary_data":"yes"}}]}`, "output 'y': parameter 'binary_data' must be true or false"},
		{`{"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]}`, "shared memory is not supported"},
		{input(`"datatype":"INT8","shape":[1]`), "unable to find data for input tensor 'x'"},
		{input(`"datatype":"INT8","shape":[1],"data":null`), "unable to find data for input tensor 'x'"},
		{input(`"datatype":"INT8","data":[1]`), "input tensor 'x' has no shape"},
		{input(`"datatype":"INT9","shape":[1],"data":[1]`), "Invalid data type 'INT9'"},
		{input(`"shape":[1],"data":[1]`), "Invalid data type ''"},
		{input(`"datatype":"INT8","shape":[1.5],"data":[1]`), "inputs[0].shape[0]: expected an integer, got 1.5"},
		{input(`"datatype":"INT8","shape":[-1],"data":[1]`), "Shape contains negative dimension: -1"},
		{input(`"datatype":"INT8","shape":[4294967296,4294967296],"data":[1]`), "Overflow occurred"},
		{input(`"datatype":"INT8","shape":[2],"data":[1]`), "shape implies 2 elements but data has 1"},
		{input(`"datatype":"INT8","shape":[1],"data":[1,2,3]`), "shape implies 1 elements but data has 3"},
		{input(`"datatype":"INT8","shape":[1],"data":5`), "data must be an array"},
		{input(`"datatype":"INT8","shape":[1],"data":{"a":[1]}`), "data must be an array"},
		{input(`"datatype":"INT8","shape":[2,2],"data":[[1,2,3],[4]]`), "an array in data has 3 items where its shape has 2"},
		{input(`"datatype":"INT8","shape":[2,2],"data":[[1,2]]`), "an array in data has 1 items where its shape has 2"},
		{input(`"datatype":"INT8","shape":[2,2],"data":[[1,2],3,4]`), "nested less deep than its shape"},
		{input(`"datatype":"INT8","shape":[2],"data":[[1,2]]`), "element 0 of data must be a whole number from -128 to 127, got [1"},
		{input(`"datatype":"INT8","shape":[],"data":[[1]]`), "nested deeper than its shape"},
		{input(`"datatype":"INT8","shape":[2,2],"data":[1,[2,3],4]`), "element 1 of data must be a whole number"},
		{input(`"datatype":"INT8","shape":[1],"data":[128]`), "element 0 of data must be a whole number from -128 to 127, got 128"},
		{input(`"datatype":"INT8","shape":[1],"data":[-129]`), "got -129"},
		{input(`"datatype":"UINT8","shape":[1],"data":[-1]`), "a whole number from 0 to 255, got -1"},
		{input(`"datatype":"UINT64","shape":[1],"data":[18446744073709551616]`), "got 18446744073709551616"},
		{input(`"datatype":"INT64","shape":[1],"data":[9223372036854775808]`), "got 9223372036854775808"},
		{input(`"datatype":"INT64","shape":[1],"data":[1.0]`), "got 1.0"},
		{input(`"datatype":"INT64","shape":[1],"data":["1"]`), `got "1"`},
		{input(`"datatype":"BOOL","shape":[1],"data":[1]`), "must be true or false, got 1"},
		{input(`"datatype":"FP32","shape":[1],"data":[1e39]`), "must be a number that FP32 can hold, got 1e39"},
		{input(`"datatype":"FP64","shape":[1],"data":[1e309]`), "must be a number that FP64 can hold, got 1e309"},
		{input(`"datatype":"FP32","shape":[1],"data":[true]`), "must be a number, got true"},
		{input(`"datatype":"FP32","shape":[1],"data":[NaN]`), "invalid character"},
		{input(`"datatype":"BYTES","shape":[1],"data":[5]`), "must be a string, got 5"},
		{input(`"datatype":"FP16","shape":[1],"data":[1.5]`), "JSON has no numbers of FP16, send them as bytes"},
		{input(`"datatype":"BF16","shape":[1],"data":[1.5]`), "JSON has no numbers of BF16"},
		{input(`"datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}`), "binary_data_size is 1, and 0 bytes are left"},
		{input(`"datatype":"INT8","shape":[1],"parameters":{"shared_memory_region":"r"},"data":[1]`), "shared memory is not supported"},
		{`{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]},{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}`, "Duplicate input name: 'x'"},
	} {
		request, _, err := kserve.FromJSON([]byte(c.body), -1)
		if err == nil {
			_, err = request.Tensors()
		}
		if err == nil || engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), "Failed to parse request: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.body, err, c.want)
		}
	}
}

// Members come in any order, and what nobody knows is passed over.
func TestJSONRequest(t *testing.T) {
	const body = `{"outputs":[{"name":"y","parameters":{"binary_data":true,"k":1}},{"parameters":null,"name":"z"}],"model_name":"m",
		"inputs":[{"data":[[1,2]],"extra":{"deep":[1]},"shape":[1,2],"parameters":{"a":true,"b":-3,"c":18446744073709551615,"d":1.0,"e":"\u00e9"},"datatype":"INT16","name":"x"}],
		"parameters":{"binary_data_output":false,"n":7},"id":"r-1"}`
	got, _, err := kserve.FromJSON([]byte(body), -1)
	if err != nil {
		t.Fatal(err)
	}
	want := &kserve.Request{
		ID: "r-1",
		Inputs: []engine.Tensor{{
			Name: "x", Datatype: "INT16", Shape: []int64{1, 2}, Data: []byte{1, 0, 2, 0},
			Parameters: engine.Parameters{"a": true, "b": int64(-3), "c": uint64(math.MaxUint64), "d": 1.0, "e": "é"},
		}},
		Outputs:    []kserve.Wanted{{Name: "y", Parameters: engine.Parameters{"k": int64(1)}}, {Name: "z"}},
		Parameters: engine.Parameters{"n": int64(7)},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kserve.Request{})); diff != "" {
		t.Error(diff)
	}
}

// What is no UTF-8 goes on as U+FFFD, be it a name or a value: workers in other
// processes cannot be told it as it came.
func TestJSONNamesAreTexts(t *testing.T) {
	got, _, err := kserve.FromJSON([]byte("{\"inputs\":[{\"name\":\"x\xff\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[1],\"parameters\":{\"a\xff\":1}}],\"parameters\":{\"b\xff\":\"c\xff\"}}"), -1)
	if err != nil {
		t.Fatal(err)
	}
	if in := got.Inputs[0]; in.Name != "x\uFFFD" || in.Parameters["a\uFFFD"] != int64(1) || got.Parameters["b\uFFFD"] != "c\uFFFD" {
		t.Errorf("%q %q %q", in.Name, in.Parameters, got.Parameters)
	}
}

// Of a member that is repeated the last counts, with what was wrong with it alone.
func TestJSONRepeats(t *testing.T) {
	const bad, good = `"inputs":[{"name":"x","datatype":"INT8","shape":[9],"data":[1]}]`, `"inputs":[{"name":"y","datatype":"INT8","shape":[1],"data":[2]}]`
	r, _, err := kserve.FromJSON([]byte("{"+bad+","+good+"}"), -1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Tensors(); err != nil || len(got.Inputs) != 1 || got.Inputs[0].Name != "y" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestJSONResponse(t *testing.T) {
	response := &kserve.Response{
		ID: "r", Model: "acme/m", Version: "1", Parameters: engine.Parameters{"b": 2.0, "a": "x\n", "c": uint64(math.MaxUint64), "d": int64(math.MinInt64), "e": false},
		Outputs: []engine.Tensor{
			{Name: "i", Datatype: "INT64", Shape: []int64{2}, Data: le([]int64{math.MinInt64, 1<<53 + 1})},
			{Name: "u", Datatype: "UINT64", Shape: []int64{1}, Data: le([]uint64{math.MaxUint64})},
			{Name: "b", Datatype: "BOOL", Shape: []int64{1, 2}, Data: []byte{1, 0}, Parameters: engine.Parameters{"k": true}},
			{Name: "f", Datatype: "FP32", Shape: []int64{3}, Data: le([]float32{.1, 1e6, float32(math.Copysign(0, -1))})},
			{Name: "t", Datatype: "BYTES", Shape: []int64{2}, Data: elementsOf("", "\"é\x00")},
			{Name: "none", Datatype: "FP64", Shape: []int64{0}},
		},
	}
	text, tail, err := kserve.ToJSON([]byte("head"), response, kserve.Binary{})
	const want = `head{"model_name":"acme/m","model_version":"1","id":"r","parameters":{"a":"x\n","b":2.0,"c":18446744073709551615,"d":-9223372036854775808,"e":false},"outputs":[` +
		`{"name":"i","datatype":"INT64","shape":[2],"data":[-9223372036854775808,9007199254740993]},` +
		`{"name":"u","datatype":"UINT64","shape":[1],"data":[18446744073709551615]},` +
		`{"name":"b","datatype":"BOOL","shape":[1,2],"parameters":{"k":true},"data":[true,false]},` +
		`{"name":"f","datatype":"FP32","shape":[3],"data":[0.1,1e+06,-0.0]},` +
		`{"name":"t","datatype":"BYTES","shape":[2],"data":["","\"é\u0000"]},` +
		`{"name":"none","datatype":"FP64","shape":[0],"data":[]}]}`
	if err != nil || len(tail) > 0 || string(text) != want {
		t.Errorf("%s %v %v", text, tail, err)
	}
}

func TestJSONResponseRefusals(t *testing.T) {
	for _, c := range []struct {
		tensor engine.Tensor
		want   string
	}{
		{engine.Tensor{Datatype: "FP16", Data: []byte{0, 1}}, "JSON has no numbers of FP16"},
		{engine.Tensor{Datatype: "FP32", Data: le([]float32{1, float32(math.NaN())})}, "element 1 is NaN"},
		{engine.Tensor{Datatype: "FP64", Data: le([]float64{math.Inf(-1)})}, "element 0 is -Inf"},
		{engine.Tensor{Datatype: "BYTES", Data: elementsOf("a", "\xff")}, "element 1 is no UTF-8"},
	} {
		c.tensor.Name = "y"
		_, _, err := kserve.ToJSON(nil, &kserve.Response{Outputs: []engine.Tensor{c.tensor}}, kserve.Binary{})
		if engine.KindOf(err) != engine.InvalidArgument || !strings.Contains(err.Error(), "output tensor 'y': "+c.want) || !strings.Contains(err.Error(), "binary_data") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	bad := &kserve.Response{Outputs: []engine.Tensor{{Name: "y", Datatype: "BYTES", Data: []byte{9, 0, 0, 0}}}}
	if _, _, err := kserve.ToJSON(nil, bad, kserve.Binary{}); engine.KindOf(err) != engine.Internal {
		t.Errorf("%v", err)
	}
	bad = &kserve.Response{Parameters: engine.Parameters{"p": math.NaN()}}
	if _, _, err := kserve.ToJSON(nil, bad, kserve.Binary{}); engine.KindOf(err) != engine.Internal {
		t.Errorf("%v", err)
	}
}

// jsonBody writes a request as a client of REST does, with the data of inputs that are
// marked behind the JSON.
func jsonBody(r *kserve.Request, nest bool, asBytes []bool) (body []byte, header int) {
	var all []map[string]any
	var tail []byte
	for i, t := range r.Inputs {
		in := map[string]any{"name": t.Name, "datatype": t.Datatype, "shape": t.Shape}
		parameters := map[string]any{}
		for k, v := range t.Parameters {
			parameters[k] = v
		}
		if asBytes[i] {
			parameters["binary_data_size"] = len(t.Data)
			tail = append(tail, t.Data...)
		} else {
			list := values(t.Datatype, t.Data)
			if nest {
				in["data"] = nested(list, t.Shape)
			} else {
				in["data"] = list
			}
		}
		if len(parameters) > 0 {
			in["parameters"] = parameters
		}
		all = append(all, in)
	}
	text, err := json.Marshal(map[string]any{"id": r.ID, "inputs": all, "parameters": r.Parameters})
	if err != nil {
		panic(err)
	}
	return append(text, tail...), len(text)
}

// values returns the elements of a tensor as encoding/json writes them.
func values(datatype string, data []byte) []any {
	list := []any{}
	for len(data) > 0 {
		var v any
		size := map[string]int{"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8}[datatype]
		switch datatype {
		case "BOOL":
			v = data[0] != 0
		case "UINT8":
			v = data[0]
		case "INT8":
			v = int8(data[0])
		case "UINT16":
			v = binary.LittleEndian.Uint16(data)
		case "INT16":
			v = int16(binary.LittleEndian.Uint16(data))
		case "UINT32":
			v = binary.LittleEndian.Uint32(data)
		case "INT32":
			v = int32(binary.LittleEndian.Uint32(data))
		case "FP32":
			v = math.Float32frombits(binary.LittleEndian.Uint32(data))
		case "UINT64":
			v = binary.LittleEndian.Uint64(data)
		case "INT64":
			v = int64(binary.LittleEndian.Uint64(data))
		case "FP64":
			v = math.Float64frombits(binary.LittleEndian.Uint64(data))
		case "BYTES":
			size = 4 + int(binary.LittleEndian.Uint32(data))
			v = string(data[4:size])
		}
		list, data = append(list, v), data[size:]
	}
	return list
}

// nested cuts a flat list into arrays of arrays.
func nested(list []any, shape []int64) any {
	if len(shape) <= 1 {
		return list
	}
	out := []any{}
	for i := range shape[0] {
		n := int64(len(list)) / max(1, shape[0])
		out = append(out, nested(list[i*n:(i+1)*n], shape[1:]))
	}
	return out
}

func drawTensor(t *rapid.T, name string) engine.Tensor {
	out := engine.Tensor{Name: name, Datatype: rapid.SampledFrom([]string{"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES"}).Draw(t, "datatype")}
	out.Shape = rapid.SliceOfN(rapid.Int64Range(0, 3), 1, 3).Draw(t, "shape")
	n := int64(1)
	for _, d := range out.Shape {
		n *= d
	}
	for range n {
		switch out.Datatype {
		case "BOOL":
			out.Data = append(out.Data, byte(rapid.IntRange(0, 1).Draw(t, "bool")))
		case "FP32":
			out.Data = append(out.Data, le(rapid.Float32().Draw(t, "fp32"))...)
		case "FP64":
			out.Data = append(out.Data, le(rapid.Float64().Draw(t, "fp64"))...)
		case "BYTES":
			out.Data = append(out.Data, elementsOf(rapid.String().Draw(t, "text"))...)
		default:
			size, _ := engine.ElementSize(out.Datatype)
			word := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 127, 128, 255, 32767, 32768, math.MaxInt64, math.MaxUint64})).Draw(t, "word")
			out.Data = append(out.Data, binary.LittleEndian.AppendUint64(nil, word)[:size]...)
		}
	}
	out.Parameters = drawParameters(t)
	return out
}

func drawParameters(t *rapid.T) engine.Parameters {
	names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{1,4}"), 0, 3, rapid.ID).Draw(t, "parameters")
	var out engine.Parameters
	for _, name := range names {
		if out == nil {
			out = engine.Parameters{}
		}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			out[name] = rapid.Bool().Draw(t, "bool")
		case 1:
			out[name] = rapid.Int64().Draw(t, "int64")
		case 2:
			out[name] = rapid.StringN(0, 8, -1).Draw(t, "text")
		}
	}
	return out
}

// A request is the same in every form in which clients write it: numbers in JSON, flat
// or nested, bytes behind the JSON, and protobuf.
func TestWiresAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &kserve.Request{ID: rapid.StringN(0, 8, -1).Draw(t, "id"), Parameters: drawParameters(t)}
		for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
			want.Inputs = append(want.Inputs, drawTensor(t, fmt.Sprint("x", i)))
		}
		asBytes := rapid.SliceOfN(rapid.Bool(), len(want.Inputs), len(want.Inputs)).Draw(t, "as bytes")
		body, header := jsonBody(want, rapid.Bool().Draw(t, "nest"), asBytes)
		got, _, err := kserve.FromJSON(body, header)
		if err != nil {
			t.Fatalf("%s: %v", body[:header], err)
		}
		if _, err := got.Tensors(); err != nil {
			t.Fatalf("%s: %v", body[:header], err)
		}
		message := &inferencepb.ModelInferRequest{Id: want.ID, Parameters: protoParameters(want.Parameters)}
		for _, x := range want.Inputs {
			message.Inputs = append(message.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{
				Name: x.Name, Datatype: x.Datatype, Shape: x.Shape, Parameters: protoParameters(x.Parameters),
			})
			message.RawInputContents = append(message.RawInputContents, x.Data)
		}
		same, err := kserve.FromProto(message)
		if err != nil {
			t.Fatal(err)
		}
		if same.Raw = slices.Contains(asBytes, true); got.Raw != same.Raw {
			t.Fatal("raw")
		}
		for i := range got.Inputs { // no data are none, in either form
			if len(got.Inputs[i].Data) == 0 {
				got.Inputs[i].Data, same.Inputs[i].Data = nil, nil
			}
		}
		if diff := cmp.Diff(same, got, cmp.AllowUnexported(kserve.Request{})); diff != "" {
			t.Fatalf("%s: %s", body[:header], diff)
		}
	})
}

func protoParameters(p engine.Parameters) map[string]*inferencepb.InferParameter {
	out := map[string]*inferencepb.InferParameter{}
	for k, v := range p {
		switch v := v.(type) {
		case bool:
			out[k] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_BoolParam{BoolParam: v}}
		case int64:
			out[k] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_Int64Param{Int64Param: v}}
		case string:
			out[k] = &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: v}}
		}
	}
	return out
}

// What goes out as JSON comes back in as it was, be it as numbers or as bytes.
func TestResponsesRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		response := &kserve.Response{ID: "r", Model: "m", Version: "1", Outputs: []engine.Tensor{drawTensor(t, "a"), drawTensor(t, "b")}}
		asked := fmt.Sprintf(`{"parameters":{"binary_data_output":%t},"outputs":[{"name":"b","parameters":{"binary_data":%t}}]}`,
			rapid.Bool().Draw(t, "all"), rapid.Bool().Draw(t, "b"))
		_, form, err := kserve.FromJSON([]byte(asked), -1)
		if err != nil {
			t.Fatal(err)
		}
		text, tail, err := kserve.ToJSON(nil, response, form)
		if err != nil {
			t.Fatal(err)
		}
		header := len(text)
		back := bytes.Replace(text, []byte(`"outputs":`), []byte(`"inputs":`), 1)
		header += len(back) - len(text)
		for _, data := range tail {
			back = append(back, data...)
		}
		got, _, err := kserve.FromJSON(back, header)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for i := range got.Inputs {
			if g, w := got.Inputs[i], response.Outputs[i]; !bytes.Equal(g.Data, w.Data) || !slices.Equal(g.Shape, w.Shape) || g.Name != w.Name || !cmp.Equal(g.Parameters, w.Parameters) {
				t.Fatalf("%s: %v, want %v", text, g, w)
			}
		}
	})
}

// FuzzJSONData holds the reader of arrays against encoding/json.
func FuzzJSONData(f *testing.F) {
	for _, seed := range []string{"[1,2,3,4]", "[[1,2],[3,4]]", `["a","\u0000","\ud800",""]`, "[1e5,0.1,-0.0,123456789.125]", "[true,false,true,true]", "[[[1]]]", "[", "[1,]", `["\\","\"]`, "[16777217,0.000001,8388609.5,1]"} {
		for kind := range 12 {
			f.Add(uint8(kind), uint8(2), uint8(2), seed)
		}
	}
	names := []string{"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES"}
	f.Fuzz(func(t *testing.T, kind, rows, columns uint8, data string) {
		datatype := names[int(kind)%len(names)]
		body := fmt.Sprintf(`{"inputs":[{"name":"x","datatype":%q,"shape":[%d,%d],"data":%s}]}`, datatype, rows, columns, data)
		request, _, err := kserve.FromJSON([]byte(body), -1)
		if err == nil {
			_, err = request.Tensors()
		}
		want, ok := oracle(datatype, int(rows), int(columns), []byte(data))
		switch {
		case !json.Valid([]byte(data)): // and closes what the test has opened, perhaps
		case ok != (err == nil):
			t.Fatalf("%s: %v, and encoding/json says %t", body, err, ok)
		case ok && !bytes.Equal(want, request.Inputs[0].Data):
			t.Fatalf("%s: %v, want %v", body, request.Inputs[0].Data, want)
		}
		if err == nil && cap(request.Inputs[0].Data) > 9*len(body)+16 {
			t.Fatalf("%s: %d bytes are kept for %d", body, cap(request.Inputs[0].Data), len(body))
		}
	})
}

// oracle reads an array the slow way: flat, or nested as its shape says.
func oracle(datatype string, rows, columns int, data []byte) ([]byte, bool) {
	switch datatype {
	case "BOOL":
		return oracleOf[bool](rows, columns, data, func(b []byte, v bool) []byte { return append(b, le(v)...) })
	case "UINT8":
		return oracleOf[uint8](rows, columns, data, nil)
	case "UINT16":
		return oracleOf[uint16](rows, columns, data, nil)
	case "UINT32":
		return oracleOf[uint32](rows, columns, data, nil)
	case "UINT64":
		return oracleOf[uint64](rows, columns, data, nil)
	case "INT8":
		return oracleOf[int8](rows, columns, data, nil)
	case "INT16":
		return oracleOf[int16](rows, columns, data, nil)
	case "INT32":
		return oracleOf[int32](rows, columns, data, nil)
	case "INT64":
		return oracleOf[int64](rows, columns, data, nil)
	case "FP32":
		return oracleOf[float32](rows, columns, data, nil)
	case "FP64":
		return oracleOf[float64](rows, columns, data, nil)
	}
	return oracleOf[string](rows, columns, data, func(b []byte, v string) []byte { return append(b, elementsOf(v)...) })
}

func oracleOf[T any](rows, columns int, data []byte, add func([]byte, T) []byte) ([]byte, bool) {
	if add == nil {
		add = func(b []byte, v T) []byte { return append(b, le(v)...) }
	}
	var flat []*T // a null is none of the elements
	if json.Unmarshal(data, &flat) != nil || flat == nil {
		var deep [][]*T
		if json.Unmarshal(data, &deep) != nil || deep == nil || len(deep) != rows {
			return nil, false
		}
		flat = nil
		for _, row := range deep {
			if len(row) != columns || row == nil {
				return nil, false
			}
			flat = append(flat, row...)
		}
	}
	if len(flat) != rows*columns {
		return nil, false
	}
	var out []byte
	for _, v := range flat {
		if v == nil {
			return nil, false
		}
		out = add(out, *v)
	}
	return out, true
}
