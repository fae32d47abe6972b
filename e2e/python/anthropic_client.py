from anthropic import Anthropic, AsyncAnthropic

from cases import BASE, KEY, WEATHER_SCHEMA

client = Anthropic(base_url=BASE, api_key=KEY, max_retries=0, timeout=60)


def async_client():
    return AsyncAnthropic(base_url=BASE, api_key=KEY, max_retries=0, timeout=60)


def user(text):
    return [{"role": "user", "content": text}]


WEATHER = {"name": "get_weather", "description": "Tells the weather of a city.", "input_schema": WEATHER_SCHEMA}
