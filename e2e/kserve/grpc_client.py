"""What the suites over gRPC share: a client, inputs, and the client's own stubs, which
say what the client's methods hide."""

import queue

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc  # noqa: F401

from cases import GRPC, MODEL

MOST = 2**31 - 1
LIMITS = [("grpc.max_send_message_length", MOST), ("grpc.max_receive_message_length", MOST)]

client = triton.InferenceServerClient(GRPC)
channel = grpc.insecure_channel(GRPC, LIMITS)
stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
pb = service_pb2


def tensor(name, array, datatype=None):
    from tritonclient.utils import np_to_triton_dtype

    return triton.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


def strings(name, *values):
    return tensor(name, np.array(values, dtype=np.object_))


def flag(name, value):
    return tensor(name, np.array([value]))


def prompt(text, **flags):
    return [strings("text_input", text), *(flag(k, v) for k, v in flags.items())]


def texts(result, name="text_output"):
    return [v.decode() for v in result.as_numpy(name).reshape(-1)]


def parameter(message, name):
    """The value of a parameter, and the member of the oneof that has it."""
    p = message.parameters[name]
    kind = p.WhichOneof("parameter_choice")
    return getattr(p, kind), kind


def typed(text, model=MODEL, **more):
    """A request whose tensors are typed, as people write them by hand."""
    r = pb.ModelInferRequest(model_name=model, **more)
    r.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(text)
    return r


def framed(*values):
    """The raw form of BYTES."""
    return b"".join(len(v).to_bytes(4, "little") + v for v in values)


class Stream:
    """A stream of a client, whose responses are read one by one."""

    def __init__(self, of=client, **options):
        self.client, self.responses = of, queue.Queue()
        self.client.start_stream(lambda result, error: self.responses.put((result, error)), **options)

    def ask(self, model, inputs, **options):
        self.client.async_stream_infer(model, inputs, **options)

    def next(self, seconds=30):
        result, error = self.responses.get(timeout=seconds)
        if error is not None:
            raise error
        return result

    def stop(self, **options):
        self.client.stop_stream(**options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(cancel_requests=True)


def final(result):
    """What a streamed response says of being the last one."""
    value, kind = parameter(result.get_response(), "triton_final_response")
    assert kind == "bool_param", kind
    return value
