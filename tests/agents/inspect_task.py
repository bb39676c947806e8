"""A task of Inspect, which hone's model solves with a tool."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool


@tool
def read_file():
    async def execute(path: str) -> str:
        """Reads a file.

        Args:
            path: Where it is.
        """
        return "A file."

    return execute


@task
def hello():
    dataset = [Sample(input="Say hello.", target="Hello")]
    return Task(dataset=dataset, solver=[use_tools(read_file()), generate()], scorer=includes())
