import asyncio

from cases import MODEL, active_requests, equal, run, until_idle
from openai_client import async_client, client, user


def cancelled_in_the_middle():
    stream = client.chat.completions.create(model=MODEL, messages=user("go on endlessly"), stream=True)
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    equal(active_requests(), 1)
    stream.close()
    until_idle()


def cancelled_before_the_answer():
    async def main():
        task = asyncio.create_task(async_client().chat.completions.create(model=MODEL, messages=user("go on endlessly")))
        while active_requests() == 0:
            await asyncio.sleep(0.02)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        raise AssertionError("it was answered")

    asyncio.run(main())
    until_idle()


def two_hundred_streams():
    async def one(c):
        text, finish = "", None
        async for chunk in await c.chat.completions.create(model=MODEL, messages=user("count slowly"), stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        return text, finish

    async def main():
        async with async_client() as c:
            return await asyncio.gather(*(one(c) for _ in range(200)))

    answers = asyncio.run(main())
    equal(len(set(answers)), 1)
    text, finish = answers[0]
    assert text.startswith("one two") and text.endswith("done") and finish == "stop", answers[0]
    until_idle()


run(cancelled_in_the_middle, cancelled_before_the_answer, two_hundred_streams)
