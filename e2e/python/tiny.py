"""A model that computes, through openai-python and anthropic: it calls tools of the SDKs, reads what they return, and answers."""

import asyncio
import json
import random
import time
from typing import Literal

import anthropic
import openai
from anthropic import beta_tool
from pydantic import BaseModel, Field

import anthropic_client
import openai_client
from cases import MODEL, active_requests, equal, run, total, until_idle
from openai_client import client, user

KNOWN = {}  # what the tools return: nobody could guess it


def get_height(mountain):
    """A tool: it really looks something up, anew for each mountain that is asked for."""
    return KNOWN.setdefault(mountain, f"{random.randint(1000, 9999)} meters")


def get_weather(city):
    return KNOWN.setdefault(city, f"cloudy, {random.randint(10, 39)} degrees")


RUN = {"get_height": get_height, "get_weather": get_weather}


def function(name, description, argument):
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument], "additionalProperties": False}
    return {"name": name, "description": description, "parameters": schema}


TOOLS = [function("get_weather", "Tells the weather of a city.", "city"), function("get_height", "Tells the height of a mountain.", "mountain")]
CHAT_TOOLS = [{"type": "function", "function": f} for f in TOOLS]
RESPONSES_TOOLS = [{"type": "function", **f} for f in TOOLS]
MESSAGES_TOOLS = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in TOOLS]

# Two turns: a question, and what is to be called for it, with what.
ASKED = [
    ("What is the height of Eiger?", "get_height", {"mountain": "Eiger"}),
    ("What is the weather in Lisbon?", "get_weather", {"city": "Lisbon"}),
]


def tells(text, value):
    assert text and value and value in text, f"got {text!r}, want {value!r} in it"


def called(calls, name, arguments):
    """Runs the one tool that was called, which has to be this one, and returns the call's id and what came of it."""
    equal([call[1:] for call in calls], [(name, arguments)])
    return calls[0][0], RUN[name](**arguments)


def chat(messages, stream, **body):
    if not stream:
        return client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **body)
    with client.chat.completions.stream(model=MODEL, messages=messages, temperature=0, **body) as events:
        for _ in events:
            pass
        return events.get_final_completion()


def chat_words():
    for stream in (False, True):
        tells(chat(user("What is 12 plus 7?"), stream).choices[0].message.content, "19")
        messages = [{"role": "system", "content": "The colour of the lamp is violet."}, *user("What is the colour of the lamp?")]
        tells(chat(messages, stream).choices[0].message.content, "violet")


def chat_tools(stream=False):
    messages = []
    for question, name, arguments in ASKED:
        messages += user(question)
        message = chat(messages, stream, tools=CHAT_TOOLS).choices[0].message
        calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]
        id, result = called(calls, name, arguments)
        messages += [message, {"role": "tool", "tool_call_id": id, "content": result}]
        message = chat(messages, stream, tools=CHAT_TOOLS).choices[0].message
        tells(message.content, result)
        messages.append(message)


def chat_tools_streamed():
    chat_tools(stream=True)


class GetHeight(BaseModel):
    """Tells the height of a mountain."""

    mountain: str


def chat_tool_of_pydantic():
    tools = [openai.pydantic_function_tool(GetHeight, name="get_height")]
    messages = user("What is the height of Rigi?")
    message = client.chat.completions.parse(model=MODEL, messages=messages, tools=tools, temperature=0).choices[0].message
    asked = message.tool_calls[0].function.parsed_arguments
    equal(asked, GetHeight(mountain="Rigi"))
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": json.dumps({"height": get_height(asked.mountain)})}]
    tells(client.chat.completions.parse(model=MODEL, messages=messages, tools=tools, temperature=0).choices[0].message.content, KNOWN["Rigi"])


def chat_forced():
    """A call that is asked for comes by mask, and keeps its schema."""
    tool = {**TOOLS[1], "parameters": {**TOOLS[1]["parameters"], "properties": {"mountain": {"enum": ["Eiger", "Rigi"]}}}}
    for choice in ("required", {"type": "function", "function": {"name": "get_height"}}):
        message = chat(user("Hello!"), False, tools=[{"type": "function", "function": tool}], tool_choice=choice).choices[0].message
        (call,) = message.tool_calls
        equal(call.function.name, "get_height")
        assert json.loads(call.function.arguments) in ({"mountain": "Eiger"}, {"mountain": "Rigi"}), call


class Thing(BaseModel):
    name: str = Field(max_length=20)
    colour: Literal["red", "green", "violet"]
    count: int = Field(ge=0, le=99)
    tags: list[Literal["old", "new"]] = Field(max_length=2)


def chat_structured():
    messages = user("The colour of the lamp is violet. What is the colour of the lamp?")
    for temperature in (0, 1):
        got = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Thing, temperature=temperature, seed=3, max_tokens=300)
        assert isinstance(got.choices[0].message.parsed, Thing), got


def respond(stream, **body):
    if not stream:
        return client.responses.create(model=MODEL, temperature=0, **body)
    with client.responses.stream(model=MODEL, temperature=0, **body) as events:
        for _ in events:
            pass
        return events.get_final_response()


def responses_tools(stream=False, stored=False):
    """Two turns; what is said before is sent again, or stored by the server."""
    items, before = [], None
    for question, name, arguments in ASKED:
        new = user(question)
        while new:
            items += new
            if stored:
                answer = respond(stream, input=new, previous_response_id=before, tools=RESPONSES_TOOLS)
            else:
                answer = respond(stream, input=items, store=False, include=["reasoning.encrypted_content"], tools=RESPONSES_TOOLS)
            items, before = items + answer.output, answer.id
            if calls := [(i.call_id, i.name, json.loads(i.arguments)) for i in answer.output if i.type == "function_call"]:
                id, result = called(calls, name, arguments)
                new = [{"type": "function_call_output", "call_id": id, "output": result}]
            else:
                new = []
        tells(answer.output_text, KNOWN[next(iter(arguments.values()))])


def responses_tools_streamed():
    responses_tools(stream=True)


def responses_tools_stored():
    responses_tools(stored=True)
    responses_tools(stream=True, stored=True)


def responses_structured():
    got = client.responses.parse(model=MODEL, input="The colour of the lamp is violet. What is the colour of the lamp?", text_format=Thing, temperature=0, max_output_tokens=300)
    assert isinstance(got.output_parsed, Thing), got


def say(stream, messages, **body):
    body = {"model": MODEL, "max_tokens": 300, "messages": messages, **body}
    if not stream:
        return anthropic_client.client.messages.create(**body)
    with anthropic_client.client.messages.stream(**body) as events:
        return events.get_final_message()


def messages_tools(stream=False):
    messages = []
    for question, name, arguments in ASKED:
        messages += user(question)
        answer = say(stream, messages, tools=MESSAGES_TOOLS)
        equal(answer.stop_reason, "tool_use")
        id, result = called([(b.id, b.name, b.input) for b in answer.content if b.type == "tool_use"], name, arguments)
        messages += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]},
        ]
        answer = say(stream, messages, tools=MESSAGES_TOOLS)
        tells(answer.content[-1].text, result)
        messages.append({"role": "assistant", "content": answer.content})


def messages_tools_streamed():
    messages_tools(stream=True)


def messages_runner():
    asked = []

    @beta_tool
    def height(mountain: str) -> str:
        """Tells the height of a mountain."""
        asked.append(mountain)
        return get_height(mountain)

    for stream in (False, True):
        runner = anthropic_client.client.beta.messages.tool_runner(
            model=MODEL, max_tokens=300, tools=[height], messages=user("What is the height of Titlis?"), stream=stream
        )
        tells(runner.until_done().content[-1].text, KNOWN["Titlis"])
    equal(asked, ["Titlis", "Titlis"])


# What the model is asked that it thinks of before it answers. Its thoughts are its own:
# they have to be there, and to be the same by whatever way they come.
SUM = "What is 12 plus 7?"


def chat_thinks():
    def parts(stream, **body):
        if not stream:
            answer = client.chat.completions.create(model=MODEL, messages=user(SUM), temperature=0, **body)
            message = answer.choices[0].message
            return message.model_extra.get("reasoning_content"), message.content, answer.usage
        thought, content, usage = "", "", None
        for chunk in client.chat.completions.create(
            model=MODEL, messages=user(SUM), temperature=0, stream=True, stream_options={"include_usage": True}, **body
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                more = (choice.delta.model_extra or {}).get("reasoning_content")
                assert not (more and content), f"{more!r} is thought after {content!r} was said"
                thought += more or ""
                content += choice.delta.content or ""
        return thought or None, content, usage

    whole = parts(stream=False)
    thought, content, usage = whole
    assert thought and "19" in content and "<" not in thought + content, whole
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens, usage
    equal(parts(stream=True)[:2], (thought, content))
    for stream in (False, True):
        thought, content, usage = parts(stream, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        equal((thought, usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens or 0), (None, 0))
        assert content and "<" not in content, content


def responses_think():
    asked = {"input": SUM, "reasoning": {"summary": "auto"}}
    whole = respond(stream=False, **asked)
    equal([i.type for i in whole.output], ["reasoning", "message"])
    thought = whole.output[0].summary[0].text
    assert thought and "19" in whole.output_text, whole
    assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens, whole.usage
    told = ""
    with client.responses.stream(model=MODEL, temperature=0, **asked) as events:
        for event in events:
            if event.type == "response.reasoning_summary_text.delta":
                told += event.delta
        streamed = events.get_final_response()
    equal((told, [i.type for i in streamed.output], streamed.output[0].summary[0].text), (thought, ["reasoning", "message"], thought))


def messages_think():
    asked = {"max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = say(False, user(SUM), **asked)
    equal([b.type for b in whole.content], ["thinking", "text"])
    thought = whole.content[0]
    assert thought.thinking and thought.signature and "19" in whole.content[1].text, whole
    told, signed = "", ""
    with anthropic_client.client.messages.stream(model=MODEL, messages=user(SUM), **asked) as events:
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "thinking_delta":
                told += event.delta.thinking
            if event.type == "content_block_delta" and event.delta.type == "signature_delta":
                signed += event.delta.signature
        streamed = events.get_final_message()
    equal([b.type for b in streamed.content], ["thinking", "text"])
    equal((told, bool(signed), streamed.content[0].thinking), (thought.thinking, True, thought.thinking))
    # Both go back, as an agent sends them, and it goes on from there.
    again = say(False, [*user(SUM), {"role": "assistant", "content": whole.content}, *user("What is 20 plus 9?")], **asked)
    equal([b.type for b in again.content], ["thinking", "text"])
    equal([b.type for b in say(False, user(SUM), max_tokens=200, thinking={"type": "disabled"}).content], ["text"])


# A call that has to be made, of some nine hundred tokens at least: long enough to leave.
MARKS = {
    "type": "object", "properties": {"marks": {"type": "array", "items": {"enum": ["a"]}, "minItems": 300}},
    "required": ["marks"], "additionalProperties": False,
}  # fmt: skip
LONG = 900


def chat_pieces():
    tool = {"type": "function", "function": {"name": "mark", "parameters": MARKS}}
    with client.chat.completions.create(model=MODEL, messages=user("Go on."), tools=[tool], tool_choice="required", max_tokens=1500, stream=True) as stream:
        for chunk in stream:
            if chunk.choices and (calls := chunk.choices[0].delta.tool_calls):
                yield calls[0].function.arguments


def responses_pieces():
    tool = {"type": "function", "name": "mark", "parameters": MARKS, "strict": True}
    with client.responses.create(model=MODEL, input="Go on.", tools=[tool], tool_choice="required", max_output_tokens=1500, stream=True) as stream:
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                yield event.delta


def messages_pieces():
    tool = {"name": "mark", "input_schema": MARKS}
    with anthropic_client.client.messages.create(
        model=MODEL, max_tokens=1500, messages=user("Go on."), tools=[tool], tool_choice={"type": "any"}, stream=True
    ) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                yield event.delta.partial_json


def left_in_the_middle():
    """Who leaves is counted, and what was computed for him ends within a tenth of a second, however far it was from its end."""
    until_idle()
    for pieces in (chat_pieces, responses_pieces, messages_pieces):
        took = []
        for _ in range(10):  # others may keep this machine busy, and the quickest time is the server's
            left, made = total("dynamo_frontend_model_cancellation_total"), total("dynamo_frontend_output_tokens_total")
            stream = pieces()
            for _ in range(20):
                next(stream)
            stream.close()
            since = time.monotonic()
            while active_requests() != 0:
                assert time.monotonic() < since + 10, f"{pieces.__name__}: it goes on"
            took.append(time.monotonic() - since)
            equal(total("dynamo_frontend_model_cancellation_total"), left + 1)
            made = total("dynamo_frontend_output_tokens_total") - made
            assert 20 <= made < LONG, f"{pieces.__name__}: {made} tokens were computed"
            if took[-1] < 0.1:
                break
        assert min(took) < 0.1, f"{pieces.__name__}: it was over after {took}"
        equal(total("dynago_worker_active_requests"), 0)


def left_before_the_answer():
    tool = {"type": "function", "function": {"name": "mark", "parameters": MARKS}}

    async def main():
        async with openai_client.async_client() as c:
            task = asyncio.create_task(
                c.chat.completions.create(model=MODEL, messages=user("Go on."), tools=[tool], tool_choice="required", max_tokens=1500)
            )
            while active_requests() == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), "it was answered"

    made = total("dynamo_frontend_output_tokens_total")
    asyncio.run(main())
    until_idle()
    assert total("dynamo_frontend_output_tokens_total") - made < LONG


def refused(kind, call, **want):
    try:
        call()
    except (openai.APIStatusError, anthropic.APIStatusError) as e:
        assert type(e) is kind, f"{e!r} is no {kind.__name__}"
        equal({name: getattr(e, name) for name in want}, want)
        return e
    raise AssertionError(f"no {kind.__name__}")


def refusals():
    """What only an engine that computes can refuse, and the limits of this one."""
    bad, wrong = openai.BadRequestError, anthropic.BadRequestError
    long = "The lamp is red. " * 600
    refused(bad, lambda: chat(user(long), False), param="messages", code="context_length_exceeded")
    refused(bad, lambda: client.chat.completions.create(model=MODEL, messages=user(long), stream=True), code="context_length_exceeded")
    refused(bad, lambda: client.responses.create(model=MODEL, input=long), code="context_length_exceeded")
    assert "prompt is too long" in refused(wrong, lambda: say(False, user(long))).message

    def formed(**format):
        return chat(user("Hello"), False, response_format={"type": "json_schema", "json_schema": {"name": "a", **format}})

    refused(bad, lambda: formed(schema={"$ref": "#/$defs/nowhere"}))
    refused(bad, lambda: formed(schema={"type": "string", "pattern": "("}))
    refused(bad, lambda: chat(user("Hello"), False, extra_body={"guided_grammar": "root ::= nowhere"}))
    refused(bad, lambda: chat(user("Hello"), False, logit_bias={"4000": 1}))
    refused(bad, lambda: chat(user("Hello"), False, logprobs=True, top_logprobs=21))
    equal(active_requests(), 0)


run(
    chat_thinks, responses_think, messages_think, left_in_the_middle, left_before_the_answer, refusals,
    chat_words, chat_tools, chat_tools_streamed, chat_tool_of_pydantic, chat_forced, chat_structured,
    responses_tools, responses_tools_streamed, responses_tools_stored, responses_structured,
    messages_tools, messages_tools_streamed, messages_runner,
)
