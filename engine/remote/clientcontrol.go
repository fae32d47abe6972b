package remote

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// OpenSession makes a session on the worker, or gives one a new timeout.
func (c *Client) OpenSession(ctx context.Context, key kv.SessionKey, o engine.SessionOptions) (known bool, err error) {
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_OpenSession{OpenSession: &workerpb.OpenSession{
		Session: &workerpb.Session{Id: key.ID, TimeoutMs: millis(o.Timeout), Ephemeral: o.Ephemeral},
		Model:   key.Model, Salt: key.Salt, Capacity: uint64(max(0, o.Capacity)), DpRank: o.Rank,
	}}})
	return m.GetSession().GetKnown(), err
}

// CloseSession ends one.
func (c *Client) CloseSession(ctx context.Context, key kv.SessionKey) (known bool, err error) {
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_CloseSession{CloseSession: &workerpb.CloseSession{
		Id: key.ID, Model: key.Model, Salt: key.Salt,
	}}})
	return m.GetSession().GetKnown(), err
}

// Prepare asks the worker how two legs of a request meet.
func (c *Client) Prepare(ctx context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	m, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Prepare{Prepare: &workerpb.Prepare{
		RequestId: q.Request, DpRank: &q.Rank, DecodeWorker: q.Decode.Worker, DecodeRank: q.Decode.Rank, DecodeLayout: q.DecodeLayout,
	}}})
	h := m.GetHandoff()
	return engine.Handoff{
		ID: h.GetHandoffId(), Concurrent: h.GetOrder() == workerpb.Order_ORDER_CONCURRENT, Prefill: raw(h.GetPrefill()), Decode: raw(h.GetDecode()),
	}, err
}

// Release lets the worker let go of a hand-off.
func (c *Client) Release(ctx context.Context, handoff string) error {
	_, err := c.control(ctx, controlTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Release{Release: &workerpb.Release{HandoffId: handoff}}})
	return err
}

// Control tells the worker to do what its card lists in Controls.
func (c *Client) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	m, err := c.control(ctx, namedTimeout, &workerpb.ControlRequest{What: &workerpb.ControlRequest_Named{Named: &workerpb.Named{Name: name, Args: args}}})
	return raw(m.GetNamed()), err
}

// control makes one call. All but those that have names are for the present life of
// the worker, if it is known.
func (c *Client) control(ctx context.Context, most time.Duration, m *workerpb.ControlRequest) (*workerpb.ControlResponse, error) {
	if s := c.watch.board.status(); s.Card != nil && m.GetNamed() == nil {
		m.Epoch = s.Epoch
	}
	if err := fits(m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, engine.Errorf(engine.ResponseTimeout, "the worker did not answer within %v", most))
	defer cancel()
	ctx, done := c.begin(ctx)
	defer done()
	var trailer metadata.MD
	answer, err := c.worker().Control(ctx, m, grpc.Trailer(&trailer))
	if err == nil {
		return answer, nil
	}
	return nil, operation(c.refused(ctx, err, trailer), "control")
}
