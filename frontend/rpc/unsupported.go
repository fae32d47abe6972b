package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// What Triton's clients may ask and this server does not do: workers come and go by
// themselves, tensors come in messages, and logs are the operator's.

func unsupported(method string) error {
	return status.Errorf(codes.Unimplemented, "%s is not supported by this server", method)
}

// RepositoryModelLoad is not served.
func (service) RepositoryModelLoad(context.Context, *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	return nil, unsupported("RepositoryModelLoad")
}

// RepositoryModelUnload is not served.
func (service) RepositoryModelUnload(context.Context, *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	return nil, unsupported("RepositoryModelUnload")
}

// SystemSharedMemoryStatus is not served.
func (service) SystemSharedMemoryStatus(context.Context, *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	return nil, unsupported("SystemSharedMemoryStatus")
}

// SystemSharedMemoryRegister is not served.
func (service) SystemSharedMemoryRegister(context.Context, *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	return nil, unsupported("SystemSharedMemoryRegister")
}

// SystemSharedMemoryUnregister is not served.
func (service) SystemSharedMemoryUnregister(context.Context, *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	return nil, unsupported("SystemSharedMemoryUnregister")
}

// CudaSharedMemoryStatus is not served.
func (service) CudaSharedMemoryStatus(context.Context, *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	return nil, unsupported("CudaSharedMemoryStatus")
}

// CudaSharedMemoryRegister is not served.
func (service) CudaSharedMemoryRegister(context.Context, *pb.CudaSharedMemoryRegisterRequest) (*pb.CudaSharedMemoryRegisterResponse, error) {
	return nil, unsupported("CudaSharedMemoryRegister")
}

// CudaSharedMemoryUnregister is not served.
func (service) CudaSharedMemoryUnregister(context.Context, *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	return nil, unsupported("CudaSharedMemoryUnregister")
}

// TraceSetting is not served.
func (service) TraceSetting(context.Context, *pb.TraceSettingRequest) (*pb.TraceSettingResponse, error) {
	return nil, unsupported("TraceSetting")
}

// LogSettings is not served.
func (service) LogSettings(context.Context, *pb.LogSettingsRequest) (*pb.LogSettingsResponse, error) {
	return nil, unsupported("LogSettings")
}
