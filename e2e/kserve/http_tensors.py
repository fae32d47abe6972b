"""The REST form of the protocol, for models of tensors."""

import json
import os

import ml_dtypes
import numpy as np
import tritonclient.http as triton

from cases import equal, refused, run
from http_client import client, post, tensor

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
    "BF16": np.array([1.5, -0.0, 3], dtype=ml_dtypes.bfloat16),
    "FP32": np.array([1.1, -0.0, 3e38], dtype=np.float32),
    "FP64": np.array([1.1, 5e-324, -1e308], dtype=np.float64),
    "BYTES": np.array(["", "plain", "東京 \"quoted\" \n"], dtype=np.object_),
}
HALVES = "FP16", "BF16"


def same(got, want):
    equal(got.shape, want.shape)
    if want.dtype == np.object_:
        equal([v.decode() if isinstance(v, bytes) else v for v in got.reshape(-1)], [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in want.reshape(-1)])
    else:
        equal((got.dtype, got.tobytes()), (want.dtype, want.tobytes()))


def every_datatype():
    for datatype, array in EDGES.items():
        for a in array, array.reshape(3, 1):
            for given in True, False:
                for wanted in True, False:
                    if datatype in HALVES and not (given and wanted):
                        continue
                    r = client.infer(ECHO, [tensor("x", a, given)], outputs=[triton.InferRequestedOutput("x", binary_data=wanted)])
                    same(r.as_numpy("x"), a)
                    equal(r.get_output("x")["datatype"], datatype)


def halves_are_binary():
    for datatype in HALVES:
        status, _, answer = post(f"/v2/models/{ECHO}/infer", {"inputs": [{"name": "x", "shape": [1], "datatype": datatype, "data": [1]}]})
        equal(status, 400)
        assert datatype in json.loads(answer)["error"], answer
    with refused("400", "FP16"):
        client.infer(ECHO, [tensor("x", EDGES["FP16"])], outputs=[triton.InferRequestedOutput("x", binary_data=False)])


def not_utf8():
    a = np.array([b"", b"\xff\x00", bytes(range(256))], dtype=np.object_)
    equal(client.infer(ECHO, [tensor("x", a)]).as_numpy("x").tolist(), a.tolist())


def mixed_forms():
    r = client.infer(ECHO, [tensor("a", EDGES["FP32"]), tensor("b", EDGES["INT64"], False), tensor("c", EDGES["FP16"])], outputs=[
        triton.InferRequestedOutput("a", binary_data=False), triton.InferRequestedOutput("b", binary_data=True), triton.InferRequestedOutput("c", binary_data=True),
    ])
    for name, datatype in ("a", "FP32"), ("b", "INT64"), ("c", "FP16"):
        same(r.as_numpy(name), EDGES[datatype])


def nested():
    status, _, answer = post(f"/v2/models/{ECHO}/infer", {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "INT32", "data": [[1, 2, 3], [4, 5, 6]]}]})
    equal((status, json.loads(answer)["outputs"][0]["data"]), (200, [1, 2, 3, 4, 5, 6]))
    for data in [[1, 2, 3], [4, 5]], [[1, 2, 3]], [[[1, 2, 3]], [[4, 5, 6]]], [1, 2, 3, 4, 5, [6]]:
        equal(post(f"/v2/models/{ECHO}/infer", {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "INT32", "data": data}]})[0], 400)


def numbers_that_do_not_fit():
    for datatype, value in ("UINT8", 256), ("INT8", -129), ("UINT64", 2**64), ("INT64", 2**63), ("INT32", 1.5), ("BOOL", 2), ("FP32", "1"), ("BYTES", 1), ("UINT16", -1):
        status, _, answer = post(f"/v2/models/{ECHO}/infer", {"inputs": [{"name": "x", "shape": [1], "datatype": datatype, "data": [value]}]})
        equal((datatype, value, status), (datatype, value, 400))
        assert json.loads(answer)["error"], answer


def sixty_four_megabytes():
    a = np.arange(16 << 20, dtype=np.float32)
    same(client.infer(ECHO, [tensor("x", a)]).as_numpy("x"), a)


def raw_bytes_alone():
    """A body without a header is the data of the one input that the model wants, a text without its length."""
    status, headers, body = post(f"/v2/models/{ECHO}/infer", b"hello", Inference_Header_Content_Length="0", Content_Type="application/octet-stream")
    equal((status, headers["Content-Type"]), (200, "application/octet-stream"))
    n = int(headers["Inference-Header-Content-Length"])
    equal((json.loads(body[:n])["outputs"][0]["name"], body[n:]), ("input", b"\x05\x00\x00\x00hello"))


def parameters():
    m = client.infer(ECHO, [tensor("x", EDGES["INT8"])], parameters={"text": "a", "yes": True, "many": -(2**53), "part": 0.5}).get_response()
    for name, value in {"text": "a", "yes": True, "many": -(2**53), "part": 0.5, "processed": True}.items():
        equal((name, m["parameters"][name]), (name, value))


def failing_workers():
    for switch, piece in {"malformed_response": "data_type", "data_mismatch": "shape implies", "raise_exception": ""}.items():
        with refused("500", piece):
            client.infer(ECHO, [tensor("x", EDGES["INT8"])], parameters={switch: True})


def metadata_and_config():
    m = client.get_model_metadata(ECHO)
    equal([(t["name"], t["datatype"], t["shape"]) for t in m["inputs"]], [("input", "BYTES", [-1]), ("optional_input", "INT32", [-1])])
    assert client.get_model_config(ECHO)["model_transaction_policy"]["decoupled"] is True


run(
    every_datatype, halves_are_binary, not_utf8, mixed_forms, nested, numbers_that_do_not_fit, sixty_four_megabytes, raw_bytes_alone,
    parameters, failing_workers, metadata_and_config,
)
