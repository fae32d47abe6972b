"""A server with a certificate, over gRPC and HTTP."""

import os

import gevent.ssl
import tritonclient.http

import http_client
from cases import GRPC, HTTP, MODEL, run
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


def over_http():
    def trusting(*_, **__):
        return gevent.ssl.create_default_context(cafile=CERTIFICATE)

    c = tritonclient.http.InferenceServerClient(HTTP, ssl=True, ssl_context_factory=trusting)
    assert c.is_server_live() and c.is_model_ready(MODEL)
    assert http_client.texts(c.infer(MODEL, http_client.prompt("hello"), parameters={"max_tokens": 4}))[0]
    c.close()
    c = tritonclient.http.InferenceServerClient(HTTP, ssl=True)
    try:
        c.is_server_live()
    except Exception as e:  # of the library below the client
        assert "CERTIFICATE_VERIFY_FAILED" in str(e), e
    else:
        raise AssertionError("a certificate that nobody signed was taken")


run(with_tls, without, of_somebody_else, over_http)
