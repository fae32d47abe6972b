// Package inferencepb is the service of KServe v2 and Triton as it goes over the
// wire, generated from proto/inference. It is the only copy of the protobuf package
// "inference" that a binary may hold.
package inferencepb

//go:generate go -C ../../../tools run ./protoc -in ../proto -out .. inference/model_config.proto inference/grpc_service.proto
