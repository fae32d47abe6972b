"""A worker of dynago that takes tensors, and gives them back as they came.

    python tensors.py --listen 127.0.0.1:50061

Parameters of a request make it fail in the ways in which backends fail:
malformed_response leaves the datatype of the first tensor out, data_mismatch its data,
and raise_exception ends the call with an error. With repeat=N there are N responses.
Each has the parameters of the request, and processed.
"""
import argparse, asyncio, time
import tokens
from tokens import pb, rpc


class Worker(rpc.WorkerServicer):
    def __init__(self, name):
        self.epoch, self.running, self.state = time.time_ns(), 0, pb.STATE_READY
        self.card = pb.Card(model=name, engine="example", accepts=[pb.INPUT_TENSOR], tensor=pb.TensorConfig(name=name))

    Describe = tokens.Worker.Describe

    async def TensorInfer(self, requests, context):
        # One reply waits, and each call has one more at hand: they may be large, and a
        # call that need not wait for its reader would fill all memory.
        replies, calls = asyncio.Queue(1), {}

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
        finally:
            for task in [reader, *calls.values()]:
                task.cancel()

    async def call(self, number, r, put):
        end = pb.Error()
        self.running += 1
        try:
            for _ in range(r.parameters["repeat"].int64_param if "repeat" in r.parameters else 1):
                await put(pb.TensorReply(call=number, response=self.echo(r)))
        except Exception as e:
            end = pb.Error(kind="internal", message=str(e))
        finally:
            self.running -= 1
        await put(pb.TensorReply(call=number, end=end))

    def echo(self, r):
        if "raise_exception" in r.parameters:
            raise RuntimeError("the request asked for it")
        answer = pb.TensorResponse(id=r.id, model=r.model, version=r.version, outputs=r.inputs, parameters=r.parameters)
        answer.parameters["processed"].bool_param = True
        for t in answer.outputs[:1]:
            if "malformed_response" in r.parameters:
                t.datatype = ""
            if "data_mismatch" in r.parameters:
                t.data = b""
        return answer


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--name", default="example/echo")
    flags.add_argument("--listen", default="127.0.0.1:50061")
    args = flags.parse_args()

    async def main():
        await tokens.serve(Worker(args.name), args.listen, most=-1)  # tensors may be large

    asyncio.run(main())
