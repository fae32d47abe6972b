"""Runs cases and reports each as a line of JSON: name, ok, detail."""

import json
import os
import sys
import traceback
import urllib.request

from openai import AsyncOpenAI, OpenAI

BASE = os.environ["DYNAGO_URL"]
MODEL = os.environ["DYNAGO_MODEL"]
KEY = os.environ.get("DYNAGO_KEY", "any")

client = OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


def async_client():
    return AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


def run(*cases):
    for case in cases:
        detail = ""
        try:
            case()
        except Exception:  # the line says which, the test fails on it
            detail = traceback.format_exc()
        print(json.dumps({"name": case.__name__, "ok": not detail, "detail": detail}), flush=True)
    sys.exit(0)


def user(text):
    return [{"role": "user", "content": text}]


def equal(got, want):
    assert got == want, f"got {got!r}, want {want!r}"


def active_requests():
    """The sum of the gauge over all models."""
    with urllib.request.urlopen(BASE + "/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith("dynamo_frontend_active_requests"))


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ARGS = '{"city": "Rome", "note": "</tool_call> is data"}'
