"""Clients and agent frameworks, as their users drive them, run a session of ten answers with tools, streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from tests.serve.conftest import running
from tests.serve.session import acting, call


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


ODD = 'a </tool_call> b "<tool_call>{" \\ \n\t \u2028 \U0001f333'
POINT, DEEP = {"x": 1.5, "tags": ["a", "木"]}, {"k": [1, 2], "": []}
WEIGH = call("weigh", point=POINT, deep=DEEP)
SCRIPTS = {
    "first": [
        call("look", at="Küche"),
        f"{call('look', at='キッチン')}\n{WEIGH}",
        f"I keep it.\n{call('note', text=ODD)}",
        WEIGH,
        "It weighs ECHO. \U0001f333",
    ],
    "second": [
        call("now"),
        f"First here, {call('look', at='')} then there: {call('look', at='there')}",
        call("note", text=ODD),
        f"{call('now')}{WEIGH}{call('note', text='<think>')}",
        "That was ECHO: é",
    ],
}
LOG = [
    ("look", "Küche"), ("look", "キッチン"), ("weigh", POINT, DEEP), ("note", ODD), ("weigh", POINT, DEEP),
    ("now",), ("look", ""), ("look", "there"), ("note", ODD), ("now",), ("weigh", POINT, DEEP),
    ("note", "<think>"),
]  # fmt: skip
ASKED = ["first: see", "second: go on"]
SAID = ["It weighs 3 g. \U0001f333", "That was <think>: é"]


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with running(acting(SCRIPTS)) as server:
        yield f"{server.url}/v1"


def schemas(tools):
    return [
        {"name": one.__name__, "description": one.__doc__, "parameters": TypeAdapter(one).json_schema()}
        for one in tools
    ]


def run(tools, name, arguments):
    """Run a tool as a loop of one's own does."""
    (tool,) = (one for one in tools if one.__name__ == name)
    return tool(**json.loads(arguments))


def chatting(create, log):
    """A loop of one's own over ``create``, from messages and tools to an assistant's message, streamed."""
    tools, messages, said = kitchen(log), [], []
    offered = [{"type": "function", "function": one} for one in schemas(tools)]
    for text in ASKED:
        messages.append({"role": "user", "content": text})
        while (answer := create(messages=messages, tools=offered)).tool_calls:
            messages.append(answer)
            for one in answer.tool_calls:
                result = run(tools, one.function.name, one.function.arguments)
                messages.append({"role": "tool", "tool_call_id": one.id, "content": result})
        said.append(answer.content)
        messages.append(answer)
    return said


def with_openai(url, log):
    from openai import OpenAI

    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:

        def create(**asked):
            with client.chat.completions.stream(model="tiny", **asked) as stream:
                for _ in stream:
                    pass
                return stream.get_final_completion().choices[0].message

        return chatting(create, log)


def with_openai_responses(url, log):
    from openai import OpenAI

    tools, items, said = kitchen(log), [], []
    offered = [{"type": "function", **one} for one in schemas(tools)]
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for text in ASKED:
            items.append({"role": "user", "content": text})
            calls = True
            while calls:
                with client.responses.stream(model="tiny", input=items, tools=offered) as stream:
                    for _ in stream:
                        pass
                    answer = stream.get_final_response()
                items += answer.output
                calls = [one for one in answer.output if one.type == "function_call"]
                for one in calls:
                    result = run(tools, one.name, one.arguments)
                    items.append({"type": "function_call_output", "call_id": one.call_id, "output": result})
            said.append(answer.output_text)
    return said


LITELLM = pytest.mark.filterwarnings("ignore")  # it warns of itself


def with_litellm(url, log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices
        litellm = pytest.importorskip("litellm", reason="litellm is not installed")

    def create(messages, **asked):
        settings = {"model": "openai/tiny", "api_base": url, "api_key": "none", "stream": True}
        chunks = list(litellm.completion(**settings, messages=messages, **asked))
        return litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message

    return chatting(create, log)


def with_pydantic_ai(url, log, kind="OpenAIChatModel"):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers.openai import OpenAIProvider

    async def talk():
        history, said = [], []
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            agent = Agent(
                getattr(models, kind)("tiny", provider=OpenAIProvider(openai_client=client)),
                instructions="Be brief.",
            )
            for tool in kitchen(log):
                agent.tool_plain(tool)
            for text in ASKED:
                async with agent.run_stream_events(text, message_history=history) as events:
                    async for event in events:
                        found = event
                said.append(found.result.output)
                history = found.result.all_messages()
        return said

    return asyncio.run(talk())


def with_agents(url, log, kind="OpenAIChatCompletionsModel"):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)

    async def talk():
        history, said = [], []
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            agent = agents.Agent(
                "cook", instructions="Be brief.",
                tools=[agents.function_tool(tool, strict_mode=False) for tool in kitchen(log)],
                model=getattr(agents, kind)("tiny", client),
            )  # fmt: skip
            for text in ASKED:
                found = agents.Runner.run_streamed(agent, [*history, {"role": "user", "content": text}])
                async for _ in found.stream_events():
                    pass
                said.append(found.final_output)
                history = found.to_input_list()
        return said

    return asyncio.run(talk())


def with_pydantic_ai_responses(url, log):
    return with_pydantic_ai(url, log, "OpenAIResponsesModel")


def with_agents_responses(url, log):
    return with_agents(url, log, "OpenAIResponsesModel")


DRIVES = [
    with_openai, with_openai_responses, pytest.param(with_litellm, marks=LITELLM), with_pydantic_ai,
    with_pydantic_ai_responses, with_agents, with_agents_responses,
]  # fmt: skip


@pytest.mark.parametrize("drive", DRIVES)
def test_a_session_of_ten_answers_with_tools(served, drive):
    log: list[Any] = []
    assert drive(served, log) == SAID
    assert sorted(log, key=repr) == sorted(LOG, key=repr)  # calls of one answer may run at once
