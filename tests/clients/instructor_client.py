"""Instructor against hone: answers that are objects, by a schema and by a call."""

import asyncio
import logging

import instructor
import openai
from instructor.core import InstructorRetryException

from checking import City, Form, address, model, one_cancelled, refused, run, story, turns

# It reports each refusal besides raising it.
logging.getLogger("instructor").setLevel(logging.CRITICAL)
connection = {"base_url": f"{address}/v1", "api_key": "none", "max_retries": 0, "timeout": 120}


class Trip(Form):
    """A trip to a city, as JSON."""

    destination: City


def client(mode):
    return instructor.from_openai(openai.OpenAI(**connection), mode=mode)


def ask(**options):
    request = {"model": model, "messages": turns, "temperature": 0, "max_tokens": 60, "max_retries": 0}
    return request | {"response_model": City} | options


def objects_are_answered():
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        assert isinstance(client(mode).chat.completions.create(**ask()), City)
        trip = client(mode).chat.completions.create(**ask(response_model=Trip))
        assert isinstance(trip.destination, City), trip


def objects_are_answered_asynchronously():
    asynchronous = instructor.from_openai(openai.AsyncOpenAI(**connection), mode=instructor.Mode.JSON_SCHEMA)
    assert isinstance(asyncio.run(asynchronous.chat.completions.create(**ask())), City)


def objects_are_streamed():
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        parts = list(client(mode).chat.completions.create_partial(**ask()))
        assert isinstance(parts[-1].city, str), parts


def errors_are_typed():
    schemas = client(instructor.Mode.JSON_SCHEMA)
    error = refused(InstructorRetryException, lambda: schemas.chat.completions.create(**ask(model="none"))).__cause__
    assert isinstance(error, openai.NotFoundError) and error.code == "model_not_found", error
    error = refused(InstructorRetryException, lambda: schemas.chat.completions.create(**ask(temperature=-1))).__cause__
    assert isinstance(error, openai.BadRequestError) and error.param == "temperature", error


def an_answer_is_cancelled():
    with one_cancelled():
        request = ask(messages=[{"role": "user", "content": story}], max_tokens=4000, response_model=None, stream=True)
        stream = client(instructor.Mode.JSON_SCHEMA).chat.completions.create(**request)
        next(iter(stream))
        stream.close()


run(
    objects_are_answered,
    objects_are_answered_asynchronously,
    objects_are_streamed,
    errors_are_typed,
    an_answer_is_cancelled,
)
