"""What is refused, and with which words. The client checks much by itself, so most of
it is sent with its stubs."""

import random

import grpc
import tritonclient.grpc as triton

from cases import GRPC, MODEL, equal, refused, run
from grpc_client import client, framed, pb, prompt, strings, stub, texts, typed

PARSE = "Failed to parse request:"


def no(message, code, *pieces):
    try:
        stub.ModelInfer(message)
    except grpc.RpcError as e:
        equal(e.code().name, code)
        for piece in pieces:
            assert piece in e.details(), f"no {piece!r} in {e.details()!r}"
        return
    raise AssertionError(f"it was answered: {message}")


def bad(inputs=(), raw=(), **more):
    """A request of inputs (name, datatype, shape, contents) and of raw contents."""
    r = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=list(raw), **more)
    for name, datatype, shape, contents in inputs:
        r.inputs.add(name=name, datatype=datatype, shape=shape, contents=contents)
    return r


def contents(**of):
    return pb.InferTensorContents(**of)


TEXT = ("text_input", "BYTES", [1], contents(bytes_contents=[b"hello"]))


def unknown_model():
    no(typed(b"hello", model="no/such"), "NOT_FOUND", "Model 'no/such' not found")
    # Who is not there is said before what is wrong with the request.
    no(pb.ModelInferRequest(model_name="no/such"), "NOT_FOUND", "Model 'no/such' not found")
    no(pb.ModelInferRequest(), "NOT_FOUND")


def no_inputs():
    no(bad(), "INVALID_ARGUMENT", PARSE, "Missing required input: 'text_input'")


def unknown_input():
    no(bad([TEXT, ("image", "BYTES", [1], contents(bytes_contents=[b"x"]))]), "INVALID_ARGUMENT", PARSE)
    no(bad([TEXT, ("prompt", "BYTES", [1], contents(bytes_contents=[b"x"]))]), "INVALID_ARGUMENT", PARSE,
       "Invalid input name: prompt, supported inputs are 'text_input', 'stream'")


def text_input():
    for case, text in [
        (("text_input", "INT32", [1], contents(int_contents=[1])), "Expected 'text_input' to be of type BYTES for string input, got"),
        (("text_input", "BYTES", [2], contents(bytes_contents=[b"a", b"b"])), "Expected 'text_input' to have shape [1], got"),
        (("text_input", "BYTES", [], contents(bytes_contents=[b"a"])), "Expected 'text_input' to have shape [1], got"),
        (("text_input", "BYTES", [1], contents(bytes_contents=[b"a", b"b"])), "'text_input'"),
    ]:
        no(bad([case]), "INVALID_ARGUMENT", PARSE, text)
    no(bad([("text_input", "BYTES", [1], None)], [b"abc"]), "INVALID_ARGUMENT", PARSE, "'text_input' raw input must be length-prefixed (>= 4 bytes)")
    no(bad([("text_input", "BYTES", [1], None)], [b"\x09\x00\x00\x00abc"]), "INVALID_ARGUMENT", PARSE, "text_input")
    no(bad([("text_input", "BYTES", [1], None)], [framed(b"a", b"b")]), "INVALID_ARGUMENT", PARSE, "text_input")


def empty_text():
    """It is a text, and no prompt, over HTTP as here."""
    with refused("INVALID_ARGUMENT", PARSE, "Prompt string cannot be empty"):
        client.infer(MODEL, prompt(""))


def stream_input():
    for case, text in [
        (("stream", "INT8", [1], contents(int_contents=[1])), "Expected 'stream' to be of type BOOL, got"),
        (("streaming", "BYTES", [1], contents(bytes_contents=[b"1"])), "Expected 'streaming' to be of type BOOL, got"),
        (("stream", "BOOL", [2], contents(bool_contents=[True, False])), "Expected 'stream' to have shape [1], got"),
    ]:
        no(bad([TEXT, case]), "INVALID_ARGUMENT", PARSE, text)
    no(bad([("text_input", "BYTES", [1], None), ("stream", "BOOL", [1], None)], [framed(b"a"), b""]), "INVALID_ARGUMENT", PARSE,
       "'stream' raw input must contain at least one byte")


def twice():
    no(bad([TEXT, TEXT]), "INVALID_ARGUMENT", PARSE, "text_input")


def both_forms():
    no(bad([TEXT], [framed(b"hello")]), "INVALID_ARGUMENT", PARSE, "text_input")


def no_data():
    no(bad([("text_input", "BYTES", [1], None)]), "INVALID_ARGUMENT", PARSE, "unable to find data for input tensor 'text_input'")


def raw_for_some():
    no(bad([("text_input", "BYTES", [1], None), ("stream", "BOOL", [1], None)], [framed(b"hello")]), "INVALID_ARGUMENT",
       "`raw_input_contents` must be used for all inputs")


def unknown_datatype():
    no(bad([("text_input", "TEXT", [1], contents(bytes_contents=[b"a"]))]), "INVALID_ARGUMENT", PARSE)


def impossible_shapes():
    no(bad([("text_input", "BYTES", [-1], contents(bytes_contents=[b"a"]))]), "INVALID_ARGUMENT", PARSE)
    no(bad([("text_input", "BYTES", [2**62, 2**62], contents(bytes_contents=[b"a"]))]), "INVALID_ARGUMENT", PARSE)


def empty_parameter():
    r = typed(b"hello")
    r.parameters["max_tokens"].SetInParent()
    no(r, "INVALID_ARGUMENT", "Parameter 'max_tokens' has no value")


def shared_memory():
    i = triton.InferInput("text_input", [1], "BYTES")
    i.set_shared_memory("region", 16)
    with refused("INVALID_ARGUMENT", "shared memory is not supported"):
        client.infer(MODEL, [i])
    o = triton.InferRequestedOutput("text_output")
    o.set_shared_memory("region", 16)
    with refused("INVALID_ARGUMENT", "shared memory is not supported"):
        client.infer(MODEL, prompt("hello"), outputs=[o])


def streaming_on_unary():
    for name in "stream", "streaming":
        with refused("INVALID_ARGUMENT", "Streaming is not supported for this endpoint"):
            client.infer(MODEL, prompt("hello", **{name: True}))


def too_long():
    with refused("INVALID_ARGUMENT", "context"):
        client.infer(MODEL, prompt("word " * 20_000))


def wrong_types_in_sampling():
    with refused("INVALID_ARGUMENT", "max_tokens"):
        client.infer(MODEL, [*prompt("hello"), strings("sampling_parameters", '{"max_tokens": "many"}')])


def logprobs():
    with refused("INVALID_ARGUMENT"):
        client.infer(MODEL, prompt("hello", return_logprobs=True))


def failing_engines():
    """By where the engine fails, and by what it says of it."""
    for text, code, pieces in [
        ("fail at once", "INTERNAL", ["Failed to generate completions:", "it broke"]),
        ("fail on the way", "INTERNAL", ["Failed to fold completions stream:", "it broke"]),
        ("refuse it", "INVALID_ARGUMENT", ["it cannot"]),
    ]:
        with refused(code, *pieces):
            client.infer(MODEL, prompt(text))


def not_our_protocol():
    """Bytes that are no message, and a method that is none."""
    channel = grpc.insecure_channel(GRPC)
    for method, code in ("ModelInfer", grpc.StatusCode.INTERNAL), ("ModelExplode", grpc.StatusCode.UNIMPLEMENTED):
        try:
            channel.unary_unary("/inference.GRPCInferenceService/" + method)(b"\xff\xff\xff")
        except grpc.RpcError as e:
            equal(e.code(), code)
        else:
            raise AssertionError(method + " was answered")
    channel.close()


def broken_messages():
    """Whatever bytes come, the client learns what is wrong with them, and the server goes on."""
    r = typed(b"hello", id="1")
    r.parameters["max_tokens"].int64_param = 2
    r.parameters["nvext"].string_param = '{"extra_fields": ["timing"]}'
    r.outputs.add(name="text_output")
    raw = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=[framed(b"hello"), b"\x00"])
    raw.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    raw.inputs.add(name="stream", datatype="BOOL", shape=[1])
    whole = [m.SerializeToString() for m in (r, raw)]
    random.seed(7)
    channel = grpc.insecure_channel(GRPC)
    infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")

    def broken():
        b = bytearray(random.choice(whole))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(b))
            match random.randrange(4):
                case 0:
                    b[at] = random.randrange(256)
                case 1:
                    b[at] ^= 1 << random.randrange(8)
                case 2:
                    del b[at:]
                    b += b"\x08"
                case 3:
                    b[at:at] = bytes(random.randrange(256) for _ in range(3))
        return bytes(b)

    codes = set()
    for call in [infer.future(broken()) for _ in range(1500)]:
        codes.add(call.code().name)
    assert codes <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL"} and "OK" in codes and "INVALID_ARGUMENT" in codes, codes
    for _ in range(50):
        answers = stream(iter([broken() for _ in range(10)]))
        try:
            list(answers)
        except grpc.RpcError:
            codes.add(answers.code().name)
    assert codes <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL"}, codes
    channel.close()


def unknown_compression():
    try:
        stub.ModelInfer(typed(b"hello"), compression=grpc.Compression.Deflate)
    except grpc.RpcError as e:
        equal(e.code(), grpc.StatusCode.UNIMPLEMENTED)
        return
    raise AssertionError("deflate was read")


def and_after_all_of_it():
    assert client.is_server_ready()
    assert texts(client.infer(MODEL, prompt("hello"), parameters={"max_tokens": 4}))[0]


def overloaded():
    """Last: engines that have too much to do are left alone for a while."""
    with refused("RESOURCE_EXHAUSTED"):
        client.infer(MODEL, prompt("be overloaded"))


run(
    unknown_model, no_inputs, unknown_input, text_input, empty_text, stream_input, twice, both_forms, no_data, raw_for_some, unknown_datatype,
    impossible_shapes, empty_parameter, shared_memory, streaming_on_unary, too_long, wrong_types_in_sampling, logprobs,
    failing_engines, not_our_protocol, broken_messages, unknown_compression, and_after_all_of_it, overloaded,
)
