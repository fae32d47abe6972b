"""Writes harmony.jsonl: conversations, and how openai-harmony lays them out.

    pip install openai-harmony==0.0.8
    python harmony.py > harmony.jsonl

The library loads o200k_base.tiktoken from the folder that the environment
variable TIKTOKEN_ENCODINGS_BASE names, or else from the network.

A conversation is a list of turns of blocks, as the Go tests have it; what
becomes of it here is written against the library alone. "drop" says who takes
old thoughts out: the library, where its rule and ours agree on a conversation,
or the rule of the format guide below. "ids" is the beginning of the SHA-256 of the
ids that the library gives, as 32-bit integers, the lowest byte first.
"""

import hashlib
import json
import struct

from openai_harmony import (
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message,
    ReasoningEffort, RenderConversationConfig, Role, SystemContent, TextContent,
    ToolDescription, ToolNamespaceConfig, load_harmony_encoding,
)

enc = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

DATE = "2025-06-28"
cases = []


def case(name, *turns, **more):
    cases.append({"name": name, "turns": list(turns), **more})


def turn(role, *blocks, **more):
    return {"role": role, "blocks": [{"text": b} if isinstance(b, str) else b for b in blocks], **more}


def user(*b, **more): return turn("user", *b, **more)
def system(*b): return turn("system", *b)
def developer(*b): return turn("developer", *b)
def assistant(*b): return turn("assistant", *b)
def thought(s): return {"thought": s}
def call(name, args="{}", id=None): return {"call": {"id": id or "call_" + name, "name": name, "args": args}}
def result(name, *texts, id=None): return turn("tool", {"result": {"id": id or "call_" + name, "texts": list(texts)}})


def tool(name, parameters=None, description="Does something."):
    return {"name": name, "description": description, "parameters": parameters}


def obj(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


weather = tool("get_weather", obj({
    "location": {"type": "string", "description": "The city and state, e.g. Oakland, CA"},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
}, ["location"]), "Tells the weather.")
shell = tool("shell", obj({"command": {"type": "array", "items": {"type": "string"}}, "timeout_ms": {"type": "integer"}}, ["command"]), "Runs a command.\nIts output is cut at 10,000 lines.")
here = tool("where_am_i", None, "")

hi = user("Hello there")

# Plain conversations.
case("one question", hi)
case("instructions", system("Be brief."), hi)
case("developer", developer("Be brief."), hi)
case("system and developer", system("Be brief."), developer("Be kind."), hi)
case("three leading", system("a"), system("b"), developer("c\n\nd"), hi)
case("empty system", system(""), hi)
case("system blocks", hi, system=["One.", "Two."], api="messages")
case("system blocks of responses", hi, system=["One.", "Two."], api="responses")
case("parts", user("first", "second"))
case("parts of messages", user("first", "second"), api="messages")
case("user name", user("hi", name="ada"))
case("blanks", system("  x \n"), user("\n\n a \t"), assistant(" b\n"), user("c "))
case("unicode", user("naïve 漢字 👩‍👩‍👧 \u0301 <b>&amp;</b> \"q\" \\n"))
case("two questions", user("2+2?"), assistant("4."), user("9/2?"))
case("empty answer", hi, assistant(""), user("?"))
case("two users", user("a"), user("b"))
case("two answers", user("a"), assistant("b"), assistant("c"), user("d"))
case("late system", hi, assistant("Hello."), system("Speak French."), user("Go on."))
case("late developer", hi, assistant("Hello."), developer("Speak French.\n\nAlways."), user("Go on."))
case("empty late system", hi, system(""), user("Go on."))
case("no generation", hi, assistant("Hello."), generate=False)
case("no turns")
case("refusal", hi, assistant({"refusal": "I cannot."}), user("Why?"))

# Reasoning.
for effort in ["none", "minimal", "low", "medium", "high", "xhigh", "max"]:
    case("effort " + effort, hi, effort=effort)
case("thinking off", hi, thinking=False)
case("thinking on", hi, thinking=True)
case("effort argument", hi, effort="low", args={"reasoning_effort": "high"})
case("identity", hi, args={"model_identity": "You are Dyna.\nYou serve."})
case("cutoff", hi, args={"knowledge_cutoff": "2023-10"})
case("start date", hi, args={"conversation_start_date": "2024-02-29"})
case("old thought", user("2+2?"), assistant(thought("Easy."), "4."), user("9/2?"))
case("open thought", user("2+2?"), assistant(thought("Easy.")))
case("thought kept to the end", user("2+2?"), assistant(thought("Easy."), "4."), generate=False, drop="guide")
case("two old thoughts", user("a"), assistant(thought("A"), "1"), user("b"), assistant(thought("B"), "2"), user("c"), drop="guide")
case("retain all", user("a"), assistant(thought("A"), "1"), user("b"), args={"truncate_history_thinking": False}, drop="none")
case("two thoughts", user("a"), assistant(thought("A"), thought("B"), "1"), user("b"))

# Built-in tools.
case("browser", hi, args={"builtin_tools": ["browser"]})
case("python", hi, args={"builtin_tools": ["python"]})
case("both built-in", system("Cite."), hi, args={"builtin_tools": ["python", "browser"]}, tools=[weather])
case("python call", hi, assistant(thought("Compute."), call("python", "print(2+2)\n")), result("python", "4\n"), args={"builtin_tools": ["python"]})
case("browser call taken up", hi, assistant(thought("Search."), call("browser.search", '{"query": "go"}')), result("browser.search", "【0†go】"), assistant(thought("Good."), "Found."), user("More"), assistant(call("browser.open")), result("browser.open", "x"), args={"builtin_tools": ["browser"]}, drop="guide")
case("browser call", hi, assistant(call("browser.search", '{"query": "go"}')), result("browser.search", "【0†go】"), assistant("Found."), user("More"), args={"builtin_tools": ["browser"]})

# Functions.
one = [user("Weather in Oakland?"), assistant(thought("Look it up."), call("get_weather", '{"location":"Oakland"}')), result("get_weather", '{"temperature": 20}')]
case("tools", hi, tools=[weather, shell, here])
case("tools and instructions", system("Be brief."), hi, tools=[weather])
case("hidden tools", system("Be brief."), hi, tools=[weather], hide_tools=True)
case("one call", *one, tools=[weather])
case("answered call", *one, assistant("Mild."), user("Thanks"), tools=[weather])
case("answered call with thought", *one, assistant(thought("20 is mild."), "Mild."), user("Thanks"), tools=[weather])
case("abandoned call", *one, user("Never mind."), assistant("Fine."), user("Bye"), tools=[weather], drop="guide")
case("second call loop", *one, assistant(thought("So."), "Mild."), user("And here?"), assistant(thought("Where?"), call("where_am_i")), result("where_am_i", "Oakland"), tools=[weather, here], drop="guide")
case("preamble", hi, assistant(thought("Plan."), "I will look.", call("get_weather", '{"location": "Rome"}')), result("get_weather", "warm"), tools=[weather])
case("parallel calls", hi, assistant(thought("Both."), call("get_weather", '{"location":"Rome"}', "c1"), call("get_weather", '{"location":"Bern"}', "c2")), result("get_weather", "warm", id="c1"), result("get_weather", "cold", id="c2"), tools=[weather])
case("results in another order", hi, assistant(call("get_weather", "{}", "c1"), call("shell", "{}", "c2")), result("shell", "s", id="c2"), result("get_weather", "w", id="c1"), tools=[weather, shell])
case("interleaved", hi, assistant(thought("A"), call("shell", "{}", "c1"), thought("B"), call("shell", "{}", "c2"), thought("C"), "on the way", call("shell", "{}", "c3")), result("shell", "1", id="c1"), result("shell", "2", id="c2"), result("shell", "3", id="c3"), tools=[shell])
case("commentary and final", hi, assistant("Let me look.", "Here it is."), user("Thanks"), api="messages")
case("text behind a call", hi, assistant(call("shell", "{}"), "Called."), result("shell", "ok"), tools=[shell])
case("empty text and call", hi, assistant("", call("shell", "{}")), result("shell", "ok"), tools=[shell])
case("arguments as they came", hi, assistant(call("shell", '{ "b":1.50,  "a" : "\\u00e9<>&" }')), result("shell", "ok"), tools=[shell])
case("broken arguments", hi, assistant(call("shell", '{"command": [')), result("shell", "error"), tools=[shell])
case("no arguments", hi, assistant(call("shell", "")), result("shell", "ok"), tools=[shell])
case("dotted name", hi, assistant(call("mcp.fs.read", '{"p":1}')), result("mcp.fs.read", "x"), tools=[tool("mcp.fs.read", obj({"p": {"type": "number"}}))])
case("result parts", hi, assistant(call("shell")), result("shell", "a", "b"), tools=[shell])
case("result parts of messages", hi, assistant(call("shell")), turn("user", {"result": {"id": "call_shell", "texts": ["a", "b"]}}, "Note this."), tools=[shell], api="messages")
case("empty result", hi, assistant(call("shell")), result("shell", ""), tools=[shell])
case("calls without tools", *one)
case("late system in a loop", *one, system("Hurry."), tools=[weather])
case("custom tool", hi, assistant({"call": {"id": "c", "name": "patch", "args": "*** Begin\n\"x\"", "custom": True}}), result("patch", "ok", id="c"), tools=[{"name": "patch", "description": "Patches.", "custom": True, "parameters": None}])

# Formats.
case("format", hi, format={"name": "shopping_list", "schema": {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}}})
case("format, tools, instructions", system("Shop."), hi, tools=[weather], format={"name": "x", "schema": {"type": "object"}})

# Types.
types = {
    "empty object": {"type": "object", "properties": {}},
    "object without properties": {"type": "object"},
    "empty schema": {},
    "open object": {"type": "object", "additionalProperties": True},
    "scalars": obj({"s": {"type": "string"}, "n": {"type": "number"}, "i": {"type": "integer"}, "b": {"type": "boolean"}, "z": {"type": "null"}, "u": {}}, ["s", "i"]),
    "enum": obj({"e": {"type": "string", "enum": ["a", "b c", "q\"q"]}, "f": {"type": "string", "enum": []}, "g": {"type": "integer", "enum": [1, 2]}, "h": {"enum": ["x"]}, "m": {"type": "string", "enum": [1, "y"]}}),
    "arrays": obj({"a": {"type": "array"}, "b": {"type": "array", "items": {"type": "integer"}}, "c": {"type": "array", "items": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}}}, "d": {"type": "array", "items": {}}}),
    "array of objects": obj({"edits": {"type": "array", "description": "What to change", "items": obj({"old": {"type": "string", "description": "text"}, "new": {"type": "string"}}, ["old"])}}, ["edits"]),
    "nested": obj({"o": obj({"p": obj({"q": {"type": "string", "description": "deep", "default": "d"}}, ["q"], description="inner"), "r": {"type": "number"}}, ["p"], description="outer")}, ["o"]),
    "root description": obj({"a": {"type": "string"}}, description="The root."),
    "several types": obj({"a": {"type": ["string", "null"]}, "b": {"type": ["integer", "number"]}, "c": {"type": ["object", "array"], "default": None}, "d": {"type": []}}),
    "nullable": obj({"a": {"type": "string", "nullable": True}, "b": {"type": "array", "items": {"type": "string"}, "nullable": True}, "c": {"type": "string", "nullable": False}, "d": {"type": ["string", "null"], "nullable": True}, "e": obj({"x": {"type": "string"}}, nullable=True)}),
    "defaults": obj({"s": {"type": "string", "default": "a \"b\"\nc"}, "n": {"type": "number", "default": 1.5}, "w": {"type": "number", "default": 10.0}, "i": {"type": "integer", "default": -3}, "b": {"type": "boolean", "default": False}, "z": {"type": "string", "default": None}, "l": {"type": "array", "items": {"type": "string"}, "default": ["a", "é", "\t\u0001"]}, "o": {"type": "object", "default": {"k": [1, {"m": "n"}], "j": 1e100}}, "e": {"type": "string", "enum": ["x"], "default": "x"}, "t": {"type": "number", "default": 1e-7}, "h": {"type": "number", "default": 123456789012345680.0}, "y": {"type": "number", "default": 0.00001}, "x": {"type": "integer", "default": 12345678901234567890}, "m": {"type": "integer", "enum": [1], "default": 1}, "v": {"type": "number", "default": -0.0}}),
    "titles and examples": obj({"a": {"type": "string", "title": "Name", "description": "The name", "examples": ["Ada", "Bob", 3]}, "b": {"type": "number", "examples": []}, "c": {"title": "Only"}}),
    "long description": obj({"a": {"type": "string", "description": "line one\nline two\n\nline four"}}),
    "oneOf": obj({"a": {"oneOf": [{"type": "string", "description": "a name", "default": "n"}, {"type": "integer", "nullable": True}, {"type": "string", "enum": ["x"], "default": "x"}]}}),
    "oneOf described": obj({"a": {"description": "outer", "default": "d", "oneOf": [{"type": "string", "description": "first"}, {"type": "number", "description": "second"}]}}, ["a"]),
    "oneOf same description": obj({"a": {"description": "same", "default": 3, "oneOf": [{"type": "string", "description": "same"}, {"type": "number", "description": "same", "default": 1}]}}),
    "oneOf enum default": obj({"a": {"enum": ["p"], "default": "p", "title": "T", "examples": ["p"], "oneOf": [obj({"k": {"type": "string", "description": "key"}}), {"type": "array", "items": {"type": "string"}}]}}),
    "oneOf, empty texts": obj({"a": {"description": "", "oneOf": [{"type": "string", "description": ""}, {"description": "", "type": "object", "default": {}}, {"default": [], "type": "array"}]}, "b": {"oneOf": [{"type": "string"}, {"type": "number", "description": ""}]}, "c": {"type": "array", "items": {"oneOf": [{"description": "", "type": "string"}]}}}),
    "oneOf empty": obj({"a": {"oneOf": [], "description": "none"}, "b": {"oneOf": "x", "description": "odd", "default": 1}}),
    "oneOf at the root": {"oneOf": [obj({"a": {"type": "string"}}, ["a"]), obj({"b": {"type": "number"}}, description="by number", default="b")]},
    "oneOf in items": obj({"a": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "string", "enum": ["z"], "default": "z"}]}}}),
    "anyOf": obj({"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "A"}, "b": {"$ref": "#/$defs/B"}, "c": {"allOf": [{"type": "string"}]}}),
    "root anyOf": {"anyOf": [{"type": "object"}]},
    "names": obj({"a-b": {"type": "string"}, "c d": {"type": "string"}, "é": {"type": "string"}, "$x": {"type": "string"}}, ["c d"]),
}
for name, schema in types.items():
    case("types: " + name, hi, tools=[tool("f", schema)])
case("types: descriptions", hi, tools=[tool("a", None, "One\r\ntwo\n\nfour\n"), tool("b", None, "\n"), tool("c", types["scalars"], "// already")])


def no_parameters(schema):
    return schema is None or not any(k in schema for k in ("oneOf", "anyOf")) and not schema.get("properties") and not schema.get("additionalProperties")


def messages(c):
    args = c.get("args", {})
    api = c.get("api", "chat")
    sep = "\n" if api == "chat" else ""
    tools = [] if c.get("hide_tools") else c.get("tools", [])
    out = []
    effort = args.get("reasoning_effort") or c.get("effort") or ("low" if c.get("thinking") is False else "medium")
    effort = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(effort, effort)
    s = SystemContent.new().with_reasoning_effort(ReasoningEffort[effort.upper()])
    s = s.with_conversation_start_date(args.get("conversation_start_date", DATE))
    if "model_identity" in args:
        s = s.with_model_identity(args["model_identity"])
    if "knowledge_cutoff" in args:
        s = s.with_knowledge_cutoff(args["knowledge_cutoff"])
    builtin = args.get("builtin_tools", [])
    if "browser" in builtin:
        s = s.with_browser_tool()
    if "python" in builtin:
        s = s.with_python_tool()
    out.append(Message.from_role_and_content(Role.SYSTEM, s))

    def joined(blocks, sep=sep):
        return sep.join(b.get("text", b.get("refusal")) for b in blocks)

    turns = list(c["turns"])
    instructions = []
    if c.get("system"):
        instructions.append(("\n\n" if api == "responses" else "\n").join(c["system"]))
    while turns and turns[0]["role"] in ("system", "developer"):
        instructions.append(joined(turns.pop(0)["blocks"]))
    instructions = [i for i in instructions if i]
    d = DeveloperContent.new()
    if instructions:
        d = d.with_instructions("\n\n".join(instructions))
    if tools:
        descriptions = []
        for t in tools:
            parameters = None if no_parameters(t["parameters"]) else t["parameters"]
            if t.get("custom"):
                parameters = obj({"input": {"type": "string"}}, ["input"])
            descriptions.append(ToolDescription(name=t["name"], description=t["description"], parameters=parameters))
        d = d.with_tools(ToolNamespaceConfig(name="functions", description=None, tools=descriptions))
    m = Message.from_role_and_content(Role.DEVELOPER, d)
    if "format" in c:
        text = "# Response Formats\n\n## " + c["format"]["name"] + "\n\n" + json.dumps(c["format"]["schema"], separators=(",", ":"))
        m = m.adding_content(TextContent(text="\n\n" + text if instructions or tools else text))
    if instructions or tools or "format" in c:
        out.append(m)

    def is_builtin(name):
        return name in builtin or name.split(".")[0] in builtin

    names = {}
    for t in turns:
        blocks = t["blocks"]
        for b in blocks:
            if "result" in b:
                name = names[b["result"]["id"]]
                author = Author.new(Role.TOOL, name if is_builtin(name) else "functions." + name)
                r = Message.from_author_and_content(author, sep.join(b["result"]["texts"]))
                out.append(r.with_recipient("assistant").with_channel("analysis" if is_builtin(name) else "commentary"))
        blocks = [b for b in blocks if "result" not in b]
        if t["role"] in ("system", "developer"):
            if joined(blocks):
                out.append(Message.from_role_and_content(Role.DEVELOPER, DeveloperContent.new().with_instructions(joined(blocks))))
        elif t["role"] == "user" and blocks:
            author = Author(role=Role.USER, name=t.get("name"))
            out.append(Message.from_author_and_content(author, joined(blocks)))
        elif t["role"] == "assistant":
            out.extend(answer(blocks, names, is_builtin))
    return out


def answer(blocks, names, is_builtin):
    def say(channel, text):
        return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)

    for i, b in enumerate(blocks):
        last = not any(k in later for later in blocks[i + 1:] for k in ("text", "call", "refusal"))
        if "thought" in b:
            yield say("analysis", b["thought"])
        elif "call" in b:
            name, args = b["call"]["name"], b["call"]["args"]
            names[b["call"]["id"]] = name
            if is_builtin(name):
                yield say("analysis", args).with_recipient(name).with_content_type("code")
                continue
            if b["call"].get("custom"):
                args = json.dumps({"input": args})
            yield say("commentary", args or "{}").with_recipient("functions." + name).with_content_type("<|constrain|>json")
        else:
            text = b.get("text", b.get("refusal"))
            if text or last and len(blocks) == 1:
                yield say("final" if last else "commentary", text)


def by_the_guide(list):
    """Takes the thoughts out of every answer that ended in final before a user spoke again."""
    keep, ends_final, taken_up = [], False, False
    for i in range(len(list) - 1, -1, -1):
        m = list[i]
        following = next((n for n in list[i + 1:] if n.author.role in (Role.ASSISTANT, Role.USER)), None)
        if m.author.role == Role.USER:
            taken_up, ends_final = True, False
        elif m.author.role == Role.ASSISTANT and (following is None or following.author.role == Role.USER):
            ends_final = m.channel == "final"
        if not (m.channel == "analysis" and ends_final and taken_up):
            keep.append(m)
    return keep[::-1]


for c in cases:
    drop = c.pop("drop", "library")
    conversation = messages(c)
    if drop == "guide":
        conversation = by_the_guide(conversation)
    conversation = Conversation.from_messages(conversation)
    config = RenderConversationConfig(auto_drop_analysis=drop == "library")
    if c.get("generate", True):
        tokens = enc.render_conversation_for_completion(conversation, Role.ASSISTANT, config)
    else:
        tokens = enc.render_conversation(conversation, config)
    c["want"] = enc.decode(tokens)
    c["ids"] = hashlib.sha256(struct.pack(f"<{len(tokens)}I", *tokens)).hexdigest()[:16]
    print(json.dumps(c, ensure_ascii=False))
