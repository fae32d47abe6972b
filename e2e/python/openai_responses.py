import json

import openai

from cases import ARGS, MODEL, WEATHER_SCHEMA, equal, run, said, until_idle
from openai_client import client

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": WEATHER_SCHEMA,
    "strict": False,
}
ASKED = {"input": "weather in Rome?", "tools": [WEATHER], "reasoning": {"summary": "auto"}}


def create(**body):
    return client.responses.create(model=MODEL, **body)


def text():
    r = create(input="hello")
    equal((r.status, r.output_text), ("completed", "Hello! How can I help?"))
    equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens)


def thought_text_and_call():
    r = create(**ASKED)
    equal([i.type for i in r.output], ["reasoning", "message", "function_call"])
    equal(r.output[0].summary[0].text, "A tool knows the weather.")
    equal(r.output[2].arguments, ARGS)


def the_stream_is_the_answer():
    """The SDK puts the answer together from the events."""
    for body in ({"input": "hello"}, ASKED, {"input": "both cities", "tools": [WEATHER]}):
        unary = create(**body)
        with client.responses.stream(model=MODEL, **body) as stream:
            for n, event in enumerate(e for e in stream if hasattr(e, "sequence_number")):
                equal(event.sequence_number, n)
            equal(said(stream.get_final_response()), said(unary))


def a_tool_in_a_loop():
    messages = [{"role": "user", "content": "weather in Rome?"}]
    first = create(**{**ASKED, "input": messages, "store": False, "include": ["reasoning.encrypted_content"]})
    call = next(i for i in first.output if i.type == "function_call")
    messages += first.output
    messages.append({"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"})
    equal(create(**{**ASKED, "input": messages, "store": False}).output_text, "It says: 21 degrees")


def going_on_from_a_stored_response():
    first = create(**ASKED)
    call = next(i for i in first.output if i.type == "function_call")
    answer = [{"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}]
    second = create(**{**ASKED, "input": answer, "previous_response_id": first.id})
    equal(second.output_text, "It says: 22 degrees")
    equal(said(client.responses.retrieve(first.id)), said(first))
    items = [i.type for i in client.responses.input_items.list(second.id, order="asc")]
    equal(items[-1], "function_call_output")
    client.responses.delete(first.id)
    try:
        client.responses.retrieve(first.id)
    except openai.NotFoundError:
        return
    raise AssertionError("it is still there")


def structured_output():
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "city", "schema": schema, "strict": True}}
    assert isinstance(json.loads(create(input="a city as JSON", text=form).output_text)["city"], str)


def free_text_for_a_tool():
    r = create(input="some code", tools=[{"type": "custom", "name": "run_code", "description": "Runs it."}])
    equal([(i.type, i.input) for i in r.output], [("custom_tool_call", 'print("<b>")\n')])


def counted_before():
    counted = client.responses.input_tokens.count(model=MODEL, input="hello")
    equal(counted.input_tokens, create(input="hello").usage.input_tokens)


def in_the_background():
    begun = create(input="count slowly", background=True)
    assert begun.status in ("queued", "in_progress"), begun.status
    equal(client.responses.cancel(begun.id).status, "cancelled")
    until_idle()


def cancelled_in_the_middle():
    stream = create(input="go on endlessly", stream=True)
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    stream.close()
    until_idle()


run(
    text, thought_text_and_call, the_stream_is_the_answer, a_tool_in_a_loop, going_on_from_a_stored_response,
    structured_output, free_text_for_a_tool, counted_before, in_the_background, cancelled_in_the_middle,
)
