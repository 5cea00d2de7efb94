"""Embeddings: vectors of texts, made of the states by which a model scores tokens."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import Response
from numpy.typing import NDArray
from pydantic import Field, field_validator

from draftwood.api.prompts import check_fits, most_characters, text_ids
from draftwood.contracts import Watch
from draftwood.decoding.arrivals import check_request
from draftwood.decoding.request import Emission
from draftwood.errors import DraftwoodError, UsageError
from draftwood.serve.errors import FAILED, ApiError, as_api_error
from draftwood.serve.fields import MOST_MESSAGES, Every, Items, JsonObject, Name, RequestBody
from draftwood.serve.inbox import ServedText
from draftwood.serve.meanings import ALL, EMBEDDINGS, OLLAMA_EMBED, OLLAMA_EMBEDDING
from draftwood.serve.ollama_form import nanoseconds
from draftwood.serve.ollama_routes import without_tag
from draftwood.serve.request_log import TEXTS
from draftwood.serve.server import Server, told_ignored
from draftwood.serve.shapes import as_json
from draftwood.serve.streaming import unless_gone

_AT_ONCE = 4
"""Texts of a request that are in the queue at once: an index of code asks for hundreds, and others must get in."""
_NO_PLACES = np.empty(0, dtype=np.int64)
Dimensions = Annotated[int, Field(ge=1, le=ALL)]
Text = str | Sequence[int]
Vector = NDArray[np.float32]


class EmbeddingsRequest(RequestBody):
    """Body of ``/v1/embeddings``."""

    model: Name | None = None
    input: str | Items[str] | Every[int] | Items[Every[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Dimensions | None = None
    user: Annotated[str, Field(max_length=512)] | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _not_too_many(cls, given: Any) -> Any:
        if isinstance(given, list) and len(given) > MOST_MESSAGES and not isinstance(given[0], int):
            raise ValueError(f"{len(given):,} texts are too many: give at most {MOST_MESSAGES:,}")
        return given

    @property
    def texts(self) -> list[tuple[str, Text]]:
        """The texts, each with its place in the body."""
        given: Any = self.input
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            return [("input", given)]
        return [(f"input.{number}", text) for number, text in enumerate(given)]


class OllamaEmbed(RequestBody):
    """Body of ``/api/embed``."""

    model: Name | None = None
    input: str | Items[str] = ""
    truncate: bool = True
    dimensions: Dimensions | None = None
    keep_alive: Any = None

    @property
    def texts(self) -> list[tuple[str, Text]]:
        """The texts, each with its place in the body; none of an empty one, by which clients load a model."""
        if isinstance(self.input, str):
            return [("input", self.input)] if self.input else []
        return [(f"input.{number}", text) for number, text in enumerate(self.input)]


class OllamaEmbedding(RequestBody):
    """Body of ``/api/embeddings``, which is older."""

    model: Name | None = None
    prompt: str = ""
    keep_alive: Any = None


class StatePool:
    """Makes one vector of a text's states: of their mean or of the ``last`` one, of length 1.

    It has the same bits however the text was divided when it was read, if the states have.
    """

    def __init__(self, pooling: Literal["mean", "last"]) -> None:
        self._takes_last = pooling == "last"
        self._sum: NDArray[np.float64] | None = None

    def see(self, states: Any) -> None:
        """Take in the states of the next tokens, [n, width] of NumPy or torch."""
        rows = states.detach().float().cpu().numpy() if hasattr(states, "detach") else np.asarray(states)
        for row in rows[-1:] if self._takes_last else rows:  # one after another, so that each sum is rounded alike
            one = row.astype(np.float64)
            self._sum = one if self._sum is None or self._takes_last else self._sum + one

    def vector(self, dimensions: int | None) -> Vector:
        """Return the vector, or its first ``dimensions`` numbers made one of length 1."""
        found = np.zeros(0) if self._sum is None else self._sum
        if dimensions is not None and dimensions > len(found):
            said = f"dimensions is {dimensions:,}, and this model's vectors have {len(found):,}: ask for fewer"
            raise ApiError(said, param="dimensions")
        cut = found[:dimensions]
        length = float(np.sqrt((cut * cut).sum()))
        return (cut / (length or 1.0)).astype(np.float32)


class _Reading:
    """One text that the worker reads for its states; the one token that is written after it is dropped."""

    def __init__(self, server: Server, ids: Sequence[int], loop: asyncio.AbstractEventLoop) -> None:
        setup, self._loop, self._told = server.setup, loop, asyncio.Queue[Emission]()
        self.generation = None  # it writes nothing
        self.pool, layer = StatePool(server.settings.pooling), max(setup.target.capabilities.hidden)
        request = setup.request(ids, max_new_tokens=1, temperature=0, stop=[], drafters=())
        watch = Watch(lambda *_: None, _NO_PLACES, (layer,), lambda _first, states: self.pool.see(states[layer]))
        self.job = ServedText(replace(request, shown=watch), self._deliver, is_passing=True)
        check_request(self.job.request, setup.target)

    def _deliver(self, emission: Emission) -> None:
        if emission.finish is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.put_nowait, emission)

    async def ended(self) -> None:
        """Wait until the text has been read; raises `ApiError` where it was not."""
        emission = await self._told.get()
        if emission.error is not None:
            raise as_api_error(emission.error)
        if not emission.tokens:
            said = f"the text was not read to its end ({emission.finish}): ask again"
            raise ApiError(said, FAILED, code="server_error")


class Embedded(NamedTuple):
    """What a request gets."""

    vectors: Sequence[Vector]
    tokens: int  # of all texts


async def embedded(
    server: Server, http: Request, texts: Sequence[tuple[str, Text]], dimensions: int | None, *, cuts: bool = False
) -> Embedded:
    """Return the vectors of texts with their places in the body; raises `ApiError`.

    ``cuts``: texts that are too long are cut at their end, else they are refused.
    """
    if not server.setup.target.capabilities.hidden:
        raise ApiError("this engine shows no states of texts, of which vectors are made: serve with --engine cpu")
    loop = asyncio.get_running_loop()
    readings = await server.aside(http, partial(_readings, server, texts, loop, cuts=cuts), min(1, len(texts)))
    http.scope.get(TEXTS, []).extend(readings)
    vectors = await unless_gone(http, _read(server, readings, dimensions))
    return Embedded(vectors, sum(len(one.job.request.prompt) for one in readings))


def _readings(
    server: Server, texts: Sequence[tuple[str, Text]], loop: asyncio.AbstractEventLoop, *, cuts: bool
) -> list[_Reading]:
    found = list[_Reading]()
    for place, text in texts:
        try:
            found.append(_Reading(server, _ids(server, text, cuts=cuts), loop))
        except DraftwoodError as error:
            said = as_api_error(error)
            said.param = place
            raise said from error
    return found


def _ids(server: Server, text: Text, *, cuts: bool) -> list[int]:
    """Return the ids of a text, between those that the tokenizer puts around every text."""
    if not text:
        raise UsageError("a text is empty: leave it out")
    if not isinstance(text, str):
        return list(text)
    tokenizer, takes = server.setup.tokenizer, server.setup.target.capabilities.max_positions
    if cuts:
        text = text[: most_characters(tokenizer, takes)]
    else:
        check_fits(text, tokenizer, takes)
    around = list(tokenizer("")["input_ids"])
    before = around[:1] if around[:1] == [getattr(tokenizer, "bos_token_id", None)] else []
    behind = around[len(before) :]
    ids = text_ids(text, tokenizer, special=server.settings.special_tokens)
    most = max(1, takes - 1 - len(around)) if cuts else None
    return [*before, *ids[:most], *behind]


async def _read(server: Server, readings: Sequence[_Reading], dimensions: int | None) -> list[Vector]:
    found = list[Vector]()
    try:
        for first in range(0, len(readings), _AT_ONCE):
            some = readings[first : first + _AT_ONCE]
            for one in some:
                await server.worker.inbox.room()
                server.worker.submit([one.job])
            for one in some:
                await one.ended()
                found.append(one.pool.vector(dimensions))
    finally:
        for one in readings:
            one.job.cancel()
    return found


async def _listed(some: Iterable[Any]) -> str:
    """Return a list of JSON, made in turns with the answers of others: it may have millions of numbers."""
    found = list[str]()
    for one in some:
        found.append(as_json(one))
        await asyncio.sleep(0)
    return f"[{','.join(found)}]"


def _entry(number: int, vector: Vector, asked: EmbeddingsRequest) -> JsonObject:
    is_packed = asked.encoding_format == "base64"
    told = base64.b64encode(vector.astype("<f4").tobytes()).decode() if is_packed else vector.tolist()
    return {"object": "embedding", "index": number, "embedding": told}


def _answered(body: JsonObject, name: str, listed: str, ignored: Sequence[str]) -> Response:
    """Return a body with one more field, whose value is JSON already."""
    said = f'{{"{name}":{listed},{as_json(body)[1:]}'
    return Response(said.encode(), headers=told_ignored(ignored), media_type="application/json")


def add_embeddings(app: FastAPI, server: Server) -> None:
    """Add the routes of OpenAI's API and of Ollama's."""

    @app.post(EMBEDDINGS)
    async def embeddings(http: Request, asked: EmbeddingsRequest) -> Response:
        name, texts = server.names.checked(asked.model), asked.texts
        if not texts:
            raise ApiError("the input is empty: give a text, token ids, or several of either", param="input")
        vectors, tokens = await embedded(server, http, texts, asked.dimensions)
        entries = (_entry(number, vector, asked) for number, vector in enumerate(vectors))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        body = {"object": "list", "model": name, "usage": usage}
        return _answered(body, "data", await _listed(entries), asked.ignored)

    @app.post(OLLAMA_EMBED)
    async def embed(http: Request, asked: OllamaEmbed) -> Response:
        begun, name = perf_counter(), without_tag(server, asked.model)
        vectors, tokens = await embedded(server, http, asked.texts, asked.dimensions, cuts=asked.truncate)
        listed = await _listed(vector.tolist() for vector in vectors)
        spent = nanoseconds(perf_counter() - begun)
        body = {"model": name, "total_duration": spent, "load_duration": 0, "prompt_eval_count": tokens}
        return _answered(body, "embeddings", listed, asked.ignored)

    @app.post(OLLAMA_EMBEDDING)
    async def embedding(http: Request, asked: OllamaEmbedding, said: Response) -> JsonObject:
        without_tag(server, asked.model)
        texts = [("prompt", asked.prompt)] if asked.prompt else []
        vectors, _ = await embedded(server, http, texts, None, cuts=True)
        said.headers.update(told_ignored(asked.ignored))
        return {"embedding": vectors[0].tolist() if vectors else []}
