"""Models of tensors, in front of a worker that somebody else wrote: what it has
registered, and calls of it that have no end."""

import os
import queue

import ml_dtypes
import numpy as np

from cases import MODEL, equal, metric, run, running, said, until, until_idle
from grpc_client import Stream, client, final, model_config_pb2, tensor, triton

CONFIG = bytes.fromhex(os.environ["DYNAGO_CONFIG"])
PIXELS = np.zeros((2, 3, 4, 4), np.float16)


def config():
    """It comes back as it was, fields that nobody here knows included."""
    c = client.get_model_config(MODEL).config
    want = model_config_pb2.ModelConfig.FromString(CONFIG)
    equal(c.SerializeToString(deterministic=True), want.SerializeToString(deterministic=True))
    equal((c.name, c.max_batch_size, c.parameters["threads"].string_value), ("inner-name", 8, "4"))
    equal(len(c.SerializeToString()), len(CONFIG))


def metadata():
    """Types have KServe's names, shapes the batch before them."""
    m = client.get_model_metadata(MODEL)
    equal((m.name, m.platform, list(m.versions)), ("inner-name", "onnxruntime_onnx", ["1"]))
    equal([(t.name, t.datatype, list(t.shape)) for t in m.inputs], [("pixels", "FP16", [-1, 3, -1, -1]), ("caption", "BYTES", [-1, 1])])
    equal([(t.name, t.datatype, list(t.shape)) for t in m.outputs], [("scores", "BF16", [-1, 1000])])


def answered():
    r = client.infer(MODEL, [tensor("pixels", PIXELS), tensor("scores", np.ones(3, ml_dtypes.bfloat16))], request_id="1")
    equal((r.as_numpy("pixels").tobytes(), r.as_numpy("scores").tolist()), (PIXELS.tobytes(), [1, 1, 1]))
    with Stream() as s:
        s.ask(MODEL, [tensor("pixels", PIXELS)], request_id="2", enable_empty_final_response=True)
        equal([(r.get_response().id, final(r)) for r in (s.next(), s.next())], [("2", False), ("2", True)])


def cancelled():
    """Unary after half a second, and by a stream that is dropped."""
    hang = {"parameters": {"hang": True}}
    got = queue.Queue()
    call = client.async_infer(MODEL, [tensor("pixels", PIXELS)], callback=lambda result, error: got.put(error), **hang)
    until("it is answered", lambda: running() == 1)
    try:
        got.get(timeout=0.5)
    except queue.Empty:
        call.cancel()
    said(got.get(timeout=10), "CANCELLED")
    until_idle()
    s = Stream()
    s.ask(MODEL, [tensor("pixels", PIXELS)], **hang)
    s.ask(MODEL, [tensor("pixels", PIXELS)], **hang)
    until("they are answered", lambda: running() == 2)
    s.stop(cancel_requests=True)
    until_idle()
    for kind, n in ("unary", 1), ("stream", 2):
        until("they are counted", lambda: metric("dynamo_frontend_model_cancellation_total", endpoint="tensor", request_type=kind) == n)


def out_of_time():
    try:
        client.infer(MODEL, [tensor("pixels", PIXELS)], client_timeout=0.3, parameters={"hang": True})
    except triton.InferenceServerException as e:
        said(e, "DEADLINE_EXCEEDED")
    else:
        raise AssertionError("it was answered")
    until_idle()


run(config, metadata, answered, cancelled, out_of_time)
