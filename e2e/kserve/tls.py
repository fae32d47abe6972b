"""A server whose gRPC port wants TLS."""

import os

from cases import GRPC, MODEL, run
from grpc_client import prompt, texts, triton

CERTIFICATE = os.environ["DYNAGO_CERTIFICATE"]


def with_tls():
    with triton.InferenceServerClient(GRPC, ssl=True, root_certificates=CERTIFICATE) as c:
        assert c.is_server_live()
        assert texts(c.infer(MODEL, prompt("hello"), parameters={"max_tokens": 4}))[0]


def without():
    with triton.InferenceServerClient(GRPC) as c:
        try:
            c.is_server_live(client_timeout=2)
        except triton.InferenceServerException as e:
            assert e.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"), e
        else:
            raise AssertionError("it was answered in clear text")


def of_somebody_else():
    with triton.InferenceServerClient(GRPC, ssl=True) as c:
        try:
            c.is_server_live(client_timeout=2)
        except triton.InferenceServerException as e:
            assert e.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"), e
        else:
            raise AssertionError("a certificate that nobody signed was taken")


run(with_tls, without, of_somebody_else)
