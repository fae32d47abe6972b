from openai import AsyncOpenAI, OpenAI

from cases import BASE, KEY, WEATHER_SCHEMA

client = OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


def async_client():
    return AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0, timeout=60)


def user(text):
    return [{"role": "user", "content": text}]


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather of a city.",
        "parameters": WEATHER_SCHEMA,
    },
}
