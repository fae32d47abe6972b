"""The REST form of the protocol, for models of text."""

import asyncio
import gzip
import json
import random
import socket
import zlib

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio

from cases import HTTP, MODEL, completion, equal, metric, refused, run, running, until, until_idle
from http_client import client, events, post, prompt, strings, texts

ABSENT = "no/such"
GREEDY = {"temperature": 0.0, "max_tokens": 16}
PARIS = "Which rivers cross Paris?"


def live_and_ready():
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(MODEL) and client.is_model_ready(MODEL, "1")
    assert not client.is_model_ready(ABSENT)


def metadata():
    m = client.get_server_metadata()
    equal(m["name"], "dynago")
    assert m["version"] and "binary_tensor_data" in m["extensions"], m
    m = client.get_model_metadata(MODEL)
    equal((m["name"], m["versions"], m["platform"]), (MODEL, ["1"], "dynamo"))
    equal([(t["name"], t["datatype"], t["shape"]) for t in m["inputs"]], [("text_input", "BYTES", [1]), ("streaming", "BOOL", [1])])
    equal([(t["name"], t["datatype"], t["shape"]) for t in m["outputs"]], [("text_output", "BYTES", [-1]), ("finish_reason", "BYTES", [-1])])
    equal(client.get_model_metadata(MODEL, "1"), m)


def config():
    c = client.get_model_config(MODEL)
    equal((c["name"], c["platform"], c["backend"]), (MODEL, "dynamo", "dynamo"))
    equal([(t["name"], t["data_type"], t["dims"]) for t in c["output"]], [("text_output", "TYPE_STRING", [-1]), ("finish_reason", "TYPE_STRING", [-1])])


def index():
    equal([(m["name"], m["version"], m["state"]) for m in client.get_model_repository_index()], [(MODEL, "1", "READY")])


def statistics():
    before = client.get_inference_statistics(MODEL)["model_stats"][0]
    client.infer(MODEL, prompt("hello"), parameters=GREEDY)
    after = client.get_inference_statistics(MODEL)["model_stats"][0]
    equal(int(after["inference_count"]) - int(before.get("inference_count", 0)), 1)
    assert client.get_inference_statistics()["model_stats"]


def unknown_model():
    for call in client.get_model_metadata, client.get_model_config, lambda name: client.infer(name, prompt("hello")):
        with refused("404", f"Model '{ABSENT}' not found"):
            call(ABSENT)


def not_served():
    for call in (
        lambda: client.load_model(MODEL), lambda: client.unload_model(MODEL), lambda: client.get_system_shared_memory_status(),
        lambda: client.register_system_shared_memory("r", "/r", 1), lambda: client.unregister_system_shared_memory(),
        lambda: client.get_cuda_shared_memory_status(), lambda: client.unregister_cuda_shared_memory(),
        lambda: client.get_trace_settings(), lambda: client.update_trace_settings(settings={}), lambda: client.get_log_settings(),
        lambda: client.update_log_settings({}),
    ):
        try:
            call()
        except triton.InferenceServerException as e:
            assert e.status() in ("404", "501"), e
            assert e.message(), e
        else:
            raise AssertionError("it was served")


def binary_and_json():
    """Inputs and outputs, each in either form."""
    for given in True, False:
        for wanted in True, False:
            outputs = [triton.InferRequestedOutput(n, binary_data=wanted) for n in ("text_output", "finish_reason")]
            r = client.infer(MODEL, prompt(PARIS, given), outputs=outputs, request_id="7", parameters=GREEDY)
            equal((texts(r), texts(r, "finish_reason")), ([completion(PARIS)], ["length"]))
            m = r.get_response()
            equal((m["id"], m["model_name"], m["model_version"]), ("7", MODEL, "1"))
            equal("data" in m["outputs"][0], not wanted)
    equal(texts(client.infer(MODEL, prompt(PARIS), parameters=GREEDY)), [completion(PARIS)])


def parameters():
    m = client.infer(MODEL, prompt(PARIS), parameters={**GREEDY, "n": 1, "nvext": '{"extra_fields": ["worker_id"]}'}).get_response()
    equal(m["parameters"]["completion_tokens"], 16)
    assert json.loads(m["parameters"]["nvext"])["worker_id"], m
    body = json.dumps({"temperature": 0, "max_tokens": 6})
    equal(texts(client.infer(MODEL, [*prompt(PARIS), strings("sampling_parameters", body)])), [completion(PARIS, max_tokens=6)])
    equal(len(texts(client.infer(MODEL, prompt(PARIS), parameters={"n": 2, "temperature": 1.0, "max_tokens": 4}))), 2)


def not_utf8():
    r = client.infer(MODEL, [strings("text_input", b"a\xff\xfeb")], parameters=GREEDY)
    equal(texts(r), texts(client.infer(MODEL, prompt("a\ufffd\ufffdb"), parameters=GREEDY)))


def compressed():
    text = "All work and no play. " * 500
    for how in "gzip", "deflate":
        for back in None, "gzip", "deflate":
            r = client.infer(MODEL, prompt(text), request_compression_algorithm=how, response_compression_algorithm=back, parameters=GREEDY)
            equal(texts(r), [completion(text)])
    path, body = f"/v2/models/{MODEL}/infer", json.dumps({"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]}]}).encode()
    equal(post(path, gzip.compress(body), Content_Encoding="gzip")[0], 200)
    equal(post(path, zlib.compress(body), Content_Encoding="deflate")[0], 200)
    equal(post(path, body, Content_Encoding="br")[0], 415)


def asynchronous():
    calls = [client.async_infer(MODEL, prompt(f"Count to {i}."), request_id=str(i), parameters=GREEDY) for i in range(20)]
    for i, call in enumerate(calls):
        r = call.get_result()
        equal((r.get_response()["id"], texts(r)), (str(i), [completion(f"Count to {i}.")]))


def asyncio_too():
    async def main():
        import tritonclient.http.aio as aio

        async with aio.InferenceServerClient(HTTP) as c:
            assert await c.is_server_live() and await c.is_server_ready() and await c.is_model_ready(MODEL)
            equal((await c.get_server_metadata())["name"], "dynago")
            equal((await c.get_model_config(MODEL))["name"], MODEL)
            equal((await c.get_model_metadata(MODEL))["name"], MODEL)
            equal([m["name"] for m in await c.get_model_repository_index()], [MODEL])
            await c.get_inference_statistics(MODEL)
            got = await asyncio.gather(*(c.infer(MODEL, aio_prompt(aio, f"Count to {i}."), parameters=GREEDY) for i in range(20)))
            for i, r in enumerate(got):
                equal(texts(r), [completion(f"Count to {i}.")])
            with refused("404", ABSENT):
                await c.infer(ABSENT, aio_prompt(aio, "hello"))

    asyncio.run(main())


def aio_prompt(aio, text):
    return [aio.InferInput("text_input", [1], "BYTES").set_data_from_numpy(np.array([text], dtype=np.object_))]


def errors():
    path = f"/v2/models/{MODEL}/infer"
    text = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["hello"]}
    for body, piece in [
        (b"{", ""),
        (b"[]", ""),
        ({}, "text_input"),
        ({"inputs": []}, "Missing required input: 'text_input'"),
        ({"inputs": [{**text, "shape": [2]}]}, ""),
        ({"inputs": [{**text, "datatype": "TEXT"}]}, ""),
        ({"inputs": [{**text, "data": [1]}]}, "text_input"),
        ({"inputs": [text, {**text, "name": "nonsense"}]}, "Invalid input name: nonsense"),
        ({"inputs": [text], "parameters": {"max_tokens": -1}}, "Max tokens"),
        ({"inputs": [text], "outputs": [{"name": "none"}]}, "none"),
        ({"inputs": [text, {"name": "stream", "shape": [1], "datatype": "BOOL", "data": [True]}]}, "Streaming is not supported for this endpoint"),
    ]:
        status, headers, answer = post(path, body)
        equal(status, 400)
        assert piece in json.loads(answer)["error"], answer
        assert headers["Content-Type"].startswith("application/json"), headers
    for path in "/v2/no", f"/v2/models/{MODEL}/no", "/v2/models/no/such/versions/1/infer":
        status, _, answer = post(path, {"inputs": [text]})
        assert status in (404, 405) and json.loads(answer)["error"], (path, status, answer)
    equal(post(f"/v2/models/{MODEL}/infer", b"x" * 10, Content_Type="text/plain")[0], 415)


def failing_engines():
    path = f"/v2/models/{MODEL}/infer"

    def ask(text, **headers):
        return post(path, {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]}]}, **headers)

    for text, status, piece in ("fail at once", 500, "it broke"), ("fail on the way", 500, "it broke"), ("refuse it", 400, "it cannot"):
        got, _, answer = ask(text)
        equal(got, status)
        assert piece in json.loads(answer)["error"], answer
    status, headers, answer = ask("hello", x_dynamo_worker_instance_id="4242")
    equal(status, 503)
    assert headers["Retry-After"] and "model temporarily unavailable" in json.loads(answer)["error"], answer


def overloaded():
    """Last: engines that have too much to do are left alone for a while."""
    status, headers, answer = post(f"/v2/models/{MODEL}/generate", {"text_input": "be overloaded"})
    equal(status, 529)
    assert headers["Retry-After"] and json.loads(answer)["error"], answer


def broken_bodies():
    """Whatever bytes come, the client learns what is wrong with them, and the server goes on."""
    header = {"id": "1", "parameters": {"max_tokens": 2, "binary_data_output": True}, "inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["hello"]}], "outputs": [{"name": "text_output", "parameters": {"binary_data": False}}]}
    whole = json.dumps(header).encode()
    random.seed(7)
    seen = set()
    for _ in range(500):
        b = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(b))
            match random.randrange(3):
                case 0:
                    b[at] = random.randrange(256)
                case 1:
                    b[at:at] = random.choice([b"{", b"[", b'"', b"}", b"]", b",", b"1e999", b"null", b"-", b"\\u"])
                case 2:
                    del b[at : at + random.randint(1, 8)]
        headers = {"Inference_Header_Content_Length": str(random.choice([len(b), len(b) - 5, len(b) + 5]))} if random.random() < 0.3 else {}
        status, _, answer = post(f"/v2/models/{MODEL}/infer", bytes(b), **headers)
        seen.add(status)
        assert status == 200 or json.loads(answer)["error"], answer
    equal(seen, {200, 400})


def lies_about_lengths():
    path = f"/v2/models/{MODEL}/infer"
    header = json.dumps({"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 9}}]}).encode()
    good = header + b"\x05\x00\x00\x00hello"
    equal(post(path, good, Inference_Header_Content_Length=str(len(header)))[0], 200)
    for body, length in (good[:-1], len(header)), (good + b"x", len(header)), (good, len(good) + 1), (good, -1), (good, "many"), (good, 3):
        status, _, answer = post(path, body, Inference_Header_Content_Length=str(length))
        equal(status, 400)
        assert json.loads(answer)["error"], answer


def names_with_slashes():
    body = {"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [PARIS]}], "parameters": GREEDY}
    for name in MODEL, MODEL.replace("/", "%2F"):
        for version in "", "/versions/1":
            status, _, answer = post(f"/v2/models/{name}{version}/infer", body)
            equal((status, json.loads(answer)["outputs"][0]["data"]), (200, [completion(PARIS)]))


def generate():
    body = {"text_input": PARIS, "id": "g", "max_tokens": 16, "parameters": {"temperature": 0}}
    status, _, answer = post(f"/v2/models/{MODEL}/generate", body)
    m = json.loads(answer)
    equal((status, m["id"], m["model_name"], m["model_version"], m["text_output"]), (200, "g", MODEL, "1", completion(PARIS)))
    status, headers, answer = post(f"/v2/models/{MODEL}/generate_stream", body)
    equal((status, headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
    got = events(answer)
    assert len(got) > 2, got
    equal("".join(m["text_output"] for m in got), completion(PARIS))
    equal({(m["id"], m["model_name"]) for m in got}, {("g", MODEL)})


def dropped():
    """Who leaves stops the engine, streaming or not."""
    before = metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions")
    for suffix, kind in ("generate_stream", "stream"), ("generate", "unary"):
        host, port = HTTP.split(":")
        with socket.create_connection((host, int(port))) as conn:
            body = b'{"text_input": "endlessly"}'
            conn.sendall(f"POST /v2/models/{MODEL}/{suffix} HTTP/1.1\r\nHost: {HTTP}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            until("it is answered", lambda: running() == 1)
        until_idle()
        until("it is counted", lambda: metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions", request_type=kind) >= 1)
    equal(metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions") - before, 2)


def generate_errors():
    for suffix in "generate", "generate_stream":
        for name, body, status, piece in [
            (ABSENT, {"text_input": "hello"}, 404, ABSENT),
            (MODEL, {}, 400, "text_input"),
            (MODEL, {"text_input": "hello", "temperature": "hot"}, 400, "temperature"),
            (MODEL, b"{", 400, ""),
        ]:
            got, headers, answer = post(f"/v2/models/{name}/{suffix}", body)
            equal(got, status)
            assert piece in json.loads(answer)["error"], answer
    status, _, answer = post(f"/v2/models/{MODEL}/generate_stream", {"text_input": "fail on the way"})
    assert status == 200 and "error" in events(answer)[-1], (status, answer)


def metrics():
    assert metric("dynamo_frontend_requests_total", model=MODEL, endpoint="completions", status="success") > 0
    until_idle()


run(
    live_and_ready, metadata, config, index, statistics, unknown_model, not_served, binary_and_json, parameters, not_utf8, compressed,
    asynchronous, asyncio_too, errors, failing_engines, broken_bodies, lies_about_lengths, names_with_slashes, generate, dropped, generate_errors, metrics, overloaded,
)
