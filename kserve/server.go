package kserve

import "github.com/dynago/dynago/internal/gen/inferencepb"

// ServerMetadata tells what the server is, and which extensions of the protocol it
// has, in Triton's words. Binary says that bytes can follow the JSON of a body.
func ServerMetadata(version string, binary bool) *inferencepb.ServerMetadataResponse {
	m := &inferencepb.ServerMetadataResponse{
		Name: "dynago", Version: version,
		Extensions: []string{"model_configuration", "parameters", "statistics"},
	}
	if binary {
		m.Extensions = append(m.Extensions, "binary_tensor_data")
	}
	return m
}
