"""Uses the tools of a running `hone serve` through the package `mcp`; takes the server's address.

    python tests/clients/mcp_client.py http://127.0.0.1:11435
"""

import asyncio
import json
import sys

import mcp

QUERY = "What is the capital of France?"


def said(result):
    assert not result.is_error, result
    assert json.loads(result.content[0].text) == result.structured_content, result
    return result.structured_content


async def check_tools(client):
    assert client.server_info.name == "hone" and client.instructions, client.server_info
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"grade", "compare", "decide", "search_memory", "report"}, tools
    assert tools["grade"].input_schema["required"] == ["query", "answer"], tools["grade"]
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools.values()), tools


async def check_calls(client):
    grade = said(await client.call_tool("grade", {"query": QUERY, "answer": "Paris."}))
    assert grade["score"] in (1, 2, 3, 4, 5) or "probability" in grade or grade["failure"], grade
    verdict = said(await client.call_tool("compare", {"query": QUERY, "a": "Paris.", "b": "Rome."}))
    assert verdict["winner"] in ("A", "B", None), verdict
    questions = {"geography": {"type": "noul", "instructions": "Is this about geography?"}}
    decided = said(await client.call_tool("decide", {"state": QUERY, "questions": questions}))
    assert 0 <= decided["answers"]["geography"]["noul"] <= 1, decided
    found = said(await client.call_tool("search_memory", {"search": "France", "limit": 3}))
    assert len(found["engrams"]) <= 3, found
    assert "statistics" in said(await client.call_tool("report", {}))


async def check_errors(client):
    wrong = await client.call_tool("grade", {"query": QUERY})
    assert wrong.is_error and "answer" in wrong.content[0].text, wrong
    try:
        unknown = await client.call_tool("format_disk", {})
    except mcp.MCPError as error:
        assert error.error.code == -32602, error
    else:
        raise AssertionError(unknown)


async def main(address):
    # With the handshake of earlier versions of the protocol, and without it.
    for mode in ("legacy", "auto"):
        async with mcp.Client(f"{address}/mcp", mode=mode) as client:
            await check_tools(client)
            await check_calls(client)
            await check_errors(client)
            print(f"mcp: tools, calls and errors are as expected in {client.protocol_version}")


asyncio.run(main(sys.argv[1]))
