"""Runs cases and reports each as a line of JSON: name, ok, detail. Says where the
server is, and reads what it counts."""

import contextlib
import json
import os
import re
import sys
import time
import traceback
import urllib.request

from tritonclient.utils import InferenceServerException

GRPC = os.environ["DYNAGO_GRPC"]
URL = os.environ["DYNAGO_URL"]
HTTP = URL.partition("://")[2]
MODEL = os.environ["DYNAGO_MODEL"]
KEY = os.environ.get("DYNAGO_KEY")


def run(*cases):
    for case in cases:
        detail = ""
        try:
            case()
        except Exception:  # the line says which, the test fails on it
            detail = traceback.format_exc()
        print(json.dumps({"name": case.__name__, "ok": not detail, "detail": detail}), flush=True)
    # Threads of a client whose case failed may still wait for an answer.
    sys.stdout.flush()
    os._exit(0)


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


@contextlib.contextmanager
def refused(code, *pieces):
    """Expects an error of this gRPC code, or HTTP status, whose text has these pieces."""
    try:
        yield
    except InferenceServerException as e:
        said(e, code, *pieces)
        return
    raise AssertionError(f"no {code} {pieces}")


def said(e, code, *pieces):
    """Holds an error to its code, None for an error within a stream, and its text."""
    want = None if code is None else code if code.isdigit() else "StatusCode." + code
    equal(e.status(), want)
    for piece in pieces:
        assert piece in e.message(), f"no {piece!r} in {e.message()!r}"


def until(what, holds, seconds=10):
    """Waits until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def page(path):
    request = urllib.request.Request(URL + path)
    if KEY:
        request.add_header("Authorization", "Bearer " + KEY)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def metric(name, **labels):
    """The sum of all series of this name that have these labels."""
    total = 0.0
    for line in page("/metrics").splitlines():
        if found := re.fullmatch(re.escape(name) + r"(?:\{(.*)\})? (\S+)", line):
            have = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[1] or ""))
            if all(have.get(k) == v for k, v in labels.items()):
                total += float(found[2])
    return total


def running():
    """How many requests the workers are answering."""
    return metric("dynago_worker_active_requests")


def until_idle():
    until("no worker answers a request", lambda: running() == 0)


def completion(prompt, **more):
    """The text that HTTP gives for the same prompt."""
    body = json.dumps({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 16, **more})
    request = urllib.request.Request(URL + "/v1/completions", body.encode(), {"Content-Type": "application/json"})
    if KEY:
        request.add_header("Authorization", "Bearer " + KEY)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["text"]
