import anthropic

from anthropic_client import client, user
from cases import BASE, KEY, MODEL, equal, run


def raised(kind, call):
    try:
        call()
    except anthropic.APIStatusError as e:
        assert type(e) is kind, f"{e!r} is no {kind.__name__}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def create(c=client, **body):
    return c.messages.create(**{"model": MODEL, "max_tokens": 10, "messages": user("hello"), **body})


def unknown_model():
    e = raised(anthropic.NotFoundError, lambda: create(model="no/such"))
    equal(e.body["error"]["type"], "not_found_error")
    assert e.request_id, e


def no_messages():
    assert "messages" in raised(anthropic.BadRequestError, lambda: create(messages=[])).message


def error_before_a_stream():
    def streamed():
        with client.messages.stream(model="no/such", max_tokens=10, messages=user("hello")) as stream:
            stream.get_final_message()

    raised(anthropic.NotFoundError, streamed)


def prompt_too_long():
    assert "prompt is too long" in raised(anthropic.BadRequestError, lambda: create(messages=user("word " * 60_000))).message


def wrong_key():
    other = anthropic.Anthropic(base_url=BASE, api_key="wrong", max_retries=0)
    raised(anthropic.AuthenticationError, lambda: create(other))


def either_header():
    assert KEY != "any", "the suite runs with keys"
    equal(create().role, "assistant")
    equal(create(anthropic.Anthropic(base_url=BASE, auth_token=KEY, api_key=None, max_retries=0)).role, "assistant")


run(unknown_model, no_messages, error_before_a_stream, prompt_too_long, wrong_key, either_header)
