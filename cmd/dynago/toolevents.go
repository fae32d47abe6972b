package main

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/trace/toolevents"
)

// toolsTold takes what harnesses tell of tools. A nil one takes nothing.
type toolsTold struct {
	intake *toolevents.Intake
	stop   context.CancelFunc
	run    sync.WaitGroup
}

// takeTools begins to take tool events, if they are recorded: over HTTP, and over ZMQ
// where an endpoint is named. One that cannot be bound is tried again, and stops nobody.
func (t *tracing) takeTools() {
	c := &t.config
	if !c.Tools {
		if c.ToolEndpoint != "" {
			t.log.Warn("tool events are not taken: they are not among the records that are wanted", "endpoint", c.ToolEndpoint, "set", "DYN_REQUEST_TRACE_RECORDS=request_end,tool")
		}
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	t.tools = &toolsTold{intake: &toolevents.Intake{Publish: t.bus.Publish, Log: t.log}, stop: stop}
	if c.ToolEndpoint == "" {
		return
	}
	if err := toolevents.CheckEndpoint(c.ToolEndpoint); err != nil {
		t.log.Warn("tool events are not taken over ZMQ", "error", err)
		return
	}
	l := &toolevents.Listener{Endpoint: c.ToolEndpoint, Topic: c.ToolTopic, Intake: t.tools.intake, Log: t.log}
	t.tools.run.Go(func() { l.Run(ctx) })
}

// over returns the intake, for a server that takes events as well.
func (t *toolsTold) over() *toolevents.Intake {
	if t == nil {
		return nil
	}
	return t.intake
}

// close takes no more events over ZMQ.
func (t *toolsTold) close() {
	if t != nil {
		t.stop()
		t.run.Wait()
	}
}

var toolEvents = prometheus.NewDesc("dynago_request_trace_tool_events_total", "What harnesses have told of tools: accepted, dropped because it was wrong, or ignored because of its topic.", []string{"transport", "result"}, nil)

func (t *toolsTold) collect(ch chan<- prometheus.Metric) {
	if t == nil {
		return
	}
	count := func(n uint64, transport, result string) {
		ch <- prometheus.MustNewConstMetric(toolEvents, prometheus.CounterValue, float64(n), transport, result)
	}
	zmq, http := t.intake.ZMQ(), t.intake.HTTP()
	count(zmq.Accepted, "zmq", "accepted")
	count(zmq.Dropped, "zmq", "dropped")
	count(zmq.Ignored, "zmq", "ignored")
	count(http.Accepted, "http", "accepted")
	count(http.Dropped, "http", "dropped")
}
