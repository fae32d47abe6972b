"""A server whose one worker answers one request at a time."""

import json
import queue

from cases import MODEL, equal, metric, run, running, until
from grpc_client import client, prompt

BRIEF = {"max_tokens": 4}


def order(**last):
    """In which order are requests answered of which the last one is asked otherwise?"""
    answers = queue.Queue()
    for i in range(4):
        more = {"parameters": BRIEF, **(last if i == 3 else {})}
        client.async_infer(MODEL, prompt("hello"), lambda result, error: answers.put((result, error)), request_id=str(i), **more)
        until("it has come", lambda: metric("dynamo_frontend_active_requests") + answers.qsize() == i + 1)
        if i == 0:
            until("it runs", lambda: running() == 1)
    ids = []
    for _ in range(4):
        result, error = answers.get(timeout=20)
        assert error is None, error
        ids.append(result.get_response().id)
    return "".join(ids)


def by_arrival():
    equal(order(), "0123")


def what_triton_calls_priority():
    """There 1 is the highest. Here it says nothing."""
    equal(order(priority=1), "0123")


def by_metadata():
    equal(order(headers={"x-dynamo-request-priority": "5"}), "0312")


def by_the_extension():
    equal(order(parameters={**BRIEF, "nvext": json.dumps({"agent_hints": {"priority": 5}})}), "0312")


run(by_arrival, what_triton_calls_priority, by_metadata, by_the_extension)
