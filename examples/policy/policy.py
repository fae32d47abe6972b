#!/usr/bin/env python3
"""A routing policy as a server, with nothing but Python's own library.

    python3 examples/policy/policy.py 9700
    dynago serve --router-policy http://127.0.0.1:9700

A turn that brings the result of a tool goes where most of its prompt is cached,
so that an agent's loop stays warm; any other goes where least is going on.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def pick(request, candidates):
    """Return the index of the candidate that is to serve the request."""

    def cached(i):
        return candidates[i]["cached_blocks"]["device"] * candidates[i]["block_size"]

    def load(i):
        return candidates[i]["active_requests"], candidates[i]["cost"]

    rows = range(len(candidates))
    if request.get("session", {}).get("input") == "tool":
        return max(rows, key=cached)
    return min(rows, key=load)


class Policy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for many questions
    disable_nagle_algorithm = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {}
        if self.path.endswith("/outcome"):
            for o in body["outcomes"]:
                print(f'{o["id"]} on {o["worker_id"]}: {o["end"]} after {o["total_ms"]:.0f} ms', flush=True)
        else:
            answer = {"choice": pick(body["request"], body["candidates"]), "outcomes": True}
        text = json.dumps(answer).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except ConnectionError:
            pass  # too late: the router has decided without us

    def log_message(self, *_):
        pass  # a line for each question is too much


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Policy)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
