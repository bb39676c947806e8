"""OpenAI's own client against hone's Responses API. Arguments: the server's address and a model."""

import json
from typing import Literal

import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from checking import about_mill, address, mill, model, one_cancelled, run, story

client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
weather = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
    "strict": False,
}


class City(BaseModel):
    city: Literal["Paris", "Rome"]


def ask(text, **options):
    return {"model": model, "input": text, "max_output_tokens": 24, "temperature": 0} | options


def check_type(response):
    """The client reads leniently: this is what its types say."""
    Response.model_validate(response.to_dict())
    return response


def a_response_is_answered():
    response = client.responses.create(**ask("In which city is the Eiffel Tower?", metadata={"for": "test"}))
    check_type(response)
    assert "Paris" in response.output_text and response.metadata == {"for": "test"}, response
    assert response.usage.input_tokens > 10 and 0 < response.usage.output_tokens <= 24, response
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens, response
    assert response.status in ("completed", "incomplete"), response


def a_response_is_streamed():
    request = ask("In which city is the Eiffel Tower?", max_output_tokens=200)
    with client.responses.stream(**request) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert "Paris" in text and final.output_text == text, final
    assert client.responses.create(**request).output_text == text
    events = list(client.responses.create(**request, stream=True))
    for number, event in enumerate(events):
        TypeAdapter(ResponseStreamEvent).validate_python(event.to_dict())
        assert event.sequence_number == number, event
    types = [event.type.removeprefix("response.") for event in events]
    begin = ["created", "in_progress", "output_item.added", "content_part.added"]
    end = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert types[:4] == begin and types[-4:] == end, types
    assert set(types[4:-4]) == {"output_text.delta"}, types


def check_call(response):
    (call,) = response.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed"), call
    arguments = json.loads(call.arguments)
    assert set(arguments) == {"city", "unit"} and arguments["unit"] in ("celsius", "fahrenheit"), call
    return call


def a_file_is_read():
    file = {"type": "input_file", "filename": "mill.pdf", "file_data": f"data:application/pdf;base64,{mill}"}
    parts = [file, {"type": "input_text", "text": about_mill}]
    response = check_type(client.responses.create(**ask([{"role": "user", "content": parts}])))
    assert "1792" in response.output_text, response


def a_function_is_called():
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        question = "What is the weather in Paris?"
        request = ask(question, tools=[weather], tool_choice=choice, max_output_tokens=100)
        response = check_type(client.responses.create(**request))
        call = check_call(response)
        with client.responses.stream(**request) as stream:
            types = [event.type for event in stream]
            streamed = check_call(stream.get_final_response())
        assert "response.function_call_arguments.delta" in types and streamed.arguments == call.arguments, types
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 21 degrees"}
    request = ask([result], tools=[weather], previous_response_id=response.id)
    assert client.responses.create(**request).output_text
    items = [{"role": "user", "content": "What is the weather in Paris?"}, call.to_dict(), result]
    assert client.responses.create(**ask(items, tools=[weather])).output_text


def a_form_is_kept():
    request = ask("The capital of France, as JSON", max_output_tokens=60)
    assert client.responses.parse(**request, text_format=City).output_parsed.city in ("Paris", "Rome")
    with client.responses.stream(**request, text_format=City) as stream:
        assert stream.get_final_response().output_parsed.city in ("Paris", "Rome")


def responses_are_kept():
    first = client.responses.create(**ask("My name is Zoe."))
    second = client.responses.create(**ask("What is my name?", previous_response_id=first.id))
    assert second.previous_response_id == first.id, second
    assert client.responses.retrieve(second.id).to_dict() == second.to_dict()
    items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [item.role for item in items] == ["user", "assistant", "user"], items
    client.responses.delete(first.id)
    for ask_for in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        try:
            ask_for(first.id)
        except openai.NotFoundError:
            continue
        raise AssertionError("it is deleted")


def a_response_is_cancelled():
    begun = client.responses.create(**ask(story, max_output_tokens=4000, background=True))
    assert begun.status == "in_progress", begun
    assert client.responses.retrieve(begun.id).status == "in_progress"
    with one_cancelled():
        assert check_type(client.responses.cancel(begun.id)).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"
    with one_cancelled(), client.responses.stream(**ask(story, max_output_tokens=4000)) as stream:
        for _ in zip(range(9), stream):
            pass


def tokens_are_counted():
    counted = client.responses.input_tokens.count(model=model, input="In which city is the Eiffel Tower?")
    usage = client.responses.create(**ask("In which city is the Eiffel Tower?")).usage
    assert counted.input_tokens == usage.input_tokens, (counted, usage)


def errors_are_typed():
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "x", "detail": "auto"}]}]
    cases = [
        (ask(image), openai.BadRequestError, "input_image"),
        (ask("Hello", model="gpt"), openai.NotFoundError, "gpt"),
        (ask("Hello " * 20000), openai.BadRequestError, "shorten it by"),
        (ask("Hello", previous_response_id="resp_1"), openai.BadRequestError, "resp_1"),
    ]
    for request, kind, text in cases:
        for stream in (False, True):
            try:
                client.responses.create(**request, stream=stream)
            except kind as error:
                assert text in error.message, error
            else:
                raise AssertionError(f"{text} is no error")


run(
    a_response_is_answered,
    a_response_is_streamed,
    a_file_is_read,
    a_function_is_called,
    a_form_is_kept,
    responses_are_kept,
    a_response_is_cancelled,
    tokens_are_counted,
    errors_are_typed,
)
