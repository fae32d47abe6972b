"""A server with keys, over gRPC and HTTP."""

import urllib.error
import urllib.request

import tritonclient.http

from cases import HTTP, KEY, MODEL, equal, refused, run
from grpc_client import Stream, client, prompt, texts
from http_client import prompt as http_prompt

ask = {"parameters": {"max_tokens": 4}}


def no_key():
    for headers in {}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}:
        with refused("UNAUTHENTICATED"):
            client.infer(MODEL, prompt("hello"), headers=headers)
        with refused("UNAUTHENTICATED"):
            client.get_model_metadata(MODEL, headers=headers)
        with Stream(headers=headers) as s, refused("UNAUTHENTICATED"):
            s.next()


def either_header():
    for headers in {"x-api-key": KEY}, {"authorization": "Bearer " + KEY}:
        assert texts(client.infer(MODEL, prompt("hello"), headers=headers, **ask))[0]
        equal(client.get_model_metadata(MODEL, headers=headers).name, MODEL)
        with Stream(headers=headers) as s:
            s.ask(MODEL, prompt("hello"), **ask)
            assert texts(s.next())[0]


def over_http():
    c = tritonclient.http.InferenceServerClient(HTTP)
    with refused("401"):
        c.infer(MODEL, http_prompt("hello"))
    for headers in {"x-api-key": KEY}, {"authorization": "Bearer " + KEY}:
        assert c.infer(MODEL, http_prompt("hello"), headers=headers, **ask).as_numpy("text_output").size
    try:
        urllib.request.urlopen(f"http://{HTTP}/v2/models/{MODEL}")
    except urllib.error.HTTPError as e:
        equal(e.code, 401)
        return
    raise AssertionError("it was answered without a key")


run(no_key, either_header, over_http)
