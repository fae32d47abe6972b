"""Models of text, one response for each request."""

import json
import queue

import numpy as np
import tritonclient.grpc as triton

from cases import MODEL, completion, equal, refused, run
from grpc_client import client, parameter, prompt, strings, stub, texts, typed

GREEDY = {"temperature": 0.0, "max_tokens": 16}


def one_answer():
    r = client.infer(MODEL, prompt("Which rivers cross Paris?"), request_id="job-7", parameters=GREEDY)
    m = r.get_response()
    equal((m.model_name, m.model_version, m.id), (MODEL, "1", "job-7"))
    equal([(t.name, t.datatype, list(t.shape)) for t in m.outputs], [("text_output", "BYTES", [1]), ("finish_reason", "BYTES", [1])])
    equal(len(m.raw_output_contents), 2)
    assert not any(t.HasField("contents") for t in m.outputs), m
    equal(texts(r), [completion("Which rivers cross Paris?")])
    equal(texts(r, "finish_reason"), ["length"])
    equal(parameter(m, "prompt_tokens")[1], "int64_param")
    equal(parameter(m, "completion_tokens"), (16, "int64_param"))
    equal("triton_final_response" in m.parameters, False)


def no_id():
    equal(client.infer(MODEL, prompt("hello"), parameters=GREEDY).get_response().id, "")


def typed_in_typed_out():
    r = typed(b"Which rivers cross Paris?", id="1")
    r.parameters["max_tokens"].int64_param = 16
    r.parameters["temperature"].double_param = 0
    m = stub.ModelInfer(r)
    equal(len(m.raw_output_contents), 0)
    equal(list(m.outputs[0].contents.bytes_contents), [completion("Which rivers cross Paris?").encode()])
    equal(list(m.outputs[1].contents.bytes_contents), [b"length"])


def either_shape():
    for shape in [1], [1, 1]:
        i = triton.InferInput("text_input", shape, "BYTES").set_data_from_numpy(np.array([b"hello"], dtype=np.object_).reshape(shape))
        assert texts(client.infer(MODEL, [i], parameters=GREEDY))[0]


def the_model_of_a_version():
    equal(client.infer(MODEL, prompt("hello"), model_version="9", parameters=GREEDY).get_response().model_version, "1")


def streaming_false():
    for name in "streaming", "stream":
        assert texts(client.infer(MODEL, prompt("hello", **{name: False}), parameters=GREEDY))[0]


def not_utf8():
    """Each bad byte is one U+FFFD, over HTTP as over gRPC."""
    bad = triton.InferInput("text_input", [1], "BYTES").set_data_from_numpy(np.array([b"a\xff\xfeb\x00c"], dtype=np.object_))
    equal(texts(client.infer(MODEL, [bad], parameters=GREEDY)), texts(client.infer(MODEL, prompt("a\ufffd\ufffdb\ufffdc"), parameters=GREEDY)))


def many_scripts():
    text = "Ünïcödé 東京 🚀 \n\t “quoted”"
    equal(texts(client.infer(MODEL, prompt(text), parameters=GREEDY)), [completion(text)])


def asynchronous():
    answers = queue.Queue()
    for i in range(20):
        client.async_infer(MODEL, prompt(f"Count to {i}."), lambda result, error: answers.put((result, error)), request_id=str(i), parameters=GREEDY)
    got = {}
    for _ in range(20):
        result, error = answers.get(timeout=30)
        assert error is None, error
        got[result.get_response().id] = texts(result)
    equal(sorted(got, key=int), [str(i) for i in range(20)])
    equal(got["7"], [completion("Count to 7.")])


def asked_outputs():
    def outputs(*names):
        r = client.infer(MODEL, prompt("hello"), outputs=[triton.InferRequestedOutput(n) for n in names], parameters=GREEDY)
        assert texts(r, names[0]), names
        equal(len(r.get_response().raw_output_contents), len(names))
        return [t.name for t in r.get_response().outputs]

    for names in (["finish_reason"], ["text_output"], ["finish_reason", "text_output"]):
        equal(outputs(*names), names)
    with refused("INVALID_ARGUMENT", "no_such"):
        outputs("no_such")


def sampled(**parameters):
    return texts(client.infer(MODEL, prompt("Which rivers cross Paris?"), parameters=parameters))[0]


def parameters_sample():
    long = completion("Which rivers cross Paris?")
    for most in 5, 5.0, "5":
        equal(sampled(temperature=0, max_tokens=most), completion("Which rivers cross Paris?", max_tokens=5))
    stop = long.split()[3]
    equal(sampled(**GREEDY, stop=stop), completion("Which rivers cross Paris?", stop=stop))
    equal(sampled(**GREEDY, stop=json.dumps([stop, "xyz"])), completion("Which rivers cross Paris?", stop=[stop]))
    equal(sampled(temperature=1, seed=7, max_tokens=9), completion("Which rivers cross Paris?", temperature=1, seed=7, max_tokens=9))
    sampled(**GREEDY, top_p=0.9, top_k=40, min_p="0.1", presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1, min_tokens=1, ignore_eos=True)


def parameters_out_of_range():
    for name, value in {"max_tokens": -1, "temperature": 9.0, "top_p": 1.5, "presence_penalty": 3, "n": 0, "seed": "x", "ignore_eos": "maybe"}.items():
        with refused("INVALID_ARGUMENT", "Failed to parse request:"):
            sampled(**{name: value})


def unknown_parameters():
    equal(sampled(**GREEDY, colour="red", deep=True), completion("Which rivers cross Paris?"))


def sampling_parameters():
    body = json.dumps({"temperature": 0, "max_tokens": 6, "top_k": 5})
    r = client.infer(MODEL, [*prompt("Which rivers cross Paris?"), strings("sampling_parameters", body)])
    equal(texts(r), [completion("Which rivers cross Paris?", max_tokens=6)])
    r = client.infer(MODEL, [*prompt("Which rivers cross Paris?"), strings("sampling_parameters", body)], parameters={"max_tokens": 3})
    equal(texts(r), [completion("Which rivers cross Paris?", max_tokens=3)])
    with refused("INVALID_ARGUMENT", "sampling_parameters"):
        client.infer(MODEL, [*prompt("hello"), strings("sampling_parameters", "{")])


def counted():
    r = client.infer(MODEL, prompt("hello", return_num_input_tokens=True, return_num_output_tokens=True, return_finish_reason=True), parameters=GREEDY)
    m = r.get_response()
    equal([t.name for t in m.outputs][:2], ["text_output", "finish_reason"])
    equal(r.as_numpy("num_output_tokens").dtype, np.uint32)
    equal(r.as_numpy("num_output_tokens").tolist(), [16])
    equal(r.as_numpy("num_input_tokens").tolist(), [parameter(m, "prompt_tokens")[0]])


def echoed():
    r = client.infer(MODEL, prompt("hello", exclude_input_in_output=False), parameters=GREEDY)
    equal(texts(r), ["hello" + completion("hello")])


def several_choices():
    r = client.infer(MODEL, prompt("Which rivers cross Paris?"), parameters={"n": 3, "temperature": 1.0, "max_tokens": 8})
    equal([list(t.shape) for t in r.get_response().outputs], [[3], [3]])
    equal(len(texts(r)), 3)
    equal(texts(r, "finish_reason"), ["length"] * 3)


def extension():
    asked = {"extra_fields": ["worker_id", "timing"], "agent_hints": {"priority": 3}}
    m = client.infer(MODEL, prompt("hello"), parameters={**GREEDY, "nvext": json.dumps(asked)}).get_response()
    told = json.loads(parameter(m, "nvext")[0])
    assert told["worker_id"] and told["timing"], told
    m = client.infer(MODEL, prompt("hello"), parameters=GREEDY).get_response()
    assert "nvext" not in m.parameters, m
    for bad in "{", '{"agent_hints": {"priority": "high"}}':
        with refused("INVALID_ARGUMENT", "invalid nvext:"):
            client.infer(MODEL, prompt("hello"), parameters={"nvext": bad})


def pinned():
    told = json.loads(parameter(client.infer(MODEL, prompt("hello"), parameters={**GREEDY, "nvext": '{"extra_fields": ["worker_id"]}'}).get_response(), "nvext")[0])
    worker = told["worker_id"]["decode_worker_id"]
    for _ in range(4):
        m = client.infer(MODEL, prompt("Another"), headers={"x-dynamo-worker-instance-id": str(worker)}, parameters={**GREEDY, "nvext": '{"extra_fields": ["worker_id"]}'}).get_response()
        equal(json.loads(parameter(m, "nvext")[0])["worker_id"]["decode_worker_id"], worker)
    with refused("UNAVAILABLE", "model temporarily unavailable"):
        client.infer(MODEL, prompt("hello"), headers={"x-dynamo-worker-instance-id": "4242"}, parameters=GREEDY)


def what_triton_reserves():
    """None of it changes the answer, and Triton's priority is none of ours."""
    r = client.infer(MODEL, prompt("Which rivers cross Paris?"), priority=1, timeout=60_000_000, sequence_id="talk", sequence_start=True, sequence_end=True, parameters=GREEDY)
    equal(texts(r), [completion("Which rivers cross Paris?")])


def too_late():
    with refused("DEADLINE_EXCEEDED"):
        client.infer(MODEL, prompt("count slowly"), timeout=100_000)
    with refused("DEADLINE_EXCEEDED"):
        client.infer(MODEL, prompt("count slowly"), client_timeout=0.3)


def compressed():
    text = "All work and no play. " * 500
    equal(texts(client.infer(MODEL, prompt(text), compression_algorithm="gzip", parameters=GREEDY)), [completion(text)])


def workers(n, **options):
    """Which workers answer different prompts."""
    seen = set()
    for i in range(n):
        m = client.infer(MODEL, prompt(f"{i} is a number."), parameters={**GREEDY, "nvext": '{"extra_fields": ["worker_id"]}'}, **options).get_response()
        seen.add(json.loads(parameter(m, "nvext")[0])["worker_id"]["decode_worker_id"])
    return seen


def who_asks():
    """Metadata names the session, as headers do over HTTP, or else the sequence does; a session has one worker."""
    others = {
        "x-dynamo-request-priority": "5", "x-dynamo-request-strict-priority": "1", "x-request-id": "r-1", "x-tenant-id": "t",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-dynamo-meta-tag": "blue", "x-dynamo-meta-bytes-bin": b"x",
    }
    assert len(workers(12)) > 1
    equal(len(workers(12, headers={"x-dynamo-session-id": "fix-the-tests", **others})), 1)
    equal(len(workers(12, sequence_id="talk")), 1)
    equal(len(workers(12, sequence_id=77)), 1)


def much_metadata():
    with refused("INVALID_ARGUMENT", "metadata headers exceed the limit of 64 entries"):
        client.infer(MODEL, prompt("hello"), headers={f"x-dynamo-meta-{i}": "v" for i in range(65)})
    client.infer(MODEL, prompt("hello"), headers={f"x-dynamo-meta-{i}": "v" for i in range(64)}, parameters=GREEDY)


run(
    one_answer, no_id, typed_in_typed_out, either_shape, the_model_of_a_version, streaming_false, not_utf8, many_scripts, asynchronous,
    asked_outputs, parameters_sample, parameters_out_of_range, unknown_parameters, sampling_parameters, counted, echoed,
    several_choices, extension, pinned, what_triton_reserves, too_late, compressed, who_asks, much_metadata,
)
