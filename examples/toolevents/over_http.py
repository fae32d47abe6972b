"""Tells a server that an agent has run a tool. Python's own library is enough."""
import json, os, time, urllib.request

began = time.time_ns() // 1_000_000
# ... the tool runs here ...
ended = time.time_ns() // 1_000_000
event = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": ended, "session_id": "bugfix-7",
         "tool": {"tool_call_id": "call-3", "tool_class": "run_tests", "status": "succeeded",
                  "started_at_unix_ms": began, "ended_at_unix_ms": ended, "duration_ms": ended - began}}
urllib.request.urlopen(urllib.request.Request(os.environ["DYNAGO_URL"] + "/v1/agent/tool_events",
                                              json.dumps(event).encode(), {"Content-Type": "application/json"}), timeout=2)
