package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
)

// readyService is what readiness is asked by. All other names tell that the server
// lives, so that nobody restarts one whose models are late.
var readyService = pb.GRPCInferenceService_ServiceDesc.ServiceName + "/ready"

// lookAgain is how often somebody who watches readiness is told of it anew.
const lookAgain = time.Second

// health is the standard service by which servers are probed.
type health struct {
	healthpb.UnimplementedHealthServer
	*Server
}

// of returns the health of a service.
func (h health) of(name string) healthpb.HealthCheckResponse_ServingStatus {
	serves := !h.draining()
	switch name {
	case "", pb.GRPCInferenceService_ServiceDesc.ServiceName:
	case readyService:
		serves = h.ready()
	default:
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if serves {
		return healthpb.HealthCheckResponse_SERVING
	}
	return healthpb.HealthCheckResponse_NOT_SERVING
}

// Check tells how a service is.
func (h health) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	now := h.of(in.GetService())
	if now == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", in.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: now}, nil
}

// List tells how all services are.
func (h health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := map[string]*healthpb.HealthCheckResponse{}
	for _, name := range []string{"", pb.GRPCInferenceService_ServiceDesc.ServiceName, readyService} {
		all[name] = &healthpb.HealthCheckResponse{Status: h.of(name)}
	}
	return &healthpb.HealthListResponse{Statuses: all}, nil
}

// Watch tells how a service is, and each time that it has changed, until the client
// leaves or the server is closed.
func (h health) Watch(in *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	leaving := h.leaving
	for last := healthpb.HealthCheckResponse_UNKNOWN; ; {
		if now := h.of(in.GetService()); now != last {
			last = now
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-again.C:
		case <-leaving:
			leaving = nil // once
		case <-stream.Context().Done():
			return ended(stream.Context())
		case <-h.closing:
			return status.Error(codes.Unavailable, shuttingDown)
		}
	}
}
