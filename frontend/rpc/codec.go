package rpc

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of the library
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/internal/gen/inferencepb"
)

// codec reads and writes messages as the codec of the library does, but for the bytes
// of tensors: those that come in share memory with the message that they came in, and
// those that go out go from where they are. Of a large call they are all there is, and
// the library copies them twice on the way in and once on the way out, where once in
// all is enough.
type codec struct {
	encoding.CodecV2
	large int // bytes from which on that is worth while
}

// newCodec returns the codec of the service.
func newCodec() codec { return codec{encoding.GetCodecV2("proto"), 64 << 10} }

// The fields of messages that hold the bytes of tensors, and the one that holds the
// message which does.
const (
	rawInputs  protowire.Number = 7 // of a ModelInferRequest
	rawOutputs protowire.Number = 6 // of a ModelInferResponse
	response   protowire.Number = 2 // of a ModelStreamInferResponse
)

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*inferencepb.ModelInferRequest)
	if !ok || data.Len() < c.large {
		return c.CodecV2.Unmarshal(data, v)
	}
	return readCall(data.Materialize(), m)
}

// readCall reads a call, which shares memory with its text.
func readCall(text []byte, m *inferencepb.ModelInferRequest) error {
	// Most often the tensors are at the end, and what is left begins the text.
	var raw [][]byte
	rest := text[:0:0]
	for at := 0; at < len(text); {
		number, kind, tag := protowire.ConsumeTag(text[at:])
		if tag < 0 {
			return fmt.Errorf("proto: ModelInferRequest: %w", protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(number, kind, text[at+tag:])
		if size < 0 {
			return fmt.Errorf("proto: ModelInferRequest: %w", protowire.ParseError(size))
		}
		end := at + tag + size
		switch {
		case number == rawInputs && kind == protowire.BytesType:
			value, _ := protowire.ConsumeBytes(text[at+tag : end])
			raw = append(raw, value[:len(value):len(value)])
		case len(rest) == at:
			rest = text[:end:end]
		default:
			rest = append(rest, text[at:end]...)
		}
		at = end
	}
	if err := proto.Unmarshal(rest, m); err != nil {
		return err
	}
	m.RawInputContents = raw
	return nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *inferencepb.ModelInferResponse:
		if c.isLarge(m) {
			return writeResponse(nil, m)
		}
	case *inferencepb.ModelStreamInferResponse:
		if m.GetErrorMessage() == "" && c.isLarge(m.GetInferResponse()) {
			head := protowire.AppendTag(nil, response, protowire.BytesType)
			head = protowire.AppendVarint(head, uint64(proto.Size(m.GetInferResponse())))
			return writeResponse(head, m.GetInferResponse())
		}
	}
	return c.CodecV2.Marshal(v)
}

// isLarge says whether a response has so many bytes of tensors that they had better
// stay where they are.
func (c codec) isLarge(m *inferencepb.ModelInferResponse) bool {
	n := 0
	for _, raw := range m.GetRawOutputContents() {
		n += len(raw)
	}
	return n >= c.large
}

// writeResponse writes a response behind a head. Tensors are buffers of their own.
func writeResponse(head []byte, m *inferencepb.ModelInferResponse) (mem.BufferSlice, error) {
	head, err := proto.MarshalOptions{}.MarshalAppend(head, &inferencepb.ModelInferResponse{
		ModelName: m.ModelName, ModelVersion: m.ModelVersion, Id: m.Id, Parameters: m.Parameters, Outputs: m.Outputs,
	})
	if err != nil {
		return nil, err
	}
	var all mem.BufferSlice
	for _, raw := range m.RawOutputContents {
		head = protowire.AppendTag(head, rawOutputs, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(raw)))
		all = append(all, mem.SliceBuffer(head), mem.SliceBuffer(raw))
		head = nil
	}
	return all, nil
}
