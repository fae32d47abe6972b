"""A worker of dynago that takes conversations: it says what it was told, word by word,
and calls the first tool that it is offered when told to.

    python text.py --listen 127.0.0.1:50061
    dynago serve --engine grpc://127.0.0.1:50061

It needs no files of a model: template and tokenizer are its own affair.
"""
import argparse, asyncio, time
import tokens
from tokens import pb, rpc


class Worker(rpc.WorkerServicer):
    def __init__(self, name, pause):
        self.epoch, self.pause, self.running, self.state = time.time_ns(), pause, 0, pb.STATE_READY
        self.card = pb.Card(model=name, engine="example", accepts=[pb.INPUT_CHAT])

    Describe = tokens.Worker.Describe

    async def Chat(self, r, context):
        await context.send_initial_metadata(())
        self.running += 1
        try:
            said = [b.text for t in r.chat.turns if t.role == "user" for b in t.blocks if b.kind == "text"][-1]
            words = said.split(" ")
            yield pb.ChatEvent(delta=pb.BlockDelta(thinking="They said something."))
            for n, word in enumerate(words):
                await asyncio.sleep(self.pause)
                yield pb.ChatEvent(delta=pb.BlockDelta(text=" " * (n > 0) + word))
            calls = "call" in words and r.chat.tools
            if calls:
                yield pb.ChatEvent(start=pb.BlockStart(kind="tool_use", tool=pb.ToolUse(id="call_1", name=r.chat.tools[0].name)))
                for piece in (b'{"text":', b' "x"}'):
                    yield pb.ChatEvent(delta=pb.BlockDelta(arguments=piece))
            yield pb.ChatEvent(usage=pb.Usage(prompt_tokens=len(words), output_tokens=len(words) + 3))
            yield pb.ChatEvent(finish=pb.ChatFinish(reason="tool_use" if calls else "stop"))
        finally:
            self.running -= 1
            print(f"{r.id} has ended, {self.running} running", flush=True)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--name", default="example/parrot")
    flags.add_argument("--listen", default="127.0.0.1:50061")
    flags.add_argument("--pause", type=float, default=0.02, help="seconds for each word")
    args = flags.parse_args()

    async def main():
        await tokens.serve(Worker(args.name, args.pause), args.listen)

    asyncio.run(main())
