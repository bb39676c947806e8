"""Haystack's agent against hone: a chat completion and a response, whole and streamed, after a call of a tool."""

import sys

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

address, model = sys.argv[1:]


@tool
def read_file(path: str) -> str:
    """Reads a file."""
    return "A file."


for generator in (OpenAIChatGenerator, OpenAIResponsesChatGenerator):
    for streaming_callback in (None, lambda chunk: None):
        connection = {"api_base_url": f"{address}/v1", "api_key": Secret.from_token("none")}
        chat = generator(model=model, streaming_callback=streaming_callback, **connection)
        agent = Agent(chat_generator=chat, tools=[read_file])
        messages = agent.run(messages=[ChatMessage.from_user("Say hello.")])["messages"]
        assert messages[-2].tool_call_result.result == "A file.", messages
        print(messages[-1].text)
