package remote

import (
	"google.golang.org/grpc"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// Generate runs one request on the engine. A consumer that is slow holds the engine
// up no more than a local one: what waits is the engine's to merge.
func (s *Server) Generate(m *workerpb.GenerateRequest, stream workerpb.Worker_GenerateServer) error {
	ctx, leave, err := s.admit(stream.Context(), m.Epoch)
	if err != nil {
		return fail(stream, err)
	}
	defer leave()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	r := requestOf(m)
	r.Trace = tracing(ctx)
	for d, err := range s.config.Spans.Generate(ctx, s.engine, r) {
		if err != nil {
			return fail(stream, engine.CauseOf(ctx, err))
		}
		if err := send(stream, deltaMessage(&d)); err != nil {
			return err
		}
		if d.Finish != engine.Running {
			return nil
		}
	}
	return fail(stream, engine.CauseOf(ctx, engine.Errorf(engine.StreamIncomplete, "the engine ended the stream before the answer was complete")))
}

// send sends one message; the error of one that is too large is told as what it is.
func send[M any](stream grpc.ServerStreamingServer[M], m *M) error {
	if err := stream.Send(m); err != nil {
		if stream.Context().Err() == nil {
			return fail(stream, engine.Errorf(engine.Internal, "an answer could not be sent: %v", err))
		}
		return err
	}
	return nil
}

// Chat runs one request on an engine that takes conversations.
func (s *Server) Chat(m *workerpb.GenerateRequest, stream workerpb.Worker_ChatServer) error {
	speaker, ok := engine.As[engine.ChatEngine](s.engine)
	if !ok || m.Chat == nil {
		return fail(stream, engine.Errorf(engine.Unsupported, "the engine takes no conversations, or there was none"))
	}
	ctx, leave, err := s.admit(stream.Context(), m.Epoch)
	if err != nil {
		return fail(stream, err)
	}
	defer leave()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	r := requestOf(m)
	r.Trace = tracing(ctx)
	for e, err := range s.config.Spans.Chat(ctx, speaker, r) {
		if err != nil {
			return fail(stream, engine.CauseOf(ctx, err))
		}
		for _, m := range eventMessages(&e) {
			if err := send(stream, m); err != nil {
				return err
			}
		}
		if e.Kind == chat.Finished {
			return nil
		}
	}
	return fail(stream, engine.CauseOf(ctx, engine.Errorf(engine.StreamIncomplete, "the engine ended the stream before the answer was complete")))
}
