"""A dispatcher of your own, on dynago's router: plain Python, no packages.

The router ("dynago router") knows what every engine has cached and what is going
on there. The dispatcher asks it where a prompt should go, sends the request there
itself, and tells how it went, so that the next choice is as good as this one:

    POST   /select_and_reserve           where to, and it counts there from now on
    POST   /reservations/ID/prefill_complete     the first token has come
    POST   /reservations/ID/output_block         the answer takes one more block
    DELETE /reservations/ID              it has ended, and counts no more

Engines are OpenAI servers that take token ids as a prompt and return token ids, as
"vllm serve" does with --kv-events-config. Register them and dispatch what comes in:

    dispatcher.py --router http://127.0.0.1:8092 --model M --block-size 16 \\
        --worker 1,http://10.0.0.1:8000,tcp://10.0.0.1:5557 \\
        --worker 2,http://10.0.0.2:8000,tcp://10.0.0.2:5557

Each line of the input is a turn, {"conversation": "a", "token_ids": [1, 2, 3]},
and each line of the output says where it went and what came back. A conversation
goes on with all its turns and answers before, so the engine that has them cached
is the one to go to.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


class Router:
    """The router's operations, as far as a dispatcher needs them."""

    def __init__(self, url, model):
        self.url, self.model = url.rstrip("/"), model

    def call(self, method, path, body=None):
        """Sends a request, again while the router says that all engines are busy."""
        data = None if body is None else json.dumps(body).encode()
        while True:
            request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as refusal:
                problem = json.load(refusal)
                if refusal.code not in (429, 503):
                    raise RuntimeError(f"{method} {path}: {problem['error']}") from None
                time.sleep(int(refusal.headers.get("Retry-After", 1)))

    def register(self, worker_id, endpoint, events, block_size):
        record = self.call("POST", "/workers", {
            "worker_id": worker_id, "model_name": self.model, "endpoint": endpoint,
            "kv_events_endpoint": events, "block_size": block_size,
        })
        if record["lifecycle"] != "schedulable":
            raise RuntimeError(f"worker {worker_id}: {', '.join(record['not_schedulable_reasons'])}")

    def reserve(self, token_ids, **options):
        """Returns where a prompt goes; options are those of the router's API."""
        return self.call("POST", "/select_and_reserve", {"model_name": self.model, "token_ids": token_ids} | options)

    def tell(self, place, what, **details):
        self.call("POST", f"/reservations/{urllib.parse.quote(place['selection_id'], safe='')}/{what}", details)

    def free(self, place, outcome):
        self.call("DELETE", f"/reservations/{urllib.parse.quote(place['selection_id'], safe='')}?outcome={outcome}")


def complete(endpoint, model, token_ids, max_tokens):
    """Yields the chunks of an engine's answer to a prompt of token ids."""
    body = {
        "model": model, "prompt": token_ids, "max_tokens": max_tokens, "stream": True,
        "return_token_ids": True, "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(endpoint + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                yield json.loads(line[len(b"data: "):])


def dispatch(router, token_ids, max_tokens):
    """Sends a prompt where the router says, and returns the place, the answer's
    token ids, and how many tokens of the prompt were cached there."""
    place = router.reserve(token_ids, expected_output_tokens=max_tokens)
    answer, cached, outcome = [], None, "failed"
    blocks = len(token_ids) // place["block_size"]
    try:
        for chunk in complete(place["endpoint"], router.model, token_ids, max_tokens):
            if not answer and chunk["choices"]:
                router.tell(place, "prefill_complete")
            for choice in chunk["choices"]:
                answer += choice["token_ids"]
            while (len(token_ids) + len(answer)) // place["block_size"] > blocks:
                blocks += 1
                router.tell(place, "output_block")
            if chunk.get("usage"):
                cached = (chunk["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")
        outcome = "completed"
    finally:
        router.free(place, outcome)
    return place, answer, cached


def main():
    flags = argparse.ArgumentParser(description="Dispatch conversations over engines, by dynago's router.")
    flags.add_argument("--router", default="http://127.0.0.1:8092", help="where dynago router listens")
    flags.add_argument("--model", default="default", help="the model that the engines serve")
    flags.add_argument("--block-size", type=int, default=16, help="tokens of the engines' KV blocks")
    flags.add_argument("--max-tokens", type=int, default=16, help="longest answer")
    flags.add_argument("--worker", action="append", required=True, help="ID,URL,ADDRESS OF ITS KV EVENTS; repeat it for each")
    options = flags.parse_args()

    router = Router(options.router, options.model)
    for worker in options.worker:
        worker_id, endpoint, events = worker.split(",")
        router.register(int(worker_id), endpoint, events, options.block_size)

    conversations = {}
    for line in sys.stdin:
        turn = json.loads(line)
        history = conversations.setdefault(turn["conversation"], [])
        history += turn["token_ids"]
        place, answer, cached = dispatch(router, history, options.max_tokens)
        print(json.dumps({
            "conversation": turn["conversation"], "worker_id": place["worker_id"], "prompt_tokens": len(history),
            "expected_cached": place["overlap"]["longest_matched"], "cached": cached, "token_ids": answer,
        }), flush=True)
        history += answer


if __name__ == "__main__":
    main()
