"""CrewAI against hone: a crew of one agent with a tool, over OpenAI's and Ollama's API, whole and streamed."""

import sys

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

address, model = sys.argv[1:]
calls = []


@tool("read_file")
def read_file(path: str) -> str:
    """Reads a file."""
    calls.append(path)
    return "A file."


for provider, base_url in (("openai", f"{address}/v1"), ("ollama", address)):
    for stream in (False, True):
        llm = LLM(model=f"{provider}/{model}", base_url=base_url, api_key="none", max_tokens=100, stream=stream)
        agent = Agent(role="Greeter", goal="Greet", backstory="You greet.", llm=llm, tools=[read_file], max_iter=3)
        task = Task(description="Say hello.", expected_output="A greeting", agent=agent)
        print(Crew(agents=[agent], tasks=[task]).kickoff())
print(calls)
