"""What answers carry for clients that ask by nvext, as the official SDKs see it."""

from anthropic_client import client as anthropic
from cases import MODEL, equal, run
from openai_client import client as openai, user

ASKED = {"nvext": {"extra_fields": ["worker_id", "timing", "completion_token_ids", "stop_reason"]}}
CHAT = {"model": MODEL, "messages": user("hello"), "stop": ["can I"], "extra_body": ASKED}
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def complete(ext, stop=True):
    placed = ext["worker_id"]
    equal(placed["prefill_worker_id"], placed["decode_worker_id"])
    assert 0 < placed["decode_worker_id"] < 2**53, placed
    assert 0 <= ext["timing"]["ttft_ms"] <= ext["timing"]["total_time_ms"], ext
    assert ext["completion_token_ids"], ext
    equal(ext.get("stop_reason"), "can I" if stop else None)


def added(chunks):
    """The members of all chunks, added up."""
    ids, ext = [], {}
    for chunk in chunks:
        told = getattr(chunk, "nvext", None) or {}
        ids += told.get("completion_token_ids", [])
        ext.update(told)
    return {**ext, "completion_token_ids": ids}


def chat():
    r = openai.chat.completions.create(**CHAT)
    complete(r.nvext)
    equal(len(r.nvext["completion_token_ids"]), r.usage.completion_tokens)


def chat_streamed():
    chunks = list(openai.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    for chunk in chunks:
        equal(hasattr(chunk, "nvext"), bool(chunk.choices))
    ext = added(chunks)
    complete(ext)
    equal(len(ext["completion_token_ids"]), chunks[-1].usage.completion_tokens)
    equal([c.choices[0].finish_reason for c in chunks if c.choices and "timing" in c.nvext], ["stop"])


def chat_helper():
    """The SDK's own accumulator must take the chunks of thoughts and calls."""
    asked = {**CHAT, "messages": user("weather in Rome?"), "tools": [WEATHER], "stop": None}
    with openai.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        r = stream.get_final_completion()
    equal(r.choices[0].message.tool_calls[0].function.name, "get_weather")


def query():
    asked = {"nvext": {"annotations": ["query_instance_id:"]}}
    r = openai.chat.completions.create(model=MODEL, messages=user("hello"), extra_body=asked)
    equal((r.choices[0].message.content, r.usage), ("", None))
    worker, ids = r.nvext["worker_id"]["decode_worker_id"], r.nvext["token_ids"]
    (chunk,) = openai.chat.completions.create(model=MODEL, messages=user("hello"), stream=True, extra_body=asked)
    equal((chunk.nvext["token_ids"], chunk.choices[0].finish_reason), (ids, None))
    sent = {"nvext": {"token_data": ids, "backend_instance_id": worker, "extra_fields": ["worker_id"]}}
    r = openai.chat.completions.create(model=MODEL, messages=user("hello"), extra_body=sent)
    equal((r.nvext["worker_id"]["decode_worker_id"], r.usage.prompt_tokens), (worker, len(ids)))


def completions():
    asked = {"model": MODEL, "prompt": "hello", "max_tokens": 8, "extra_body": ASKED}
    complete(openai.completions.create(**asked).nvext, stop=False)
    complete(added(openai.completions.create(**asked, stream=True)), stop=False)


def responses():
    asked = {"model": MODEL, "input": "hello", "extra_body": ASKED}
    complete(openai.responses.create(**asked).nvext, stop=False)
    with openai.responses.stream(**asked) as stream:
        for _ in stream:
            pass
        complete(stream.get_final_response().nvext, stop=False)


def messages():
    asked = {"model": MODEL, "max_tokens": 100, "messages": user("hello"), "stop_sequences": ["can I"], "extra_body": ASKED}
    complete(anthropic.messages.create(**asked).nvext)
    ends = []
    with anthropic.messages.stream(**asked) as stream:
        for event in stream:
            if event.type == "message_delta":
                ends.append(event.nvext)
            else:
                assert not hasattr(event, "nvext"), event
        equal(stream.get_final_message().stop_sequence, "can I")
    equal(len(ends), 1)
    complete(ends[0])


run(chat, chat_streamed, chat_helper, query, completions, responses, messages)
