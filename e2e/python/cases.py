"""Runs cases and reports each as a line of JSON: name, ok, detail."""

import json
import os
import sys
import time
import traceback
import urllib.request

BASE = os.environ["DYNAGO_URL"]
MODEL = os.environ["DYNAGO_MODEL"]
KEY = os.environ.get("DYNAGO_KEY", "any")


def run(*cases):
    for case in cases:
        detail = ""
        try:
            case()
        except Exception:  # the line says which, the test fails on it
            detail = traceback.format_exc()
        print(json.dumps({"name": case.__name__, "ok": not detail, "detail": detail}), flush=True)
    sys.exit(0)


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def total(metric):
    """The sum of a metric over all its labels."""
    with urllib.request.urlopen(BASE + "/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith(metric))


def active_requests():
    return total("dynamo_frontend_active_requests")


def until_idle():
    deadline = time.monotonic() + 10
    while active_requests() != 0:
        assert time.monotonic() < deadline, f"{active_requests()} requests are still active"
        time.sleep(0.02)


VOLATILE = {
    "id", "item_id", "call_id", "created_at", "completed_at", "encrypted_content", "parsed", "parsed_output",
    "parsed_arguments", "cached_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
    "cache_creation", "total_tokens",
}


def said(answer):
    """What an answer says, without what is another's with every answer, what an SDK adds, and members that are null."""
    if hasattr(answer, "model_dump"):
        answer = answer.model_dump(mode="json")
    if isinstance(answer, dict):
        return {k: said(v) for k, v in answer.items() if k not in VOLATILE and v is not None}
    if isinstance(answer, list):
        return [said(v) for v in answer]
    return answer


# What a call of get_weather has in the script.
ARGS = '{"city": "Rome", "note": "</tool_call> is data"}'

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
    "required": ["city"],
}
