import asyncio

from anthropic_client import async_client, client, user
from cases import MODEL, active_requests, equal, run, until_idle

ENDLESS = {"model": MODEL, "max_tokens": 500, "messages": user("go on endlessly")}


def cancelled_in_the_middle():
    with client.messages.stream(**ENDLESS) as stream:
        for _ in stream.text_stream:
            break
        equal(active_requests(), 1)
    until_idle()


def cancelled_before_the_answer():
    async def main():
        task = asyncio.create_task(async_client().messages.create(**ENDLESS))
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


def a_hundred_streams():
    async def one(c):
        async with c.messages.stream(model=MODEL, max_tokens=500, messages=user("count slowly")) as stream:
            m = await stream.get_final_message()
        return m.stop_reason, m.content[0].text

    async def main():
        async with async_client() as c:
            return await asyncio.gather(*(one(c) for _ in range(100)))

    answers = set(asyncio.run(main()))
    equal(len(answers), 1)
    (reason, text), = answers
    assert reason == "end_turn" and text.startswith("one two") and text.endswith("done"), answers
    until_idle()


run(cancelled_in_the_middle, cancelled_before_the_answer, a_hundred_streams)
