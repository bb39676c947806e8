"""Anthropic's own client against hone. Arguments: the server's address and a model."""

import base64

import anthropic
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from checking import about_mill, address, mill, model, one_cancelled, run

client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0, timeout=120)
weather = {
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
}


def ask(text, **options):
    # The client knows no temperature any more; the API does.
    options = {"model": model, "max_tokens": 24, "extra_body": {"temperature": 0}} | options
    return options | {"messages": [{"role": "user", "content": text}]}


def check_type(message):
    """The client reads leniently: this is what its types say."""
    Message.model_validate(message.to_dict())
    return message


def a_message_is_answered():
    message = check_type(client.messages.create(**ask("In which city is the Eiffel Tower?", system="Be brief.")))
    assert "Paris" in message.content[0].text, message
    assert message.stop_reason in ("end_turn", "max_tokens"), message
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 10, message
    assert 0 < message.usage.output_tokens <= 24, message


def a_message_is_streamed():
    with client.messages.stream(**ask("In which city is the Eiffel Tower?")) as stream:
        text = "".join(stream.text_stream)
        final = check_type(stream.get_final_message())
    assert "Paris" in text and final.content[0].text == text, final
    assert final.usage.output_tokens > 0, final
    whole = client.messages.create(**ask("In which city is the Eiffel Tower?"))
    assert whole.content[0].text == text, whole
    events = list(client.messages.create(**ask("Hello"), stream=True))
    for event in events:
        TypeAdapter(RawMessageStreamEvent).validate_python(event.to_dict())
    types = [event.type for event in events]
    assert types[:2] == ["message_start", "content_block_start"], types
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"], types
    assert set(types[2:-3]) == {"content_block_delta"}, types
    start = events[0].message.usage
    assert start.input_tokens + start.cache_read_input_tokens > 0, start


def check_call(message):
    assert message.stop_reason == "tool_use", message
    (call,) = message.content
    assert (call.type, call.name) == ("tool_use", "get_weather"), call
    assert set(call.input) == {"city", "unit"} and call.input["unit"] in ("celsius", "fahrenheit"), call
    return call


def a_document_is_read():
    source = {"type": "base64", "media_type": "application/pdf", "data": mill}
    document = {"type": "document", "title": "mill.pdf", "source": source}
    message = client.messages.create(**ask([document, {"type": "text", "text": about_mill}]))
    assert "1792" in message.content[0].text, message


def a_tool_is_called():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        request = ask("What is the weather in Paris?", tools=[weather], tool_choice=choice, max_tokens=100)
        call = check_call(check_type(client.messages.create(**request)))
        with client.messages.stream(**request) as stream:
            events = [event.type for event in stream]
            streamed = check_call(check_type(stream.get_final_message()))
        assert "input_json" in events and streamed.input == call.input, (events, streamed, call)
    request = ask("What is the weather in Paris?", tools=[weather])
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny, 21 degrees"}]}
    request["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    answer = check_type(client.messages.create(**request))
    assert answer.content[0].type == "text" and answer.content[0].text, answer


def a_form_is_kept():
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    form = {"format": {"type": "json_schema", "schema": schema}}
    message = client.messages.create(**ask("The capital of France, as JSON", output_config=form))
    assert '"city"' in message.content[0].text, message


def a_stop_sequence_is_named():
    message = client.messages.create(**ask("Count from 1 to 9: 1, 2, 3,", stop_sequences=[","], max_tokens=60))
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ","), message
    assert "," not in message.content[0].text, message


def tokens_are_counted():
    request = ask("In which city is the Eiffel Tower?", system="Be brief.")
    usage = client.messages.create(**request).usage
    counted = client.messages.count_tokens(model=model, messages=request["messages"], system="Be brief.")
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage)


def errors_are_typed():
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}
    cases = [
        (ask([{"type": "image", "source": image}]), anthropic.BadRequestError, "invalid_request_error", "image"),
        (ask("Hello", model="claude"), anthropic.NotFoundError, "not_found_error", "claude"),
        (ask("Hello " * 20000), anthropic.BadRequestError, "invalid_request_error", "shorten it by"),
    ]
    for request, kind, name, text in cases:
        for stream in (False, True):
            try:
                client.messages.create(**request, stream=stream)
            except kind as error:
                assert error.type == name and text in error.api_message, error
                assert error.request_id.startswith("req_"), error
            else:
                raise AssertionError(f"{text} is no error")


def a_stream_that_is_left_ends():
    with one_cancelled(), client.messages.stream(**ask("Tell me a very long story.", max_tokens=4000)) as stream:
        for _ in zip(range(5), stream.text_stream):
            pass


run(
    a_message_is_answered,
    a_message_is_streamed,
    a_document_is_read,
    a_tool_is_called,
    a_form_is_kept,
    a_stop_sequence_is_named,
    tokens_are_counted,
    errors_are_typed,
    a_stream_that_is_left_ends,
)
