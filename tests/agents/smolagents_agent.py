"""smolagents against hone: an agent whose every step is a call of a tool, the last one of them with the answer."""

import sys

from smolagents import OpenAIModel, ToolCallingAgent

address, name = sys.argv[1:]
model = OpenAIModel(model_id=name, api_base=f"{address}/v1", api_key="none", max_tokens=100)
for stream_outputs in (False, True):
    agent = ToolCallingAgent(tools=[], model=model, max_steps=1, stream_outputs=stream_outputs, verbosity_level=0)
    result = agent.run("Say hello.", return_full_result=True)
    assert result.state == "success", result
    print(result.output)
