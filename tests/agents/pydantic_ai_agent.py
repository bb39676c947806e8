"""Pydantic AI's agent against hone over each API: an answer after a call of a tool, whole and streamed, and an answer that is
an object."""

import sys

from pydantic import BaseModel, ConfigDict
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

address, name = sys.argv[1:]
openai = OpenAIProvider(base_url=f"{address}/v1", api_key="none")
models = [
    OpenAIChatModel(name, provider=openai),
    OpenAIResponsesModel(name, provider=openai),
    OllamaModel(name, provider=OllamaProvider(base_url=f"{address}/v1")),
    AnthropicModel(name, provider=AnthropicProvider(base_url=address, api_key="none")),
]


class Greeting(BaseModel):
    """An object."""

    model_config = ConfigDict(extra="forbid")
    is_polite: bool


for model in models:
    agent = Agent(model)
    calls = []

    @agent.tool_plain
    def read_file(path: str) -> str:
        """Reads a file."""
        calls.append(path)
        return "A file."

    print(agent.run_sync("Say hello.").output)
    with agent.run_stream_sync("Say hello.") as stream:
        print(stream.get_output())
    assert calls == ["README.md", "README.md"], calls
# By their names, Pydantic AI takes other models of Anthropic's API for ones that cannot.
for model in models[:3]:
    greeting = Agent(model, output_type=NativeOutput(Greeting)).run_sync("Say hello.").output
    assert isinstance(greeting, Greeting), greeting
forced = Agent(models[0], output_type=Greeting).run_sync("Say hello.").output
assert isinstance(forced, Greeting), forced
