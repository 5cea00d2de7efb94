"""Which tests `make test` runs, and which are left to `make test-all`: whatever is marked slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def rest_is_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases of ``parametrize``, of which all but ``quick`` are marked slow.

    For lists whose members are alike: some stand for all while one is working, all are tried before it is merged.
    """
    every = list(cases)
    if missing := [case for case in quick if case not in every]:
        raise ValueError(f"{missing} are none of the cases {every}")
    return [case if case in quick else _slow(case) for case in every]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
