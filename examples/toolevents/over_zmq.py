"""Tells a server that an agent has run a tool. Sending never waits: what finds no room is dropped."""
import itertools, os, time, msgpack, zmq

socket, numbers = zmq.Context.instance().socket(zmq.PUSH), itertools.count()
socket.connect(os.environ["DYNAGO_TOOL_EVENTS"])  # tcp://127.0.0.1:20390
began = time.time_ns() // 1_000_000
# ... the tool runs here ...
ended = time.time_ns() // 1_000_000
event = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": ended, "session_id": "bugfix-7",
         "tool": {"tool_call_id": "call-3", "tool_class": "run_tests", "status": "succeeded",
                  "started_at_unix_ms": began, "ended_at_unix_ms": ended, "duration_ms": ended - began}}
try:
    socket.send_multipart([b"agent-tool-events", next(numbers).to_bytes(8, "big"), msgpack.packb(event)], zmq.NOBLOCK)
except zmq.Again:
    pass  # nobody is there yet, or the server is behind
socket.close(linger=1000)
