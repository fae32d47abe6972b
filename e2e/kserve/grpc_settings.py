"""A server that was set up otherwise, by its environment: errors of streams are
statuses, messages are small, one request of a stream runs at a time, nobody is told
what the service looks like, the extension is off, and a template fills requests in."""

import json

import grpc
import numpy as np

import http_client
from cases import MODEL, completion, equal, refused, run
from grpc_client import Stream, channel, client, parameter, pb, prompt, strings, stub, texts, typed

PARIS = "Which rivers cross Paris?"


def errors_end_streams():
    for request, code in (typed(b"hello", model="no/such"), "NOT_FOUND"), (pb.ModelInferRequest(model_name=MODEL), "INVALID_ARGUMENT"):
        try:
            got = list(stub.ModelStreamInfer(iter([request])))
        except grpc.RpcError as e:
            equal(e.code().name, code)
        else:
            raise AssertionError(f"no status: {got}")


def small_messages():
    with refused("RESOURCE_EXHAUSTED"):
        client.infer(MODEL, prompt("x" * 100_000))
    with Stream() as s, refused("RESOURCE_EXHAUSTED"):
        s.ask(MODEL, prompt("x" * 100_000))
        s.next()
    # What is small on the wire may be large.
    with refused("RESOURCE_EXHAUSTED"):
        client.infer(MODEL, prompt("x" * 10_000_000), compression_algorithm="gzip")
    assert texts(client.infer(MODEL, prompt("x" * 10_000), compression_algorithm="gzip"))[0]


def small_bodies():
    with refused("413"):
        http_client.client.infer(MODEL, http_client.prompt("x" * 2_000_000))
    with refused("413"):
        http_client.client.infer(MODEL, http_client.prompt("x" * 2_000_000), request_compression_algorithm="gzip")


def one_after_the_other():
    with Stream() as s:
        for i in range(3):
            s.ask(MODEL, prompt("count slowly", streaming=True), request_id=str(i), enable_empty_final_response=True)
        ids = []
        while len(set(ids)) < 3:
            ids.append(s.next().get_response().id)
        equal(ids, sorted(ids))


def no_reflection():
    try:
        list(channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter([b"\x3a\x00"])))
    except grpc.RpcError as e:
        equal(e.code(), grpc.StatusCode.UNIMPLEMENTED)
        return
    raise AssertionError("it is told")


def no_extension():
    r = client.infer(MODEL, prompt(PARIS), parameters={"nvext": '{"extra_fields": ["worker_id"]}'})
    assert "nvext" not in r.get_response().parameters, r.get_response()
    for ignored in "{", '{"agent_hints": {"priority": "high"}}':
        equal(texts(client.infer(MODEL, prompt(PARIS), parameters={"nvext": ignored})), texts(r))
    # A worker that is pinned by a header would not be there.
    equal(texts(client.infer(MODEL, prompt(PARIS), headers={"x-dynamo-worker-instance-id": "4242"})), texts(r))


def template():
    """It names the model where the client does not, and fills in what is not set."""
    r = client.infer("", prompt(PARIS))
    equal((r.get_response().model_name, texts(r)), (MODEL, [completion(PARIS, max_tokens=7)]))
    equal(parameter(r.get_response(), "completion_tokens")[0], 7)
    equal(texts(client.infer(MODEL, prompt(PARIS), parameters={"max_tokens": 3})), [completion(PARIS, max_tokens=3)])
    sampling = json.dumps({"max_tokens": 5, "temperature": 0})
    equal(texts(client.infer(MODEL, [*prompt(PARIS), strings("sampling_parameters", sampling)])), [completion(PARIS, max_tokens=5)])


def raw_floats_are_still_numbers():
    """What the client has no words for goes by its stubs: a double that is whole."""
    r = typed(PARIS.encode())
    r.parameters["max_tokens"].double_param = np.float64(4)
    equal([t.decode() for t in stub.ModelInfer(r).outputs[0].contents.bytes_contents], [completion(PARIS, max_tokens=4)])


run(errors_end_streams, small_messages, small_bodies, one_after_the_other, no_reflection, no_extension, template, raw_floats_are_still_numbers)
