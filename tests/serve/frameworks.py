"""Agent frameworks, driven as their users drive them: each gives what a model said at last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12


class Point(TypedDict):
    """Where a thing is."""

    x: float
    tags: list[str]


def kitchen(log: list[Any]) -> list[Callable[..., str]]:
    """The tools of the session; what they are called with is added to the log."""

    def look(at: str) -> str:
        """Look at a place."""
        log.append(("look", at))
        return f"nothing at {at}"

    def weigh(point: Point, deep: dict[str, list[int]]) -> str:
        """Weigh what is at a point."""
        log.append(("weigh", point, deep))
        return "3 g"

    def note(text: str) -> str:
        """Keep a text."""
        log.append(("note", text))
        return text

    def now() -> str:
        """Tell the time."""
        log.append(("now",))
        return "noon\u2028é"

    return [look, weigh, note, now]


def schemas(tools):
    return [
        {"name": one.__name__, "description": one.__doc__, "parameters": TypeAdapter(one).json_schema()}
        for one in tools
    ]


def with_pydantic_ai(url, texts, log, kind="OpenAIChatModel", *, stream=True, **settings):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers.openai import OpenAIProvider

    async def talk():
        history, said = [], []
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            model = getattr(models, kind)("tiny", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, instructions="Be brief.", **settings)
            for tool in kitchen(log):
                agent.tool_plain(tool)
            for text in texts:
                if stream:
                    async with agent.run_stream_events(text, message_history=history) as events:
                        async for event in events:
                            last = event
                    found = last.result
                else:
                    found = await agent.run(text, message_history=history)
                said.append(found.output)
                history = found.all_messages()
        return said

    return asyncio.run(talk())


def with_agents(url, texts, log, kind="OpenAIChatCompletionsModel", *, stream=True, **settings):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)

    async def talk():
        history, said = [], []
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            tools = [agents.function_tool(tool, strict_mode=False) for tool in kitchen(log)]
            model = getattr(agents, kind)("tiny", client)
            agent = agents.Agent("cook", instructions="Be brief.", tools=tools, model=model, **settings)
            for text in texts:
                asked = [*history, {"role": "user", "content": text}]
                if stream:
                    found = agents.Runner.run_streamed(agent, asked)
                    async for _ in found.stream_events():
                        pass
                else:
                    found = await agents.Runner.run(agent, asked)
                said.append(found.final_output)
                history = found.to_input_list()
        return said

    return asyncio.run(talk())


def with_anthropic(url, texts, log, *, stream=True):
    import anthropic

    functions = {one.__name__: one for one in kitchen(log)}
    tools = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
        for one in schemas(functions.values())
    ]
    history, said = [], []
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        asked = {"model": "claude-sonnet-5", "max_tokens": 1000, "system": "Be brief.", "tools": tools}
        for text in texts:
            history.append({"role": "user", "content": text})
            while True:
                if stream:
                    with client.messages.stream(**asked, messages=history) as told:
                        found = told.get_final_message()
                else:
                    found = client.messages.create(**asked, messages=history)
                history.append(found.to_param())
                results = [
                    {"type": "tool_result", "tool_use_id": one.id, "content": functions[one.name](**one.input)}
                    for one in found.content
                    if one.type == "tool_use"
                ]
                if not results:
                    break
                assert found.stop_reason == "tool_use"
                history.append({"role": "user", "content": results})
            said.append("".join(one.text for one in found.content))
    return said
