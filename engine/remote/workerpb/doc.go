// Package workerpb is the service of workers as it goes over the wire, generated
// from proto/dynago/worker/v1/worker.proto. Backends in Go implement its
// [WorkerServer].
package workerpb

//go:generate go -C ../../../tools run ./protoc -in ../proto -out .. dynago/worker/v1/worker.proto
