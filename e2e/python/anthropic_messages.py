import json

from anthropic import beta_tool

from anthropic_client import WEATHER, client, user
from cases import ARGS, MODEL, equal, run, said

ASKED = {
    "messages": user("weather in Rome?"),
    "tools": [WEATHER],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "max_tokens": 2048,
}


def create(**body):
    return client.messages.create(**{"model": MODEL, "max_tokens": 500, **body})


def models():
    ids = [m.id for m in client.models.list()]
    assert MODEL in ids, ids
    equal(client.models.retrieve(MODEL).type, "model")


def text():
    m = create(messages=user("hello"), system="Be brief.")
    equal([(b.type, b.text) for b in m.content], [("text", "Hello! How can I help?")])
    equal(m.stop_reason, "end_turn")
    assert m.usage.input_tokens + m.usage.cache_read_input_tokens > 0 and m.usage.output_tokens > 0


def thought_text_and_call():
    m = create(**ASKED)
    equal([b.type for b in m.content], ["thinking", "text", "tool_use"])
    equal(m.content[0].thinking, "A tool knows the weather.")
    assert m.content[0].signature
    equal(m.content[2].input, json.loads(ARGS))
    equal(m.stop_reason, "tool_use")


def the_stream_is_the_answer():
    """The SDK puts the answer together from the events."""
    for body in ({"messages": user("hello")}, ASKED, {"messages": user("both cities"), "tools": [WEATHER]}):
        unary = create(**body)
        with client.messages.stream(**{"model": MODEL, "max_tokens": 500, **body}) as stream:
            equal(said(stream.get_final_message()), said(unary))


def a_tool_in_a_loop():
    messages = user("weather in Rome?")
    first = create(**{**ASKED, "messages": messages})
    call = next(b for b in first.content if b.type == "tool_use")
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}]},
    ]
    second = create(**{**ASKED, "messages": messages})
    equal((second.content[-1].text, second.stop_reason), ("It says: 21 degrees", "end_turn"))


def the_runner_of_tools():
    """The SDK's own loop, on the beta route."""
    asked = []

    @beta_tool
    def get_weather(city: str, note: str = "") -> str:
        """Tells the weather of a city."""
        asked.append(city)
        return "23 degrees"

    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=500, messages=user("weather in Rome?"), tools=[get_weather])
    equal(runner.until_done().content[-1].text, "It says: 23 degrees")
    equal(asked, ["Rome"])


def the_beta_route():
    m = client.beta.messages.create(model=MODEL, max_tokens=500, messages=user("hello"), betas=["interleaved-thinking-2025-05-14", "unheard-of-2030-01-01"])
    equal(m.content[-1].text, "Hello! How can I help?")


def counted_before():
    body = {"messages": user("hello"), "tools": [WEATHER], "system": "Be brief."}
    usage = create(**body).usage
    counted = client.messages.count_tokens(model=MODEL, **body).input_tokens
    equal(counted, usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens)


def stop_sequence():
    m = create(messages=user("hello"), stop_sequences=["can I"])
    equal((m.stop_reason, m.stop_sequence, m.content[0].text), ("stop_sequence", "can I", "Hello! How "))


def length():
    m = create(messages=user("say something"), max_tokens=5)
    equal((m.stop_reason, m.usage.output_tokens), ("max_tokens", 5))


def structured_output():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
    m = create(messages=user("a city as JSON"), output_config={"format": {"type": "json_schema", "schema": schema}})
    assert isinstance(json.loads(m.content[-1].text)["city"], str)


run(
    models, text, thought_text_and_call, the_stream_is_the_answer, a_tool_in_a_loop, the_runner_of_tools,
    the_beta_route, counted_before, stop_sequence, length, structured_output,
)
