"""The kernel by which a head reads new pairs of a text and grows a tree after it: no Python between its passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from draftwood.engines.cpu.code.records import PASS
from draftwood.engines.top_k_kernel import top_k_row
from draftwood.index.compiling import FLOATS, INTS, LONGS, compiled, foreign
from draftwood.index.frontier import CLASS, DEPTH, PARENT, TOKEN, bar, empty, offer, take
from draftwood.index.philox import surest

_TOKENS, _POSITIONS, _PATHS = range(3)  # rows of `PassRecord.words`
_BASES, _CELLS, _LENGTHS, _SCORED = range(4)  # and of `PassRecord.longs`
_COUNT, _LIMITS, _ROWS = (PASS[name] for name in ("count", "limits", "rows"))
_REALS = LONGS.replace("int64", "float64")


@foreign
def _start(address: int, control: int, record: int, number: int, threads: int) -> Any:
    """See `draftwood.engines.cpu.code.running`."""


@compiled(
    f"i8(i8, i8, i8, i8, {LONGS}, i8[::1], i8[:, ::1], i4[:, ::1], i8[:, ::1], i4[:, ::1], f4[:, ::1], {INTS}, "
    f"{LONGS}, i8[::1], {_REALS}, {FLOATS}, {LONGS}, {_REALS}, {INTS}, i4[:, ::1], f4[:, ::1], f8[::1])",
    reorder=True, nogil=True,
)  # fmt: skip
def read_and_grow(
    control: int, address: int, number: int, threads: int, passes: Any, record: Any, longs: Any, words: Any,
    units: Any, scores: Any, x: Any, vocabulary: Any, key: Any, sizes: Any, worth: Any, rates: Any, firsts: Any,
    bounds: Any, ends: Any, tree: Any, numbers: Any, beliefs: Any,
) -> int:  # fmt: skip
    """Run the pass of a filled record, over pairs of a text, and then passes over one node each, best first.

    ``passes`` int64[5] has the address of the pool's function for one pass, the rows of the first pass, the number
    of chunks of positions in every pass, and address and length of the limits of a pass over one row. ``record``
    to ``scores`` are arrays of the `draftwood.engines.cpu.passes.PassRecord`. A pass reads its states from ``x``
    and leaves there the head's own. ``vocabulary`` has the token of each draft id; ``key`` to ``ends`` are
    those of a `draftwood.drafters.head.reading.TreeRequest`. The rest is filled as
    `draftwood.engines.heads.text.GrownTree` has it; the first two ``sizes`` become the numbers of nodes and of
    passes. Returns whether a thread was late in a pass.
    """
    nodes, rows, chunks, k = tree.shape[1], passes[1], passes[2], min(sizes[3], len(vocabulary))
    temperature, hope, gain, price, least = worth[0], worth[1], worth[2], worth[3], worth[4]
    last, cell, place = rows - 1, longs[_LENGTHS, rows - 1], words[_POSITIONS, rows - 1]
    order, chance, entries = empty(nodes, 2)
    own, cells, made = np.empty(nodes), np.empty(nodes, np.int64), np.empty((len(beliefs), x.shape[1]), np.float32)
    ids, chances, found = np.empty(k, np.int32), np.empty(k, np.float32), np.empty((sizes[4] + 2, max(3, k)))
    node, depth, likely, count, run, late = -1, 0, 1.0, 0, 0, 0
    while True:
        late |= _start(passes[0], control, address, number + run, threads)
        made[run] = x[last]
        top_k_row(scores[0, : len(vocabulary)], 0, ids, chances)
        some = min(sizes[4], k)
        for i in range(k):
            ids[i] = vocabulary[ids[i]]
        for i in range(some):
            found[i, 0], found[i, 1], found[i, 2] = i, chances[i], chances[i]
        if temperature > 0:
            some = surest(key, sizes[0] + depth, ids, chances, temperature, found)
        for i in range(some):
            if not found[i, 2] >= least:
                break
            kind, bound = firsts[depth + 1], 0
            while bound < len(bounds) and bounds[bound] <= found[i, 2]:
                bound += 1
            kind += bound
            beliefs[run] = max(beliefs[run], np.float64(rates[kind]))
            slot = offer(order, chance, nodes - count, likely * rates[kind]) if count < nodes else -1
            if slot >= 0:
                entries[slot, TOKEN], entries[slot, CLASS] = ids[np.int64(found[i, 0])], kind
                entries[slot, PARENT], entries[slot, DEPTH], own[slot] = node, depth + 1, found[i, 1]
        run += 1
        is_read = False
        while not is_read and count < nodes:
            slot = take(order, entries, tree, count)
            if slot < 0:
                break
            node, depth, likely = count, entries[slot, DEPTH], chance[slot]
            numbers[0, node], numbers[1, node], numbers[2, node] = rates[tree[2, node]], own[slot], likely
            count += 1
            is_read = run <= sizes[1] and depth < sizes[2] and likely * gain > price and count < nodes
            is_read = is_read and hope * likely > bar(order, chance, nodes - count)
            for end in ends:
                is_read = is_read and tree[0, node] != end
        if not is_read:
            break
        parent, above, level, last = tree[1, node], node, depth, 0
        cells[node] = cell + run - 1
        record[_LIMITS], record[_COUNT], record[_ROWS], longs[_SCORED, 0] = passes[3], passes[4], 1, 0
        x[0] = made[0 if parent < 0 else cells[parent] - cell + 1]
        words[_TOKENS, 0], words[_POSITIONS, 0] = tree[0, node], place + depth
        longs[_BASES, 0], longs[_CELLS, 0], longs[_LENGTHS, 0] = cell, cells[node], cell + depth
        units[:chunks, 1], units[:chunks, 3] = 1, cells[node] + 1
        while above >= 0:
            level -= 1
            words[_PATHS, level], above = cells[above], tree[1, above]
    sizes[0], sizes[1] = count, run
    return late
