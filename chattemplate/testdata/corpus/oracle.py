"""Renders chat templates with Python's Jinja2, set up as transformers sets it up.

Each line of standard input is a task in JSON: a template's source, its variables,
and, if the last message is to be continued, the tag that ends its text. Each line
of standard output is the outcome: {"text": ...}, or {"error": type, "message": ...}.
Numbers that a float cannot hold keep the spelling that they came with.
"""

import datetime
import functools
import json
import re
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 11, 29, 9, 5, 7)


class Spelled(float):
    """A float that prints as it was spelled."""

    def __new__(cls, text):
        number = float.__new__(cls, text)
        number.text = text
        return number

    def __repr__(self):
        return self.text

    __str__ = __repr__


def significant(text):
    return re.split("[eE]", text.lstrip("-"))[0].replace(".", "").strip("0")


def parse_float(text):
    number = float(text)
    survives = number not in (float("inf"), float("-inf")) and significant(text) == significant(repr(number))
    return number if survives else Spelled(text)


def marked(value):
    """Puts marks around numbers that json.dumps would spell its own way."""
    if isinstance(value, Spelled):
        return "\ue000" + value.text + "\ue001"
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [marked(item) for item in value]
    return value


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    text = json.dumps(marked(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return re.sub("\"(?:\ue000|\\\\ue000)(.*?)(?:\ue001|\\\\ue001)\"", r"\1", text)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the model says; its body is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _body(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


@functools.lru_cache(maxsize=16)
def compiled(source):
    return environment().from_string(source)


def render(task):
    text = compiled(task["template"]).render(**task["vars"])
    tag = task.get("tag")
    if not tag:
        return text
    place = text.rindex(tag.strip())
    if text[place : place + len(tag)] == tag:
        return text[:place]
    return text[:place].rstrip()


def main():
    for line in sys.stdin:
        try:
            outcome = {"text": render(json.loads(line, parse_float=parse_float))}
        except Exception as e:
            outcome = {"error": type(e).__name__, "message": str(e)}
        sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
