"""A libzmq socket that is told by lines of JSON on standard input what to do.

Sockets have names, so that one process can have several. Frames are hex, and a
frame [n, "byte"] is that byte n times. Each command is answered by one line.

  {"do": "open", "name", "type", "options": {option: value}}
  {"do": "bind"|"connect", "name", "endpoint"}  -> {"endpoint"}
  {"do": "subscribe"|"unsubscribe", "name", "prefix"}
  {"do": "send", "name", "frames"}
  {"do": "flood", "name", "count", "size", "topic"}  numbered 3-part messages
  {"do": "recv", "name", "ms"}                  -> {"frames"}, null if none came
  {"do": "drain", "name", "count", "ms"}        -> {"count", "bytes", "last"}
  {"do": "echo", "name", "count"}               return messages to their senders
  {"do": "close", "name"}
"""

import json
import sys
import time

import zmq

context = zmq.Context()
sockets = {}


def frames(given):
    return [bytes.fromhex(f) if isinstance(f, str) else bytes.fromhex(f[1]) * f[0] for f in given]


def shown(parts):
    # What is long is told by its size and its last bytes.
    return [p.hex() if len(p) <= 1024 else [len(p), p[-8:].hex()] for p in parts]


def bind(s, endpoint):
    # libzmq closes sockets in the background, so that the port of one before
    # this can be taken a little longer.
    for attempt in range(200):
        try:
            return s.bind(endpoint)
        except zmq.ZMQError as e:
            if e.errno != zmq.EADDRINUSE or attempt == 199:
                raise
            time.sleep(0.02)


def obey(c):
    if c["do"] == "open":
        s = sockets[c["name"]] = context.socket(getattr(zmq, c["type"]))
        s.setsockopt(zmq.LINGER, 0)
        for option, value in (c["options"] or {}).items():
            s.setsockopt(getattr(zmq, option), value.encode() if isinstance(value, str) else value)
        return {}
    s = sockets[c["name"]]
    match c["do"]:
        case "bind":
            bind(s, c["endpoint"])
            return {"endpoint": s.getsockopt_string(zmq.LAST_ENDPOINT)}
        case "connect":
            s.connect(c["endpoint"])
        case "subscribe":
            s.subscribe(c["prefix"].encode())
        case "unsubscribe":
            s.unsubscribe(c["prefix"].encode())
        case "send":
            s.send_multipart(frames(c["frames"]))
        case "flood":
            body = b"x" * c["size"]
            for n in range(c["count"]):
                s.send_multipart([c["topic"].encode(), n.to_bytes(8, "big"), body], copy=True)
        case "recv":
            return {"frames": shown(s.recv_multipart()) if s.poll(c["ms"]) else None}
        case "drain":
            count, size, last = 0, 0, None
            while count < c["count"] and s.poll(c["ms"]):
                last = s.recv_multipart()
                count, size = count + 1, size + sum(map(len, last))
            return {"count": count, "bytes": size, "last": shown(last or [])}
        case "echo":
            for _ in range(c["count"]):
                s.send_multipart(s.recv_multipart())
        case "close":
            sockets.pop(c["name"]).close()
        case other:
            raise ValueError(f"unknown command {other!r}")
    return {}


for line in sys.stdin:
    try:
        answer = obey(json.loads(line))
    except Exception as e:  # the test fails on it
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
context.destroy(linger=0)
