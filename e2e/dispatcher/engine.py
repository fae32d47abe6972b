"""An engine that answers completions of token ids and publishes its KV events.

It computes nothing: the answer to a prompt is made of its last token. It has a
cache, though, of which it tells as vLLM does, and by which it counts cached tokens.
The first line on stdout has its addresses, and the second comes when somebody
listens to its events.
"""

import argparse
import http.server
import json
import queue
import threading
import time

import msgpack
import zmq


class Cache:
    """Blocks by what they hold, with everything before them."""

    def __init__(self, block_size):
        self.block_size, self.names = block_size, {}

    def take(self, tokens):
        """Returns how many tokens were cached, and the events of storing the rest."""
        cached, parent, new = 0, None, []
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            prefix = tuple(tokens[:end])
            if prefix in self.names and not new:
                cached = end
            else:
                self.names.setdefault(prefix, len(self.names) + 1)
                new.append(prefix)
            if not new:
                parent = self.names[prefix]
        if not new:
            return cached, []
        return cached, [{
            "type": "BlockStored",
            "block_hashes": [self.names[p] for p in new],
            "parent_block_hash": parent,
            "token_ids": [t for p in new for t in p[-self.block_size:]],
            "block_size": self.block_size,
            "lora_id": None,
            "medium": "GPU",
        }]


def publish(context, addresses, events):
    """Sends events to whom listens, from the moment that somebody does."""
    pub = context.socket(zmq.XPUB)
    pub.setsockopt(zmq.LINGER, 0)
    pub.bind("tcp://127.0.0.1:*")
    addresses.put(pub.getsockopt_string(zmq.LAST_ENDPOINT))
    pub.recv()  # a subscription
    print(json.dumps({"heard": True}), flush=True)
    for number in range(1 << 63):
        batch = msgpack.packb([time.time(), events.get(), 0])
        pub.send_multipart((b"", number.to_bytes(8, "big"), batch))


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--block-size", type=int, default=4)
    options = flags.parse_args()
    cache, lock = Cache(options.block_size), threading.Lock()
    addresses, events = queue.Queue(), queue.Queue()
    threading.Thread(target=publish, args=(zmq.Context(), addresses, events), daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt, n = request["prompt"], request["max_tokens"]
            answer = [prompt[-1] * 7 % 1000 + i for i in range(n)]
            with lock:
                cached, told = cache.take(prompt)
                told += cache.take(prompt + answer[:-1])[1]  # the last one was never computed
                if told:
                    events.put(told)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for token in answer:
                self.chunk({"choices": [{"index": 0, "text": "", "token_ids": [token]}]})
            self.chunk({"choices": [], "usage": {
                "prompt_tokens": len(prompt), "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": cached},
            }})
            self.wfile.write(b"data: [DONE]\n\n")

        def chunk(self, value):
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"endpoint": f"http://127.0.0.1:{server.server_port}", "events": addresses.get()}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
