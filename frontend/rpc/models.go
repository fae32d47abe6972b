package rpc

import (
	"context"
	"slices"

	pb "github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/pipeline"
)

// shuttingDown is told to those who come while the server drains.
const shuttingDown = "server is shutting down"

// ServerLive says that the server answers.
func (service) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

// ServerReady says whether some model could be asked now.
func (s service) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.ready()}, nil
}

// ModelReady says whether a model could be asked now. Of one that does not exist it
// says that it could not.
func (s service) ModelReady(_ context.Context, in *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	m, ok := s.model(in.GetName())
	return &pb.ModelReadyResponse{Ready: ok && m.Ready && !s.draining()}, nil
}

// ready says whether some model could be asked now.
func (s *Server) ready() bool {
	return !s.draining() && slices.ContainsFunc(s.models(), func(m pipeline.ModelInfo) bool { return m.Ready })
}

// models lists those that KServe sees.
func (s *Server) models() []pipeline.ModelInfo {
	return slices.DeleteFunc(s.Frontend.Backend.Models(), func(m pipeline.ModelInfo) bool { return kserve.KindOf(m.Card) == kserve.Hidden })
}

// model finds one of those by its own name.
func (s *Server) model(name string) (pipeline.ModelInfo, bool) {
	for _, m := range s.models() {
		if m.ID == name {
			return m, true
		}
	}
	return pipeline.ModelInfo{}, false
}

// ServerMetadata tells what the server is, and which extensions it has.
func (s service) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return kserve.ServerMetadata(s.Version, s.REST), nil
}

// ModelMetadata tells which tensors a model takes and gives.
func (s service) ModelMetadata(_ context.Context, in *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	out, err := kserve.Metadata(in.GetName(), s.Frontend.Backend.Card(in.GetName()))
	if err != nil {
		return nil, statusOf(err)
	}
	return out, nil
}

// ModelConfig tells how a model is configured.
func (s service) ModelConfig(_ context.Context, in *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	out, err := kserve.Config(in.GetName(), s.Frontend.Backend.Card(in.GetName()))
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.ModelConfigResponse{Config: out}, nil
}

// RepositoryIndex lists the models.
func (s service) RepositoryIndex(_ context.Context, in *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	infos := s.Frontend.Backend.Models()
	models := make([]kserve.Model, len(infos))
	for i, m := range infos {
		models[i] = kserve.Model{Name: m.ID, Card: m.Card, Ready: m.Ready, Reason: m.Reason}
	}
	out, err := kserve.Index(models, in)
	if err != nil {
		return nil, statusOf(err)
	}
	return out, nil
}

// ModelStatistics tells how the requests of a model fared, or those of all models.
func (s service) ModelStatistics(_ context.Context, in *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	out, err := s.Frontend.ModelStatistics(in.GetName())
	if err != nil {
		return nil, statusOf(err)
	}
	return out, nil
}
