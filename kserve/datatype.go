package kserve

import (
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// datatypes are the words of KServe by the numbers of Triton's configurations.
// There is no word for TYPE_INVALID: it is what a worker wrote that knows no better.
var datatypes = map[inferencepb.DataType]string{
	inferencepb.DataType_TYPE_BOOL:   "BOOL",
	inferencepb.DataType_TYPE_UINT8:  "UINT8",
	inferencepb.DataType_TYPE_UINT16: "UINT16",
	inferencepb.DataType_TYPE_UINT32: "UINT32",
	inferencepb.DataType_TYPE_UINT64: "UINT64",
	inferencepb.DataType_TYPE_INT8:   "INT8",
	inferencepb.DataType_TYPE_INT16:  "INT16",
	inferencepb.DataType_TYPE_INT32:  "INT32",
	inferencepb.DataType_TYPE_INT64:  "INT64",
	inferencepb.DataType_TYPE_FP16:   "FP16",
	inferencepb.DataType_TYPE_BF16:   "BF16",
	inferencepb.DataType_TYPE_FP32:   "FP32",
	inferencepb.DataType_TYPE_FP64:   "FP64",
	inferencepb.DataType_TYPE_STRING: "BYTES",
}

// numbers are the same the other way.
var numbers = func() map[string]inferencepb.DataType {
	m := make(map[string]inferencepb.DataType, len(datatypes))
	for number, word := range datatypes {
		m[word] = number
	}
	return m
}()

// wordOf returns KServe's word for a number of Triton's, and INVALID for one that
// Triton does not have either.
func wordOf(number inferencepb.DataType) string {
	if word, ok := datatypes[number]; ok {
		return word
	}
	return "INVALID"
}

// half says whether a datatype is one of those that neither protobuf nor JSON has
// numbers for. Their tensors travel as bytes alone.
func half(datatype string) bool { return datatype == "FP16" || datatype == "BF16" }

// halves says whether any tensor is of such a datatype.
func halves(tensors []engine.Tensor) bool {
	for i := range tensors {
		if half(tensors[i].Datatype) {
			return true
		}
	}
	return false
}
