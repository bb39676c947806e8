"""LlamaIndex against hone: a completion, whole and streamed, an agent that calls a tool, and an object."""

import asyncio
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, ConfigDict

address, name = sys.argv[1:]
connection = {"api_base": f"{address}/v1", "api_key": "none", "context_window": 8192, "max_tokens": 100}
model = OpenAILike(model=name, is_chat_model=True, is_function_calling_model=True, **connection)
calls = []


class Greeting(BaseModel):
    """An object."""

    model_config = ConfigDict(extra="forbid")
    is_polite: bool


def read_file(path: str) -> str:
    """Reads a file."""
    calls.append(path)
    return "A file."


async def answered():
    return await FunctionAgent(tools=[read_file], llm=model).run("Say hello.")


print(model.complete("Say hello."))
print("".join(piece.delta for piece in model.stream_complete("Say hello.")))
print(asyncio.run(answered()))
assert calls == ["README.md"], calls
assert isinstance(model.structured_predict(Greeting, PromptTemplate("Say hello.")), Greeting)
assert OpenAILike(model=name, is_chat_model=False, **connection).complete("Say hello.").text
