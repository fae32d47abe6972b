"""ModelStreamInfer: any number of requests on one stream."""

import threading

import grpc
import tritonclient.grpc as triton

from cases import GRPC, MODEL, completion, equal, metric, page, refused, run, running, said, until, until_idle
from grpc_client import LIMITS, Stream, client, final, parameter, pb, prompt, service_pb2_grpc, stub, texts, typed

GREEDY = {"temperature": 0.0, "max_tokens": 16}
ask = {"parameters": GREEDY}


def deltas(s, empty):
    """Reads a streamed answer to its end, which must be an empty response or a finish reason."""
    got, ids = [], set()
    while True:
        r = s.next()
        m = r.get_response()
        ids.add(m.id)
        equal((m.model_name, m.model_version), (MODEL, "1"))
        if final(r):
            equal((len(m.outputs), len(m.raw_output_contents)), (0, 0))
            assert empty, "an empty response that nobody asked for"
            return got, ids
        equal([list(t.shape) for t in m.outputs], [[1], [1]])
        equal(len(m.raw_output_contents), 2)
        got.append((texts(r)[0], texts(r, "finish_reason")[0]))
        if not empty and got[-1][1]:
            return got, ids


def each_delta():
    for empty in False, True:
        with Stream() as s:
            s.ask(MODEL, prompt("Which rivers cross Paris?", streaming=True), request_id="a", enable_empty_final_response=empty, **ask)
            got, ids = deltas(s, empty)
            equal(ids, {"a"})
            assert len(got) > 2, got
            equal("".join(t for t, _ in got), completion("Which rivers cross Paris?"))
            equal([f for _, f in got if f], ["length"])
            s.stop()
            assert s.responses.empty(), s.responses.get()


def both_names():
    for name in "stream", "streaming":
        with Stream() as s:
            s.ask(MODEL, prompt("count slowly", **{name: True}), **ask)
            assert not texts(s.next(), "finish_reason")[0]


def folded():
    """Without streaming there is one response, and it is the last."""
    with Stream() as s:
        for i in "0", "1":
            s.ask(MODEL, prompt("Count to " + i), request_id=i, enable_empty_final_response=i == "1", **ask)
        for i in "0", "1":
            r = s.next()
            equal((r.get_response().id, final(r)), (i, True))
            equal(texts(r), [completion("Count to " + i)])
        s.stop()
        assert s.responses.empty(), s.responses.get()


def in_order():
    """Folded answers keep the order of their requests, though a later one is there first."""
    with Stream() as s:
        s.ask(MODEL, prompt("come late"), request_id="late")
        s.ask(MODEL, prompt("hello"), request_id="soon", **ask)
        s.ask(MODEL, prompt("hello", streaming=True), request_id="streamed", enable_empty_final_response=True, **ask)
        seen, ended = [], False
        while len(seen) < 2 or not ended:
            r = s.next()
            m = r.get_response()
            if m.id == "streamed":
                assert not seen, "a streamed answer waited for a folded one"
                ended = ended or final(r)
            else:
                seen.append(m.id)
        equal(seen, ["late", "soon"])


def several_in_flight():
    with Stream() as s:
        n = 40
        for i in range(n):
            s.ask(MODEL, prompt("count slowly", streaming=True), request_id=str(i), enable_empty_final_response=True)
        text, ended, begun = {}, set(), 0
        while len(ended) < n:
            r = s.next()
            i = r.get_response().id
            assert i not in ended, f"something comes after the end of {i}"
            if final(r):
                begun = begun or len(text)
                ended.add(i)
            else:
                text[i] = text.get(i, "") + texts(r)[0]
        equal(set(text.values()), {completion("count slowly", max_tokens=100)})
        assert begun > n // 2, f"when the first ended, {begun} had begun"


def more_than_may_run():
    """Requests beyond the limit wait, and all are answered."""
    with Stream() as s:
        n = 200
        for i in range(n):
            s.ask(MODEL, prompt("count slowly"), request_id=str(i), parameters={"max_tokens": 3})
        equal([s.next().get_response().id for _ in range(n)], [str(i) for i in range(n)])


def errors_in_the_stream():
    """Each error is that of one request; the stream goes on."""
    with Stream() as s:
        for model, inputs, text in [
            ("no/such", prompt("hello"), "Model 'no/such' not found"),
            (MODEL, [], "Missing required input: 'text_input'"),
            (MODEL, prompt("hello", nonsense=True), "Invalid input name: nonsense"),
            (MODEL, prompt("fail at once"), "Failed to generate completions:"),
            (MODEL, prompt("fail on the way"), "Failed to"),
        ]:
            for streaming in {}, {"streaming": True}:
                more = [i for name, v in streaming.items() for i in prompt("", **{name: v})[1:]]
                s.ask(model, [*inputs, *more], request_id="bad")
                error = None
                while error is None:  # a streamed answer may have begun
                    try:
                        s.next()
                    except triton.InferenceServerException as e:
                        error = e
                said(error, None, text)
        s.ask(MODEL, prompt("hello"), request_id="good", **ask)
        equal(s.next().get_response().id, "good")


def whose_error():
    """The message says which request it is about, and that nothing follows."""
    answers = stub.ModelStreamInfer(iter([typed(b"hello", model="no/such", id="17"), typed(b"hello", id="18")]))
    bad = next(answers)
    assert "Model 'no/such' not found" in bad.error_message, bad
    m = bad.infer_response
    equal((m.id, m.model_name, m.model_version, len(m.outputs)), ("17", "no/such", "1", 0))
    equal(parameter(m, "triton_final_response"), (True, "bool_param"))
    good = next(answers)
    equal((good.error_message, good.infer_response.id), ("", "18"))
    equal([t.name for t in good.infer_response.outputs], ["text_output", "finish_reason"])
    equal(list(answers), [])


def errors_as_statuses():
    """With this metadata the first error ends the stream."""
    for request, code, text in [
        (typed(b"hello", model="no/such"), "NOT_FOUND", "Model 'no/such' not found"),
        (pb.ModelInferRequest(model_name=MODEL), "INVALID_ARGUMENT", "Missing required input"),
        (typed(b"fail on the way"), "INTERNAL", "Failed to fold completions stream:"),
    ]:
        answers = stub.ModelStreamInfer(iter([request]), metadata=[("triton_grpc_error", "true")])
        try:
            got = list(answers)
        except grpc.RpcError as e:
            equal(e.code().name, code)
            assert text in e.details(), e.details()
        else:
            raise AssertionError(f"no status: {got}")
    s = Stream(headers={"triton_grpc_error": "true"})
    s.ask("no/such", prompt("hello"))
    with refused("NOT_FOUND"):
        s.next()
    s.stop()


def empty_final_of_another_type():
    r = typed(b"hello")
    r.parameters["triton_enable_empty_final_response"].string_param = "yes"
    (answer,) = stub.ModelStreamInfer(iter([r]))
    assert "triton_enable_empty_final_response" in answer.error_message, answer


def half_closed():
    """All that was asked is answered after the client has said that it asks no more."""
    s = Stream()
    for i in range(5):
        s.ask(MODEL, prompt("count slowly"), request_id=str(i), parameters={"max_tokens": 5})
    s.stop()
    equal([s.next().get_response().id for _ in range(5)], list("01234"))


def nothing_asked():
    equal(list(stub.ModelStreamInfer(iter([]))), [])


def dropped():
    """Who leaves stops the engines, and is counted."""
    left, cancelled = metric("dynamo_frontend_disconnected_clients"), metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions")
    s = Stream()
    for i in range(4):
        s.ask(MODEL, prompt("endlessly", streaming=True), request_id=str(i))
    until("four are answered", lambda: running() == 4)
    s.stop(cancel_requests=True)
    until_idle()
    until("they are counted", lambda: metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions", request_type="stream") >= 4)
    assert metric("dynamo_frontend_disconnected_clients") > left
    equal(metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions") - cancelled, 4)


def cut_off():
    """So does a connection that breaks."""
    channel = grpc.insecure_channel(GRPC, LIMITS)
    held = threading.Event()

    def requests():
        yield typed(b"endlessly")
        held.wait()

    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(requests())
    until("it is answered", lambda: running() == 1)
    assert call.is_active()
    channel.close()
    held.set()
    until_idle()


def cancelled_unary():
    """A call that is cancelled after half a second of an engine that never ends."""
    call = client.async_infer(MODEL, prompt("endlessly"), callback=lambda result, error: got.append(error))
    got = []
    until("it is answered", lambda: running() == 1)
    threading.Event().wait(0.5)
    call.cancel()
    until_idle()
    until("the client hears of it", lambda: got)
    said(got[0], "CANCELLED")
    until("it is counted", lambda: metric("dynamo_frontend_model_cancellation_total", endpoint="grpc_completions", request_type="unary") >= 1)


def out_of_time():
    """So is a stream whose time is over."""
    s = Stream(stream_timeout=0.3)
    s.ask(MODEL, prompt("endlessly", streaming=True))
    with refused("DEADLINE_EXCEEDED"):
        while True:
            s.next()
    s.stop(cancel_requests=True)
    until_idle()


def silent_clients():
    """Streams on which nobody says anything hold nobody up."""
    streams = [Stream(triton.InferenceServerClient(GRPC)) for _ in range(20)]
    with Stream() as s:
        s.ask(MODEL, prompt("hello"), **ask)
        assert texts(s.next())[0]
    for s in streams:
        s.stop()


def compressed():
    with Stream(compression_algorithm="gzip") as s:
        text = "All work and no play. " * 500
        s.ask(MODEL, prompt(text), **ask)
        equal(texts(s.next()), [completion(text)])


def nothing_is_left():
    until_idle()
    equal(metric("dynamo_frontend_inflight_requests"), 0)
    assert "dynamo_frontend" in page("/metrics")


run(
    each_delta, both_names, folded, in_order, several_in_flight, more_than_may_run, errors_in_the_stream, whose_error, errors_as_statuses,
    empty_final_of_another_type, half_closed, nothing_asked, dropped, cut_off, cancelled_unary, out_of_time, silent_clients,
    compressed, nothing_is_left,
)
