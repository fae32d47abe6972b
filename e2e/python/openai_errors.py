import openai

from cases import BASE, KEY, MODEL, equal, run
from openai_client import client, user


def raised(kind, call):
    try:
        call()
    except openai.APIStatusError as e:
        assert type(e) is kind, f"{e!r} is no {kind.__name__}"
        return e
    raise AssertionError(f"no {kind.__name__}")


def unknown_model():
    e = raised(openai.NotFoundError, lambda: client.chat.completions.create(model="no/such", messages=user("hello")))
    assert "no/such" in e.message, e.message


def unknown_model_retrieved():
    raised(openai.NotFoundError, lambda: client.models.retrieve("no/such"))


def bad_temperature():
    e = raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=user("hello"), temperature=9))
    assert "temperature" in e.message.lower(), e.message


def no_messages():
    e = raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=[]))
    assert "messages" in e.message, e.message


def wrong_type():
    e = raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=user("hello"), max_tokens="many"))
    assert "max_tokens" in e.message, e.message


def error_before_a_stream():
    raised(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=user("hello"), n=-1, stream=True))


def prompt_too_long():
    raised(openai.BadRequestError, lambda: client.completions.create(model=MODEL, prompt=[5] * 40_000, max_tokens=1))


def wrong_key():
    other = openai.OpenAI(base_url=BASE + "/v1", api_key="wrong", max_retries=0)
    e = raised(openai.AuthenticationError, lambda: other.models.list())
    equal(e.status_code, 401)


def right_key():
    assert KEY != "any", "the suite runs with keys"
    client.models.list()


run(
    unknown_model, unknown_model_retrieved, bad_temperature, no_messages, wrong_type, error_before_a_stream,
    prompt_too_long, wrong_key, right_key,
)
