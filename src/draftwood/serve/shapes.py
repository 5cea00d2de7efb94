"""Parts of responses: server-sent events, usage, log-probabilities, traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

from draftwood.api.text import Spelling
from draftwood.serve.answer import Choice, ToldToken, Update
from draftwood.serve.fields import JsonObject
from draftwood.serve.logprobs import SpelledToken, TokenLogprobs
from draftwood.serve.thoughts import TAGS
from draftwood.step import MODEL, Step

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Line ends of Unicode at which some clients split events; json.dumps escapes other line ends, but not these."""


def event(body: JsonObject, kind: str | None = None) -> bytes:
    """Return an event, of a ``kind`` if it has one; lone surrogates are escaped, as UTF-8 cannot hold them."""
    data = as_json(body).translate(_LINE_ENDS)
    head = "" if kind is None else f"event: {kind}\n"
    return f"{head}data: {data}\n\n".encode(errors="backslashreplace")


def json_line(body: JsonObject) -> bytes:
    """Return a body as a line of its own; lone surrogates are escaped, as in `event`."""
    return f"{as_json(body).translate(_LINE_ENDS)}\n".encode(errors="backslashreplace")


def as_json(body: Any) -> str:
    """Return a body as JSON in the letters of its language."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def usage_of(answers: Sequence[Choice]) -> JsonObject:
    """Return a request's usage; the tokens of each prompt count once, however many choices it has."""
    prompts = {id(answer.job.request.prompt): answer for answer in answers}.values()
    prompt, cached = sum(one.generation.prompt_tokens for one in prompts), sum(one.job.cached for one in prompts)
    written = sum(len(answer.generation.ids) for answer in answers)
    steps = [step for answer in answers for step in answer.generation.steps]
    accepted, rejected = (sum(part) for part in zip(*(answer.predicted for answer in answers), strict=True))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
            "reasoning_tokens": sum(answer.thought_tokens for answer in answers),
        },
        "draftwood": {
            "drafters": answers[0].drafters,
            "passes": len(steps),
            "draft_tokens": sum(step.drafted for step in steps),
            "accepted_tokens": sum(step.accepted for step in steps),
            "cached_on_disk_tokens": sum(one.job.stored for one in prompts),
        },
    }


class Spent(NamedTuple):
    """Seconds of a text: until the worker took it up, of reading its prompt, and of its passes; and all."""

    waited: float
    read: float
    wrote: float
    all: float


def spent_on(answer: Choice) -> Spent:
    """Return what a text took up to now."""
    job, all_ = answer.job, perf_counter() - answer.job.arrived
    waited = (job.begun or job.arrived) - job.arrived
    wrote = sum(step.seconds for step in answer.generation.steps)
    return Spent(waited, max(0.0, all_ - waited - wrote), wrote, all_)


def chat_logprobs(some: Sequence[ToldToken], spelling: Spelling) -> list[JsonObject]:
    """Return log-probabilities as chats and responses have them."""
    return [
        {
            **_entry(spelled.text, spelled.bytes, scored.logprob),
            "top_logprobs": [_candidate(spelled, scored, *pair, spelling) for pair in scored.top],
        }
        for spelled, scored in some
        if scored is not None
    ]


def _entry(text: str, own: bytes, logprob: float) -> JsonObject:
    return {"token": text, "logprob": logprob, "bytes": list(own)}


def _candidate(
    spelled: SpelledToken, scored: TokenLogprobs, token: int, logprob: float, spelling: Spelling
) -> JsonObject:
    if token == scored.token:
        return _entry(spelled.text, spelled.bytes, logprob)
    own = b"" if spelling.special(token) else spelling.piece(token)
    text = spelling.name(token)
    return _entry(text, text.encode() if own is None else own, logprob)


def text_logprobs(some: Sequence[ToldToken], spelling: Spelling) -> JsonObject:
    """Return log-probabilities as plain texts have them."""
    scores = [scored for _, scored in some]
    wants_top = any(scored is not None and scored.top for scored in scores)
    return {
        "tokens": [spelled.text for spelled, _ in some],
        "token_logprobs": [None if scored is None else scored.logprob for scored in scores],
        "top_logprobs": [_best(*one, spelling) for one in some] if wants_top else None,
        "text_offset": [spelled.offset for spelled, _ in some],
    }


def _best(spelled: SpelledToken, scored: TokenLogprobs | None, spelling: Spelling) -> dict[str, float] | None:
    """Return log-probabilities by text, of the best tokens and the one that came; a repeated text by its id."""
    if scored is None:
        return None
    found = {spelled.text: scored.logprob}
    for token, logprob in scored.top:
        if token != scored.token:
            text = spelling.name(token)
            found[f"token_id:{token}" if text in found else text] = logprob
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def told_of(answer: Choice, update: Update) -> JsonObject:
    """Return the trace of one update of a stream: its text by source, and the step that it comes from."""
    pieces = [{"text": piece.text.translate(TAGS), "source": piece.source} for piece in update.pieces]
    step = None if update.step is None else _step(update.step, answer)
    return {"pieces": pieces, "tokens": update.tokens, "step": step}


def _step(step: Step, answer: Choice) -> JsonObject:
    """Return a step as JSON; its tree as texts, parents (-1: the root), sources, and indices of accepted nodes."""
    trace, tree = step.trace, None
    if trace and trace.get("tokens"):
        sources = ["model" if source == MODEL else answer.names[source] for source in trace["source"]]
        texts = [answer.spelling.full([token]) for token in trace["tokens"]]
        path, parents = list(trace["path"]), list(trace["parents"])
        tree = {"texts": texts, "parents": parents, "sources": sources, "path": path}
    said = {"index": step.index, "drafted": step.drafted, "accepted": step.accepted}
    return {**said, "ms": round(step.seconds * 1e3, 3), "tree": tree}


def summary_of(answer: Choice) -> JsonObject:
    """Return the trace of one choice of a whole response: rates, and a record per step, as in our files."""
    rates, found = answer.generation.stats, answer.generation
    return {
        "index": answer.index,
        "sources": found.sources,
        "prefill_seconds": found.prefill_s,
        "passes": rates.passes,
        "tokens_per_pass": rates.mean_acceptance_length,
        "tokens_per_second": rates.tokens_per_second,
        "drafters": list(answer.names),
        "steps": [step.to_json() for step in found.steps],
    }
