"""A worker of dynago: token ids in, token ids out. Its "model" counts.

    python tokens.py --model FOLDER --listen 127.0.0.1:50061
    dynago serve --engine grpc://127.0.0.1:50061
"""
import argparse, asyncio, hashlib, pathlib, signal, time
import grpc
from dynago.worker.v1 import worker_pb2 as pb, worker_pb2_grpc as rpc

FILES = {"tokenizer.json": "tokenizer", "tokenizer_config.json": "tokenizer_config", "chat_template.jinja": "chat_template",
         "config.json": "config", "generation_config.json": "generation_config"}


class Worker(rpc.WorkerServicer):
    def __init__(self, folder, name, pause):
        self.epoch, self.pause, self.running, self.state = time.time_ns(), pause, 0, pb.STATE_READY
        self.files = {f.name: f for f in pathlib.Path(folder).iterdir() if f.name in FILES}
        self.card = pb.Card(model=name, engine="example", accepts=[pb.INPUT_TOKENS], context_length=8192, features=["stop_ids", "min_tokens"])
        for file in self.files.values():
            data = file.read_bytes()
            self.card.files.add(kind=FILES[file.name], uri="worker:" + file.name, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    async def Describe(self, request, context):
        while self.state != pb.STATE_FAILED:  # also the sign of life: more often than every 2 s
            load = pb.RankLoad(running=self.running, waiting=0)
            yield pb.Description(protocol=1, epoch=self.epoch, state=self.state, card=self.card, load=[load])
            await asyncio.sleep(0.2)

    async def File(self, request, context):
        with self.files[request.name].open("rb") as file:
            file.seek(request.offset)
            while data := file.read(1 << 20):
                yield pb.FileChunk(data=data)

    async def Generate(self, r, context):
        if r.epoch not in (0, self.epoch):
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "stale")
        if self.state == pb.STATE_DRAINING:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "unavailable")
        if len(r.token_ids) + r.stop.max_tokens > self.card.context_length:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument")
        await context.send_initial_metadata(())  # it is admitted
        self.running += 1
        try:
            token = r.token_ids[-1]
            for n in range(1, r.stop.max_tokens + 1):
                await asyncio.sleep(self.pause)  # the model computes
                token = (token + 1) % 8000
                ends = n > r.stop.min_tokens
                listed, hidden = ends and token in r.stop.ids, ends and token in r.stop.hidden_ids
                delta = pb.Delta(token_ids=[] if hidden and not listed else [token])
                if listed or hidden or n == r.stop.max_tokens:
                    delta.finish = pb.FINISH_STOP if listed else pb.FINISH_EOS if hidden else pb.FINISH_LENGTH
                    delta.matched_ids.extend([token] if listed else [])
                    delta.usage.CopyFrom(pb.Usage(prompt_tokens=len(r.token_ids), output_tokens=n))
                yield delta
                if delta.finish:
                    return
        finally:  # also where the frontend has gone: then this coroutine is cancelled
            self.running -= 1
            print(f"{r.id} has ended, {self.running} running", flush=True)


async def refuse(context, code, kind):
    await context.abort(code, kind, (("x-dynago-error-kind", kind),))


async def serve(worker, listen, most=64 << 20):
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most)])
    rpc.add_WorkerServicer_to_server(worker, server)
    print("listening on port", server.add_insecure_port(listen), flush=True)
    await server.start()
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    await leave.wait()
    worker.state = pb.STATE_DRAINING
    while worker.running:  # what runs may end
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # frontends hear of it
    worker.state = pb.STATE_FAILED
    await server.stop(1)


def run(kind):
    flags = argparse.ArgumentParser()
    flags.add_argument("--model", required=True, help="folder with the model's tokenizer and chat template")
    flags.add_argument("--name", default="example/counter")
    flags.add_argument("--listen", default="127.0.0.1:50061")
    flags.add_argument("--pause", type=float, default=0.02, help="seconds for each token")
    args = flags.parse_args()
    asyncio.run(serve(kind(args.model, args.name, args.pause), args.listen))


if __name__ == "__main__":
    run(Worker)
