"""A worker of tensors: it turns texts into vectors, by hashing their words and letters.

    python embed.py --listen 127.0.0.1:50061
    dynago serve --kserve-grpc-server --engine grpc://127.0.0.1:50061

Copy it, and put your own model into embed and, for what clients are told of it, config.
"""
import argparse, array, asyncio, hashlib, math, signal, struct, sys, time
import grpc
from dynago.worker.v1 import worker_pb2 as pb, worker_pb2_grpc as rpc
from inference import model_config_pb2 as triton

DIMENSIONS, BATCH = 256, 512


def config(name):
    """What clients are told of the model: a ModelConfig as Triton's own models have it."""
    return triton.ModelConfig(
        name=name, platform="dynago", backend="python", max_batch_size=BATCH,  # so tensors have a dimension before these
        input=[triton.ModelInput(name="text", data_type=triton.TYPE_STRING, dims=[1])],
        output=[triton.ModelOutput(name="embedding", data_type=triton.TYPE_FP32, dims=[DIMENSIONS])],
        parameters={"normalized": triton.ModelParameter(string_value="true")})


def embed(text):
    """One vector of length 1. Texts that share words, or parts of words, are near each other."""
    vector = array.array("f", bytes(4 * DIMENSIONS))
    for word in text.lower().split():
        marked = f" {word} "
        for part, weight in [(marked, 1.0), *((marked[i:i + 3], 0.5) for i in range(len(marked) - 2))]:
            h = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
            vector[h % DIMENSIONS] += weight if h >> 63 else -weight
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return array.array("f", (x / length for x in vector))


def infer(r):
    """The response to a request. What is wrong with the request is a ValueError."""
    inputs = {t.name: t for t in r.inputs}
    text = inputs.get("text")
    if len(inputs) != 1 or text is None or text.datatype != "BYTES":
        raise ValueError("want one input 'text' of BYTES, got " + (", ".join(f"'{t.name}' of {t.datatype}" for t in r.inputs) or "none"))
    if list(text.shape[1:]) not in ([], [1]):
        raise ValueError(f"input 'text': shape {list(text.shape)}: want [n, 1] or [n]")
    texts = elements(text.data)
    if len(texts) > BATCH:
        raise ValueError(f"input 'text': {len(texts)} texts: want at most {BATCH}")
    data = array.array("f")
    for t in texts:
        data.extend(embed(t.decode(errors="replace")))
    if sys.byteorder == "big":
        data.byteswap()  # tensors are little-endian
    answer = pb.TensorResponse(id=r.id, model=r.model, version=r.version)
    answer.outputs.add(name="embedding", datatype="FP32", shape=[len(texts), DIMENSIONS], data=data.tobytes())
    return answer


def elements(data):
    """The elements of BYTES: each has its length in four bytes before it."""
    list, at = [], 0
    while at < len(data):
        end = at + 4 + struct.unpack_from("<I", data, at)[0]
        list.append(data[at + 4:end])
        at = end
    return list


class Worker(rpc.WorkerServicer):
    def __init__(self, name):
        self.epoch, self.running, self.state = time.time_ns(), 0, pb.STATE_READY
        self.card = pb.Card(model=name, engine="example", accepts=[pb.INPUT_TENSOR],
                            tensor=pb.TensorConfig(triton_model_config=config(name).SerializeToString()))

    async def Describe(self, request, context):
        while self.state != pb.STATE_FAILED:  # also the sign of life: more often than every 2 s
            yield pb.Description(protocol=1, epoch=self.epoch, state=self.state, card=self.card, load=[pb.RankLoad(running=self.running)])
            await asyncio.sleep(0.2)

    async def TensorInfer(self, requests, context):
        replies, calls = asyncio.Queue(1), {}  # one reply waits: they may be large

        async def read():
            async for m in requests:
                if m.WhichOneof("what") == "cancel":
                    if task := calls.get(m.call):
                        task.cancel()
                else:
                    calls[m.call] = task = asyncio.create_task(self.call(m.call, m.request, replies.put))
                    task.add_done_callback(lambda _, number=m.call: calls.pop(number, None))
            await asyncio.gather(*calls.values(), return_exceptions=True)
            await replies.put(None)

        reader = asyncio.create_task(read())
        try:
            while (reply := await replies.get()) is not None:
                yield reply
        finally:  # also where the frontend has gone
            for task in [reader, *calls.values()]:
                task.cancel()

    async def call(self, number, r, put):
        """One call: any number of responses, then exactly one end."""
        end = pb.Error()  # of no kind: all is well
        self.running += 1
        try:
            # In a thread, so that the worker goes on telling that it lives.
            await put(pb.TensorReply(call=number, response=await asyncio.to_thread(infer, r)))
        except ValueError as e:
            end = pb.Error(kind="invalid_argument", message=str(e))
        except Exception as e:
            end = pb.Error(kind="internal", message=str(e))
        finally:
            self.running -= 1
        await put(pb.TensorReply(call=number, end=end))


async def serve(worker, listen):
    # gRPC for Python refuses messages above 4 MiB unless told otherwise.
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    rpc.add_WorkerServicer_to_server(worker, server)
    print("listening on port", server.add_insecure_port(listen), flush=True)
    await server.start()
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    await leave.wait()
    worker.state = pb.STATE_DRAINING
    await asyncio.sleep(0.5)  # frontends hear of it
    while worker.running:  # what runs may end
        await asyncio.sleep(0.05)
    worker.state = pb.STATE_FAILED
    await server.stop(1)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--name", default="example/embed")
    flags.add_argument("--listen", default="127.0.0.1:50061")
    args = flags.parse_args()
    asyncio.run(serve(Worker(args.name), args.listen))
