"""A server that is told to end while it answers."""

import os
import signal

from cases import MODEL, completion, equal, refused, run, running, until
from grpc_client import Stream, channel, client, final, prompt, texts, triton

health = channel.unary_unary("/grpc.health.v1.Health/Check")


def drained():
    """What was asked is answered to its end; nothing new is taken."""
    whole = completion("count slowly", max_tokens=100)
    with Stream() as s:
        s.ask(MODEL, prompt("count slowly", streaming=True), enable_empty_final_response=True)
        s.ask(MODEL, prompt("count slowly"), request_id="folded")
        until("they are answered", lambda: running() == 2)
        os.kill(int(os.environ["DYNAGO_PID"]), signal.SIGTERM)
        until("the server says that it is not ready", lambda: not client.is_server_ready())
        equal(health(b""), b"\x08\x02")
        assert client.is_server_live() and not client.is_model_ready(MODEL)
        with refused("UNAVAILABLE", "server is shutting down"):
            client.infer(MODEL, prompt("hello"))
        s.ask(MODEL, prompt("hello"), request_id="late")
        text, folded, late, ended = "", None, None, False
        while not (ended and folded and late):
            try:
                r = s.next()
            except triton.InferenceServerException as e:
                late = e
                continue
            if r.get_response().id == "folded":
                folded = texts(r)[0]
            elif final(r):
                ended = True
            else:
                text += texts(r)[0]
        assert "server is shutting down" in late.message(), late
        equal((text, folded), (whole, whole))
        s.stop()


run(drained)
