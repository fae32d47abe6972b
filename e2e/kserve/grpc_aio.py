"""The client of asyncio, and many streams at once."""

import asyncio

import grpc
import tritonclient.grpc.aio as triton

from cases import GRPC, MODEL, completion, equal, refused, run, running, said, until_idle
from grpc_client import LIMITS, final, prompt, service_pb2_grpc, texts, typed

GREEDY = {"temperature": 0.0, "max_tokens": 16}


def with_client(case):
    def main():
        async def inner():
            async with triton.InferenceServerClient(GRPC) as c:
                await case(c)

        asyncio.run(inner())

    main.__name__ = case.__name__
    return main


@with_client
async def surface(c):
    assert await c.is_server_live() and await c.is_server_ready() and await c.is_model_ready(MODEL)
    equal((await c.get_server_metadata()).name, "dynago")
    equal((await c.get_model_metadata(MODEL)).name, MODEL)
    equal((await c.get_model_config(MODEL)).config.name, MODEL)
    equal([m.name for m in (await c.get_model_repository_index()).models], [MODEL])
    await c.get_inference_statistics(MODEL)


@with_client
async def not_served(c):
    for call in (
        c.load_model(MODEL), c.unload_model(MODEL), c.get_trace_settings(), c.update_trace_settings(settings={}), c.get_log_settings(),
        c.update_log_settings({}), c.get_system_shared_memory_status(), c.register_system_shared_memory("r", "/r", 1),
        c.unregister_system_shared_memory(), c.get_cuda_shared_memory_status(), c.register_cuda_shared_memory("r", b"eA==", 0, 1),
        c.unregister_cuda_shared_memory(),
    ):
        with refused("UNIMPLEMENTED", "is not supported by this server"):
            await call


@with_client
async def at_once(c):
    got = await asyncio.gather(*(c.infer(MODEL, prompt(f"Count to {i % 5}"), request_id=str(i), parameters=GREEDY) for i in range(100)))
    for i, r in enumerate(got):
        equal((r.get_response().id, texts(r)), (str(i), texts(got[i % 5])))


@with_client
async def failing(c):
    with refused("NOT_FOUND", "Model 'no/such' not found"):
        await c.infer("no/such", prompt("hello"))
    with refused("DEADLINE_EXCEEDED"):
        await c.infer(MODEL, prompt("come late"), client_timeout=0.3)


def requests(*texts, **more):
    async def each():
        for i, text in enumerate(texts):
            yield {"model_name": MODEL, "inputs": prompt(text, **more), "request_id": str(i), "enable_empty_final_response": True, "parameters": GREEDY}

    return each()


async def answers(stream, n):
    """The texts by id, when n have ended, and the errors."""
    text, errors = {}, []
    async for result, error in stream:
        if error is not None:
            errors.append(error)
            n -= 1
        else:
            i = result.get_response().id
            if result.get_response().outputs:
                text[i] = text.get(i, "") + texts(result)[0]
            n -= final(result)
        if n == 0:
            break
    return text, errors


@with_client
async def streamed(c):
    text, errors = await answers(c.stream_infer(requests("hello", "Which rivers cross Paris?", streaming=True)), 2)
    equal((text, errors), ({"0": completion("hello"), "1": completion("Which rivers cross Paris?")}, []))


@with_client
async def streamed_with_errors(c):
    async def some():
        yield {"model_name": "no/such", "inputs": prompt("hello"), "request_id": "0"}
        async for r in requests("hello"):
            yield r

    text, errors = await answers(c.stream_infer(some()), 2)
    equal((list(text), len(errors)), (["0"], 1))
    said(errors[0], None, "Model 'no/such' not found")


@with_client
async def cancelled(c):
    stream = c.stream_infer(requests("endlessly", streaming=True))
    async for _, error in stream:
        assert error is None
        break
    stream.cancel()
    await asyncio.to_thread(until_idle)
    task = asyncio.create_task(c.infer(MODEL, prompt("endlessly")))
    while await asyncio.to_thread(running) == 0:
        await asyncio.sleep(0.01)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    await asyncio.to_thread(until_idle)


def five_hundred_streams():
    """All of them are open at once, over a few connections, and each has two requests in flight."""
    n = 500

    async def main():
        channels = [grpc.aio.insecure_channel(GRPC, [*LIMITS, ("grpc.use_local_subchannel_pool", 1)]) for _ in range(5)]
        opened, everyone = 0, asyncio.Event()

        async def one(channel):
            nonlocal opened
            stream = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer()
            for i in "01":
                r = typed(b"count slowly", id=i)
                r.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(i == "1")
                r.parameters["max_tokens"].int64_param = 4
                r.parameters["triton_enable_empty_final_response"].bool_param = True
                await stream.write(r)
            text, ends = {"0": "", "1": ""}, 0
            while ends < 2:
                m = await stream.read()
                assert not m.error_message, m.error_message
                for t in m.infer_response.outputs[:1]:
                    text[m.infer_response.id] += t.contents.bytes_contents[0].decode()
                ends += m.infer_response.parameters["triton_final_response"].bool_param
            opened += 1
            if opened == n:
                everyone.set()
            await everyone.wait()
            await stream.done_writing()
            equal(await stream.read(), grpc.aio.EOF)
            equal(await stream.code(), grpc.StatusCode.OK)
            return text

        got = await asyncio.gather(*(one(channels[i % len(channels)]) for i in range(n)))
        for channel in channels:
            await channel.close()
        return got

    got = asyncio.run(asyncio.wait_for(main(), 60))
    want = completion("count slowly", max_tokens=4)
    equal(len(got), n)
    assert all(t == {"0": want, "1": want} for t in got), got[0]
    until_idle()


run(surface, not_served, at_once, failing, streamed, streamed_with_errors, cancelled, five_hundred_streams)
