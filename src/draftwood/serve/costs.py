"""What the planner believes that passes cost, for Prometheus: read when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_CONTEXT = 512
"""Tokens of context for which costs are told: later ones are dearer, by attention."""
_TOKENS = (1, 2, 4, 8, 16, 32, 64)


class BelievedCosts(Collector):
    """The planner's cost curve, by how many texts share a pass and how many tokens it scores.

    Parameters
    ----------
    model
        Its name, a label of every number.
    planner
        A planner; one that has learnt no costs (``fixed``) tells nothing.
    """

    def __init__(self, model: str, planner: Any) -> None:
        self._model, self._learned = model, getattr(planner, "learned", None)

    def collect(self) -> Iterable[Metric]:
        """Return one gauge, with a number for each batch size that was seen."""
        said = f"Seconds of a pass at a context of {_CONTEXT} tokens, as the planner expects them"
        found = GaugeMetricFamily("draftwood:pass_seconds", said, labels=["model_name", "texts", "tokens"])
        if self._learned is None:
            return [found]
        with self._learned.lock:
            for bits, costs in sorted(self._learned.costs.items()):
                for tokens in _TOKENS:
                    labels = [self._model, str(1 << (bits - 1)), str(tokens)]
                    found.add_metric(labels, costs.seconds(tokens, _CONTEXT))
        return [found]
