"""What the suites over HTTP share."""

import json
import urllib.error
import urllib.request

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import np_to_triton_dtype

from cases import HTTP, KEY, URL

client = triton.InferenceServerClient(HTTP, concurrency=16)


def tensor(name, array, binary=True):
    return triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)).set_data_from_numpy(array, binary_data=binary)


def strings(name, *values, binary=True):
    return tensor(name, np.array(values, dtype=np.object_), binary)


def prompt(text, binary=True, **flags):
    return [strings("text_input", text, binary=binary), *(tensor(k, np.array([v]), binary) for k, v in flags.items())]


def texts(result, name="text_output"):
    return [v.decode() if isinstance(v, bytes) else v for v in result.as_numpy(name).reshape(-1)]


def post(path, body, **headers):
    """Status, headers and body of a plain POST; the body may be an object, or bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})
    if KEY:
        request.add_header("Authorization", "Bearer " + KEY)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def events(body):
    """The data of each event of a stream."""
    return [json.loads(line.removeprefix("data:")) for line in body.decode().splitlines() if line.startswith("data:")]
