"""Models of tensors, in front of a worker that gives back what it gets."""

import asyncio
import os
import queue
import threading

import grpc
import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio

from cases import GRPC, equal, metric, refused, run, running, said, until, until_idle
from grpc_client import LIMITS, Stream, client, final, framed, model_config_pb2, parameter, pb, service_pb2_grpc, stub, tensor

ECHO = os.environ["DYNAGO_ECHO"]

EDGES = {
    "BOOL": np.array([True, False, True]),
    "UINT8": np.array([0, 1, 255], dtype=np.uint8),
    "UINT16": np.array([0, 1, 65535], dtype=np.uint16),
    "UINT32": np.array([0, 1, 2**32 - 1], dtype=np.uint32),
    "UINT64": np.array([0, 1, 2**64 - 1], dtype=np.uint64),
    "INT8": np.array([-128, 0, 127], dtype=np.int8),
    "INT16": np.array([-32768, 0, 32767], dtype=np.int16),
    "INT32": np.array([-(2**31), 0, 2**31 - 1], dtype=np.int32),
    "INT64": np.array([-(2**63), 0, 2**63 - 1], dtype=np.int64),
    "FP16": np.array([1.5, -0.0, np.inf], dtype=np.float16),
    "BF16": np.array([1.5, -0.0, np.nan], dtype=ml_dtypes.bfloat16),
    "FP32": np.array([1.1, -0.0, np.nan], dtype=np.float32),
    "FP64": np.array([1.1, 5e-324, -np.inf], dtype=np.float64),
    "BYTES": np.array([b"", b"\xff\x00\xfe", "東京".encode()], dtype=np.object_),
}
TYPED = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}


def same(got, want):
    equal((got.dtype, got.shape), (want.dtype, want.shape))
    equal(got.tolist() if want.dtype == np.object_ else got.tobytes(), want.tolist() if want.dtype == np.object_ else want.tobytes())


def every_datatype():
    """Alone, as columns and rows, and all of them in one request."""
    for datatype, array in EDGES.items():
        for a in array, array.reshape(3, 1), array.reshape(1, 3, 1):
            r = client.infer(ECHO, [tensor("x", a)])
            same(r.as_numpy("x"), a)
            equal(r.get_output("x").datatype, datatype)
    r = client.infer(ECHO, [tensor(name, array) for name, array in EDGES.items()], request_id="all")
    equal(([t.name for t in r.get_response().outputs], r.get_response().id), (list(EDGES), "all"))
    for name, array in EDGES.items():
        same(r.as_numpy(name), array)


def every_datatype_typed():
    r = pb.ModelInferRequest(model_name=ECHO)
    for datatype, field in TYPED.items():
        getattr(r.inputs.add(name=datatype, datatype=datatype, shape=[3]).contents, field).extend(EDGES[datatype].tolist())
    m = stub.ModelInfer(r)
    equal(len(m.raw_output_contents), 0)
    equal([t.name for t in m.outputs], list(TYPED))
    for sent, got in zip(r.inputs, m.outputs):
        equal((got.datatype, list(got.shape), got.contents.SerializeToString()), (sent.datatype, [3], sent.contents.SerializeToString()))


def halves_are_raw():
    for datatype in "FP16", "BF16":
        r = pb.ModelInferRequest(model_name=ECHO)
        r.inputs.add(name="x", datatype=datatype, shape=[1]).contents.fp32_contents.append(1)
        no(r, "INVALID_ARGUMENT", "x")


def empty_and_scalar():
    for a in np.zeros((0,), np.float32), np.zeros((2, 0, 3), np.int64), np.array([], dtype=np.object_), np.array(7, np.int32), np.array(True):
        same(client.infer(ECHO, [tensor("x", a)]).as_numpy("x"), a)


def strings_of_all_kinds():
    a = np.array([b"", b"\x00", bytes(range(256)), b"x" * 100_000, "ß".encode()], dtype=np.object_)
    same(client.infer(ECHO, [tensor("x", a)]).as_numpy("x"), a)
    same(client.infer(ECHO, [tensor("x", np.array(["", "plain text"], dtype=np.object_))]).as_numpy("x"), np.array([b"", b"plain text"], dtype=np.object_))


def sixty_four_megabytes():
    a = np.arange(16 << 20, dtype=np.float32)
    same(client.infer(ECHO, [tensor("x", a)]).as_numpy("x"), a)
    with Stream() as s:
        s.ask(ECHO, [tensor("x", a)], request_id="large")
        same(s.next(60).as_numpy("x"), a)


def large_strings():
    a = np.array([b"x" * (8 << 20), b"", b"y" * (8 << 20)], dtype=np.object_)
    same(client.infer(ECHO, [tensor("x", a)]).as_numpy("x"), a)


def compressed():
    a = np.zeros(1 << 20, np.int16)
    same(client.infer(ECHO, [tensor("x", a)], compression_algorithm="gzip").as_numpy("x"), a)


def parameters():
    given = {"text": "a", "yes": True, "no": False, "many": -(2**63), "part": 0.1}
    m = client.infer(ECHO, [tensor("x", EDGES["INT8"])], parameters=given).get_response()
    kinds = {str: "string_param", bool: "bool_param", int: "int64_param", float: "double_param"}
    for name, value in given.items():
        equal(parameter(m, name), (value, kinds[type(value)]))
    equal(parameter(m, "processed"), (True, "bool_param"))


def parameters_of_tensors():
    r = pb.ModelInferRequest(model_name=ECHO, raw_input_contents=[b"\x01"])
    p = r.inputs.add(name="x", datatype="INT8", shape=[1]).parameters
    p["b"].bool_param, p["i"].int64_param, p["s"].string_param, p["d"].double_param, p["u"].uint64_param = True, -5, "é", 0.5, 2**64 - 1
    r.parameters["u"].uint64_param = 2**64 - 1
    m = stub.ModelInfer(r)
    equal(dict(m.outputs[0].parameters), dict(p))
    equal(parameter(m, "u"), (2**64 - 1, "uint64_param"))


def empty_parameters():
    r = pb.ModelInferRequest(model_name=ECHO, raw_input_contents=[b"\x01"])
    r.inputs.add(name="x", datatype="INT8", shape=[1]).parameters["k"].SetInParent()
    no(r, "INVALID_ARGUMENT", "Parameter 'k' has no value")


def asked_outputs():
    both = [tensor("a", EDGES["INT8"]), tensor("b", EDGES["FP32"])]
    for names in (["b"], ["b", "a"]):
        r = client.infer(ECHO, both, outputs=[triton.InferRequestedOutput(n) for n in names])
        equal([t.name for t in r.get_response().outputs], names)
        same(r.as_numpy("b"), EDGES["FP32"])


def no(message, code, *pieces):
    try:
        stub.ModelInfer(message)
    except grpc.RpcError as e:
        equal(e.code().name, code)
        for piece in pieces:
            assert piece in e.details(), f"no {piece!r} in {e.details()!r}"
        return
    raise AssertionError(f"it was answered: {message}")


def lengths_that_lie():
    def raw(datatype, shape, data):
        r = pb.ModelInferRequest(model_name=ECHO, raw_input_contents=[data])
        r.inputs.add(name="x", datatype=datatype, shape=shape)
        return r

    for r, text in [
        (raw("INT32", [2], b"abc"), "Raw input length must be a multiple of 4"),
        (raw("INT32", [2], b"abcd"), "Raw input element count for 'x' does not match expected size, expected 2 elements, got 1 elements"),
        (raw("INT32", [-1], b"abcd"), "Shape contains negative dimension: -1"),
        (raw("INT32", [2**40, 2**40], b"abcd"), "Overflow occurred while calculating element count"),
        (raw("BYTES", [1], b"\x05\x00\x00\x00abc"), "Invalid length-prefixed BYTES input for 'x', length exceeds raw input size"),
        (raw("BYTES", [1], b"\x01\x00\x00\x00abc"), "Invalid length-prefixed BYTES input for 'x'"),
        (raw("BYTES", [2], framed(b"abc")), "Raw input element count for 'x' does not match expected size, expected 2 elements, got 1 elements"),
        (raw("FP8", [1], b"a"), "Invalid data type"),
    ]:
        no(r, "INVALID_ARGUMENT", "Failed to parse request:", text)
    for field, values, datatype in ("int_contents", [300], "INT8"), ("uint_contents", [70000], "UINT16"), ("int_contents", [1, 2], "INT32"):
        r = pb.ModelInferRequest(model_name=ECHO)
        getattr(r.inputs.add(name="x", datatype=datatype, shape=[1]).contents, field).extend(values)
        no(r, "INVALID_ARGUMENT", "Failed to parse request:")
    r = pb.ModelInferRequest(model_name=ECHO)
    r.inputs.add(name="x", datatype="INT32", shape=[3]).contents.int_contents.append(1)
    no(r, "INVALID_ARGUMENT", "shape implies 3 elements but data has 1")


def no_data():
    r = pb.ModelInferRequest(model_name=ECHO)
    r.inputs.add(name="x", datatype="INT32", shape=[1])
    no(r, "INVALID_ARGUMENT", "unable to find data for input tensor 'x'")


def failing_workers():
    x = [tensor("x", EDGES["INT32"])]
    for switch, pieces in {"malformed_response": ["missing field", "data_type"], "data_mismatch": ["shape implies"], "raise_exception": []}.items():
        with refused("INTERNAL", *pieces):
            client.infer(ECHO, x, parameters={switch: True})
        with Stream() as s:
            s.ask(ECHO, x, request_id="bad", parameters={switch: True})
            try:
                s.next()
            except triton.InferenceServerException as e:
                said(e, None, *pieces)
            else:
                raise AssertionError(switch)
            s.ask(ECHO, x, request_id="good")
            equal(s.next().get_response().id, "good")


def several_responses():
    x = [tensor("x", EDGES["INT32"])]
    with refused("INTERNAL", "Multiple responses in non-streaming mode"):
        client.infer(ECHO, x, parameters={"repeat": 2})
    with refused("INTERNAL", "No response received"):
        client.infer(ECHO, x, parameters={"repeat": 0})
    for n in 0, 1, 2, 50:
        with Stream() as s:
            s.ask(ECHO, x, request_id="r", enable_empty_final_response=True, parameters={"repeat": n})
            for _ in range(n):
                r = s.next()
                assert not final(r)
                same(r.as_numpy("x"), EDGES["INT32"])
            r = s.next()
            equal((final(r), r.get_response().id, len(r.get_response().outputs)), (True, "r", 0))


def many_at_once():
    answers = queue.Queue()
    for i in range(200):
        client.async_infer(ECHO, [tensor("x", np.full(1000, i))], lambda result, error: answers.put((result, error)), request_id=str(i))
    for _ in range(200):
        result, error = answers.get(timeout=30)
        assert error is None, error
        same(result.as_numpy("x"), np.full(1000, int(result.get_response().id)))


def many_on_one_stream():
    with Stream() as s:
        for i in range(200):
            s.ask(ECHO, [tensor("x", np.full(1000, i))], request_id=str(i))
        got = set()
        for _ in range(200):
            r = s.next()
            got.add(r.get_response().id)
            same(r.as_numpy("x"), np.full(1000, int(r.get_response().id)))
        equal(len(got), 200)


def resident():
    with open(f"/proc/{os.environ['DYNAGO_PID']}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))


def who_does_not_read():
    """A client that asks for much and reads nothing costs little, and stops nobody."""
    channel, held = grpc.insecure_channel(GRPC, LIMITS), threading.Event()

    def requests():
        for i in range(20):
            r = pb.ModelInferRequest(model_name=ECHO, id=str(i), raw_input_contents=[bytes(1 << 20)])
            r.inputs.add(name="x", datatype="UINT8", shape=[1 << 20])
            r.parameters["repeat"].int64_param = 1_000_000
            yield r
        held.wait()

    before = resident()
    answers = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(requests())
    next(answers)
    until("all are answered", lambda: running() == 20)
    for _ in range(100):
        same(client.infer(ECHO, [tensor("x", EDGES["INT64"])]).as_numpy("x"), EDGES["INT64"])
    assert resident() - before < 256 << 20, f"{before >> 20} MB before, {resident() >> 20} MB now"
    answers.cancel()
    held.set()
    channel.close()
    until_idle()


def asyncio_too():
    async def main():
        async with triton.aio.InferenceServerClient(GRPC) as c:
            got = await asyncio.gather(*(c.infer(ECHO, [tensor("x", a)]) for a in EDGES.values()))
            for r, a in zip(got, EDGES.values()):
                same(r.as_numpy("x"), a)

    asyncio.run(main())


def metadata_and_config():
    m = client.get_model_metadata(ECHO)
    equal([(t.name, t.datatype, list(t.shape)) for t in m.inputs], [("input", "BYTES", [-1]), ("optional_input", "INT32", [-1])])
    equal([(t.name, t.datatype, list(t.shape)) for t in m.outputs], [("dummy_output", "BYTES", [-1])])
    equal(list(m.versions), ["1"])
    c = client.get_model_config(ECHO).config
    equal([(t.name, model_config_pb2.DataType.Name(t.data_type), list(t.dims), t.optional) for t in c.input],
          [("input", "TYPE_STRING", [-1], False), ("optional_input", "TYPE_INT32", [-1], True)])
    assert c.model_transaction_policy.decoupled


def dropped():
    """A stream that is dropped ends a call that had much to say yet."""
    with Stream() as s:
        s.ask(ECHO, [tensor("x", EDGES["INT8"])], parameters={"repeat": 2**40})
        for _ in range(100):
            assert not final(s.next())
    until_idle()
    assert metric("dynamo_frontend_model_cancellation_total", endpoint="tensor", request_type="stream") >= 1


def ready():
    assert client.is_model_ready(ECHO)
    equal([(m.name, m.state) for m in client.get_model_repository_index().models], [(ECHO, "READY")])


def statistics():
    (before,) = client.get_inference_statistics(ECHO).model_stats
    client.infer(ECHO, [tensor("x", EDGES["INT8"])])
    (after,) = client.get_inference_statistics(ECHO).model_stats
    equal(after.inference_stats.success.count - before.inference_stats.success.count, 1)
    assert metric("dynamo_frontend_requests_total", endpoint="tensor", request_type="unary", status="success") > 0
    assert metric("dynamo_frontend_requests_total", endpoint="tensor", request_type="stream", status="success") > 0
    assert metric("dynamo_frontend_requests_total", endpoint="tensor", status="error", error_type="internal") > 0


run(
    ready, metadata_and_config, every_datatype, every_datatype_typed, halves_are_raw, empty_and_scalar, strings_of_all_kinds,
    sixty_four_megabytes, large_strings, compressed, parameters, parameters_of_tensors, empty_parameters, asked_outputs,
    lengths_that_lie, no_data, failing_workers, several_responses, many_at_once, many_on_one_stream, who_does_not_read, asyncio_too, statistics, dropped,
)
