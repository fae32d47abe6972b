from cases import ARGS, MODEL, equal, run
from openai_client import WEATHER, client, user


def models():
    ids = [m.id for m in client.models.list()]
    assert MODEL in ids, ids
    equal(client.models.retrieve(MODEL).id, MODEL)


def chat():
    r = client.chat.completions.create(model=MODEL, messages=user("hello"))
    equal(r.object, "chat.completion")
    equal(r.choices[0].message.role, "assistant")
    equal(r.choices[0].message.content, "Hello! How can I help?")
    equal(r.choices[0].finish_reason, "stop")
    assert r.usage.prompt_tokens > 0 and r.usage.completion_tokens > 0
    equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)


def chat_streamed():
    unary = client.chat.completions.create(model=MODEL, messages=user("hello"))
    text, finish, usage, ids = "", None, None, set()
    for chunk in client.chat.completions.create(
        model=MODEL, messages=user("hello"), stream=True, stream_options={"include_usage": True}
    ):
        ids.add(chunk.id)
        if chunk.usage:
            assert not chunk.choices, "usage comes alone"
            usage = chunk.usage
        for c in chunk.choices:
            text += c.delta.content or ""
            finish = c.finish_reason or finish
    equal(text, unary.choices[0].message.content)
    equal(finish, "stop")
    equal(len(ids), 1)
    equal((usage.prompt_tokens, usage.completion_tokens), (unary.usage.prompt_tokens, unary.usage.completion_tokens))


def no_usage_unless_asked_for():
    for chunk in client.chat.completions.create(model=MODEL, messages=user("hello"), stream=True):
        assert chunk.usage is None, chunk


def length():
    r = client.chat.completions.create(model=MODEL, messages=user("say something"), max_tokens=5)
    equal(r.choices[0].finish_reason, "length")
    equal(r.usage.completion_tokens, 5)


def stop_string():
    r = client.chat.completions.create(model=MODEL, messages=user("hello"), stop=["can I"])
    equal(r.choices[0].message.content, "Hello! How ")
    equal(r.choices[0].finish_reason, "stop")


def choices():
    r = client.chat.completions.create(model=MODEL, messages=user("say something"), n=2, seed=7, max_tokens=8)
    equal([c.index for c in r.choices], [0, 1])
    equal(r.usage.completion_tokens, 16)


def choices_streamed():
    texts = ["", ""]
    finishes = [None, None]
    for chunk in client.chat.completions.create(model=MODEL, messages=user("hello"), n=2, stream=True):
        for c in chunk.choices:
            texts[c.index] += c.delta.content or ""
            finishes[c.index] = c.finish_reason or finishes[c.index]
    equal(texts, ["Hello! How can I help?"] * 2)
    equal(finishes, ["stop", "stop"])


def logprobs():
    r = client.chat.completions.create(
        model=MODEL, messages=user("hello"), logprobs=True, top_logprobs=3
    )
    content = r.choices[0].logprobs.content
    equal(b"".join(bytes(t.bytes) for t in content).decode(), r.choices[0].message.content)
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3, t


def completions():
    r = client.completions.create(model=MODEL, prompt="hello", max_tokens=30)
    equal(r.object, "text_completion")
    assert r.choices[0].text and r.choices[0].finish_reason in ("stop", "length"), r


def completions_of_several_prompts():
    r = client.completions.create(model=MODEL, prompt=["say", "something"], max_tokens=4)
    equal([c.index for c in r.choices], [0, 1])
    equal(r.usage.completion_tokens, 8)


def completions_of_ids():
    r = client.completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=4)
    equal(r.usage.prompt_tokens, 3)


def completions_streamed():
    unary = client.completions.create(model=MODEL, prompt="hello", max_tokens=6, seed=1)
    text = ""
    for chunk in client.completions.create(model=MODEL, prompt="hello", max_tokens=6, seed=1, stream=True):
        for c in chunk.choices:
            text += c.text
    equal(text, unary.choices[0].text)


def completions_echo():
    r = client.completions.create(model=MODEL, prompt="hello", max_tokens=3, echo=True)
    assert r.choices[0].text.startswith("hello"), r


def tools():
    r = client.chat.completions.create(model=MODEL, messages=user("weather in Rome?"), tools=[WEATHER])
    c = r.choices[0]
    equal(c.finish_reason, "tool_calls")
    equal([(t.type, t.function.name, t.function.arguments) for t in c.message.tool_calls], [("function", "get_weather", ARGS)])
    assert c.message.tool_calls[0].id.startswith("call_"), c
    equal(c.message.content, "Let me look.\n")
    equal(c.message.model_extra.get("reasoning_content"), "A tool knows the weather.")


def tools_streamed():
    calls, content, reasoning, finish = {}, "", "", None
    for chunk in client.chat.completions.create(model=MODEL, messages=user("weather in Rome?"), tools=[WEATHER], stream=True):
        for c in chunk.choices:
            content += c.delta.content or ""
            reasoning += (c.delta.model_extra or {}).get("reasoning_content") or ""
            finish = c.finish_reason or finish
            for t in c.delta.tool_calls or []:
                call = calls.setdefault(t.index, {"id": "", "name": "", "args": ""})
                call["id"] += t.id or ""
                call["name"] += t.function.name or ""
                call["args"] += t.function.arguments or ""
    equal(finish, "tool_calls")
    equal([(c["name"], c["args"]) for c in calls.values()], [("get_weather", ARGS)])
    assert calls[0]["id"].startswith("call_")
    equal((content, reasoning), ("Let me look.\n", "A tool knows the weather."))


def two_calls():
    r = client.chat.completions.create(model=MODEL, messages=user("both cities"), tools=[WEATHER])
    calls = r.choices[0].message.tool_calls
    equal([c.function.arguments for c in calls], ['{"city": "Rome"}', '{"city": "Oslo"}'])
    assert calls[0].id != calls[1].id


def one_call_at_a_time():
    r = client.chat.completions.create(model=MODEL, messages=user("both cities"), tools=[WEATHER], parallel_tool_calls=False)
    equal(len(r.choices[0].message.tool_calls), 1)
    equal(r.choices[0].finish_reason, "tool_calls")


def tool_loop():
    messages = user("weather in Rome?")
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER]).choices[0].message
    messages += [
        first.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21 degrees"},
    ]
    r = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER])
    equal(r.choices[0].message.content, "It says: 21 degrees")
    equal(r.choices[0].finish_reason, "stop")


def tool_choice_none():
    r = client.chat.completions.create(model=MODEL, messages=user("weather in Rome?"), tools=[WEATHER], tool_choice="none")
    c = r.choices[0]
    equal((c.finish_reason, c.message.tool_calls), ("stop", None))
    assert "<tool_call>" not in (c.message.content or ""), c


def stream_helper():
    """The SDK's own accumulator must understand the chunks."""
    with client.chat.completions.stream(model=MODEL, messages=user("hello")) as stream:
        for _ in stream:
            pass
        equal(stream.get_final_completion().choices[0].message.content, "Hello! How can I help?")


run(
    models, chat, chat_streamed, no_usage_unless_asked_for, length, stop_string, choices, choices_streamed, logprobs,
    completions, completions_of_several_prompts, completions_of_ids, completions_streamed, completions_echo,
    tools, tools_streamed, two_calls, one_call_at_a_time, tool_loop, tool_choice_none, stream_helper,
)
