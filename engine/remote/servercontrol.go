package remote

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// Control does one thing besides generating, if the engine can.
func (s *Server) Control(ctx context.Context, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	if err := s.current(m.Epoch); err != nil {
		return nil, failCall(ctx, err)
	}
	answer, err := s.control(ctx, m)
	if err != nil {
		return nil, failCall(ctx, engine.CauseOf(ctx, err))
	}
	return answer, nil
}

func failCall(ctx context.Context, err error) error {
	trailer, st := statusOf(err)
	grpc.SetTrailer(ctx, trailer) //nolint:errcheck // the status tells as much
	return st
}

func (s *Server) control(ctx context.Context, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	switch what := m.What.(type) {
	case *workerpb.ControlRequest_OpenSession:
		e, err := able[engine.Sessioner](s.engine, "sessions")
		if err != nil {
			return nil, err
		}
		q := what.OpenSession
		known, err := e.OpenSession(ctx, kv.SessionKey{Model: q.Model, Salt: q.Salt, ID: q.Session.GetId()}, engine.SessionOptions{
			Timeout: duration(q.Session.GetTimeoutMs()), Capacity: int(min(q.Capacity, 1<<53)), Ephemeral: q.Session.GetEphemeral(), Rank: q.DpRank,
		})
		return sessionResult(known), err
	case *workerpb.ControlRequest_CloseSession:
		e, err := able[engine.Sessioner](s.engine, "sessions")
		if err != nil {
			return nil, err
		}
		q := what.CloseSession
		known, err := e.CloseSession(ctx, kv.SessionKey{Model: q.Model, Salt: q.Salt, ID: q.Id})
		return sessionResult(known), err
	case *workerpb.ControlRequest_Pin, *workerpb.ControlRequest_Retain:
		return s.keep(ctx, m)
	case *workerpb.ControlRequest_Prefetch, *workerpb.ControlRequest_PrefetchState, *workerpb.ControlRequest_PrefetchCancel:
		return s.prefetch(ctx, m)
	case *workerpb.ControlRequest_Prepare:
		e, err := able[engine.Disaggregator](s.engine, "hand-offs")
		if err != nil {
			return nil, err
		}
		q := what.Prepare
		h, err := e.Prepare(ctx, engine.HandoffQuery{
			Request: q.RequestId, Rank: q.GetDpRank(), Decode: kv.Target{Worker: q.DecodeWorker, Rank: q.DecodeRank}, DecodeLayout: q.DecodeLayout,
		})
		return handoffResult(&h), err
	case *workerpb.ControlRequest_Release:
		e, err := able[engine.Disaggregator](s.engine, "hand-offs")
		if err != nil {
			return nil, err
		}
		return &workerpb.ControlResponse{}, e.Release(ctx, what.Release.GetHandoffId())
	case *workerpb.ControlRequest_Named:
		e, err := able[engine.Controller](s.engine, "controls")
		if err != nil {
			return nil, err
		}
		out, err := e.Control(ctx, what.Named.GetName(), json.RawMessage(what.Named.GetArgs()))
		return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Named{Named: out}}, err
	}
	return nil, engine.Errorf(engine.Unsupported, "the worker does not know what it was told to do")
}

// able returns an optional interface of the engine.
func able[T any](e engine.Engine, what string) (T, error) {
	t, ok := engine.As[T](e)
	if !ok {
		return t, engine.Errorf(engine.Unsupported, "the engine has no %s", what)
	}
	return t, nil
}

func sessionResult(known bool) *workerpb.ControlResponse {
	return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Session{Session: &workerpb.SessionResult{Known: known}}}
}

func handoffResult(h *engine.Handoff) *workerpb.ControlResponse {
	m := &workerpb.Handoff{HandoffId: h.ID, Prefill: h.Prefill, Decode: h.Decode}
	if h.Concurrent {
		m.Order = workerpb.Order_ORDER_CONCURRENT
	}
	return &workerpb.ControlResponse{What: &workerpb.ControlResponse_Handoff{Handoff: m}}
}
