"""A model that computes, through openai-python and anthropic: it calls tools of the SDKs, reads what they return, and answers."""

import json
import random
from typing import Literal

import openai
from anthropic import beta_tool
from pydantic import BaseModel, Field

import anthropic_client
from cases import MODEL, equal, run
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


run(
    chat_words, chat_tools, chat_tools_streamed, chat_tool_of_pydantic, chat_forced, chat_structured,
    responses_tools, responses_tools_streamed, responses_tools_stored, responses_structured,
    messages_tools, messages_tools_streamed, messages_runner,
)
