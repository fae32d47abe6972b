"""Writes harmony.jsonl: generations, and the messages that openai-harmony reads in them.

    pip install openai-harmony==0.0.8
    python harmony.py > harmony.jsonl

The library loads o200k_base.tiktoken from the folder that the environment
variable TIKTOKEN_ENCODINGS_BASE names, or else from the network.

A generation is a list of strings: in every second one, control tokens are
spelled and are text, as inside of JSON strings, where our parser of text can
tell. What the library refuses is not listed. It reads tokens and
the whole of a message; "streamed" is what its parser of streams had read of the
last one.
"""

import itertools
import json

from openai_harmony import HarmonyEncodingName, Role, StreamableParser, load_harmony_encoding

enc = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
start = "<|start|>assistant"
generations = []


def case(*parts):
    generations.append(parts)


bodies = ['{"a":1}', '{ "s":"naïve \\"q\\" 漢 👩‍👩‍👧", "n":[1.50,{}]}', "{}", 'print("hi")\n', '{"a":oops}', '{"a":"x}', "[1, 2]", "  {}", "", "42"]
headers = [before + to + after for before, to, after in [
    ("<|channel|>commentary", " to=functions.f", " <|constrain|>json"),
    ("<|channel|>commentary", " to=functions.f", "<|constrain|>json"),
    ("<|channel|>commentary", " to=functions.f", " json"),
    ("<|channel|>commentary", " to=functions.f", ""),
    ("<|channel|>analysis", " to=functions.f", " code"),
    ("", " to=functions.f", "<|channel|>commentary <|constrain|>json"),
    ("", " to=functions.f", "<|channel|>commentary json"),
    ("", " to=functions.f", "<|channel|>analysis"),
    ("", " to=functions.ns.f-2", ""),
    ("<|channel|>commentary", " to=functions.a.b.c", " <|constrain|>json"),
]]
for i, header in enumerate(headers):
    case(header + "<|message|>" + bodies[i] + "<|call|>")
for body in bodies:
    case(headers[0] + "<|message|>" + body + "<|call|>")
for end in ["<|end|>", "<|return|>", "<|call|>"]:
    case("<|channel|>final<|message|>Done." + end)
    case(headers[0] + "<|message|>{}" + end)
for channel in ["final", "analysis", "commentary", "summary"]:
    case("<|channel|>" + channel + "<|message|> a\n\nb <|end|>")
    case("<|channel|>" + channel + " to=user<|message|>a<|end|>")
    case(" to=all<|channel|>" + channel + "<|message|>a<|end|>")
case("<|message|>No channel.<|return|>")
for parts in itertools.product(["<|channel|>analysis<|message|>Plan.<|end|>"], ["", "<|channel|>commentary<|message|>Look.<|end|>"], [headers[0] + '<|message|>{"a":1}<|call|>', headers[5] + "<|message|>{}<|call|>"], ["", headers[4] + "<|message|>{}<|call|>", "<|channel|>final<|message|>So.<|return|>"]):
    case(start.join(p for p in parts if p))
case("<|channel|>final<|message|>no end")
case("<|channel|>analysis<|message|>a<|end|>" + start + "<|channel|>final<|message|>naïve 漢")
case(headers[0] + '<|message|>{"a":1}')
case(headers[0] + '<|message|>{"a":"', '<|call|><|start|>\\"<|end|>', '"}<|call|>')
case(headers[0] + '<|message|>["', '<|message|>', '","', "<|channel|>", '"]<|call|>' + start + "<|channel|>final<|message|>ok<|return|>")
case("<|channel|>final<|message|>a < b, <|b and <| c<|return|>")
case("  <|channel|>final <|message|>blanks<|return|>")
case("<|channel|>analysis<|message|><|end|>" + start + "<|channel|>final<|message|><|return|>")
case("<|channel|>analysis to=browser.search code<|message|>{}<|call|>")
case("<|channel|>analysis to=python code<|message|>1+1<|call|>")

seen = set()
for parts in generations:
    if parts in seen:
        continue
    seen.add(parts)
    tokens = []
    for i, part in enumerate(parts):
        tokens += enc.encode(part, allowed_special="all") if i % 2 == 0 else enc.encode(part, disallowed_special=())
    try:
        messages = enc.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    except Exception:
        continue
    stream = StreamableParser(enc, Role.ASSISTANT)
    for token in tokens:
        stream.process(token)
    print(json.dumps({
        "parts": parts,
        "messages": [{"channel": m.channel, "recipient": m.recipient, "text": m.content[0].text} for m in messages],
        "streamed": stream.current_content,
    }, ensure_ascii=False))
