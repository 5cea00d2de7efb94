"""The prefix cache's second part, on disk: what was read of texts is there after a restart, too.

Nothing here may hurt an answer: whatever goes wrong with the folder is told once in the log, and then it is as if
it were empty.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any

from numpy.typing import NDArray

from draftwood.contracts import Prefix, StoredForm, Target
from draftwood.local.machine import cores
from draftwood.serve.prefix_folder import Bytes, PrefixFolder
from draftwood.serve.prefixes import Prefixes

_MOST_UNWRITTEN = 1 << 30  # bytes of texts that wait to be written, where there are several
_MOST_READERS = 4  # threads: one reads and checks about a gigabyte per second

log = logging.getLogger("draftwood")


class StoredPrefixes:
    """Writes prefixes of a target to a folder, in a thread of its own, and reads them back in threads of clients.

    ``note`` is called with "read" or "written", and bytes.
    """

    def __init__(self, target: Target, folder: Path, most_bytes: int) -> None:
        self._target, self._folder = target, PrefixFolder(folder, most_bytes)
        self.note: Callable[[str, int], None] = lambda _way, _bytes: None
        self._form = Future[StoredForm | None]()
        self._unwritten, self._changed = deque[tuple[str, Prefix]](), Condition()
        self._is_open, self._said, self._reading = True, set[str](), Lock()
        self._thread = Thread(target=self._run, name="draftwood-prefixes", daemon=True)
        self._readers = ThreadPoolExecutor(min(_MOST_READERS, cores()), "draftwood-prefix-reader")

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Take no more; what waits to be written is written, for so many seconds."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        if self._thread.is_alive() and (self._unwritten or self._form.done()):  # else it reads weights
            self._thread.join(seconds)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def put(self, namespace: str, prefix: Prefix) -> None:
        """Let a prefix be written some time; where many wait for a slow disk, the first ones are dropped."""
        with self._changed:
            self._unwritten.append((namespace, prefix))
            while len(self._unwritten) > 1 and sum(one.nbytes for _, one in self._unwritten) > _MOST_UNWRITTEN:
                self._unwritten.popleft()
            self._changed.notify()

    def fetch(self, namespace: str, prompt: Sequence[int], memory: Prefixes) -> int:
        """Read into memory what the folder has of a prompt's beginning and memory has not.

        Returns by how many tokens memory now reaches farther, 0 where there is nothing of use.
        """
        try:
            form = None if self._folder.is_empty() else self._form.result()
            return 0 if form is None else self._fetch(form, namespace, prompt[:-1], memory)
        except Exception as error:  # whatever the disk does, the prompt can be read afresh
            self._say("read", error)
            return 0

    def _fetch(self, form: StoredForm, namespace: str, ids: Sequence[int], memory: Prefixes) -> int:
        most = (memory.most_bytes - form.state_bytes) // max(1, form.page_bytes)
        names = self._folder.names(form, namespace, ids)[: max(0, most)]
        if self._end(form, names, {}) <= memory.known(namespace, ids, form.tokens)[0]:
            return 0
        with self._reading:  # one at a time: while one is read, memory may hold it beside all that it may hold
            return self._load(form, namespace, ids, names, memory)

    def _load(
        self, form: StoredForm, namespace: str, ids: Sequence[int], names: Sequence[str], memory: Prefixes
    ) -> int:
        reach, pages = memory.known(namespace, ids, form.tokens)
        known = [f"{name}.page" for name in names[: len(pages)]]
        found: dict[str, Bytes | None] = dict(zip(known, pages, strict=False))
        while (end := self._end(form, names, found)) > reach:
            wanted = {f"{name}.page": form.page_bytes for name in names[: end // form.tokens]}
            if form.state_bytes:
                wanted[f"{names[end // form.tokens - 1]}.state"] = form.state_bytes
            new = {name: size for name, size in wanted.items() if name not in found}
            found |= zip(new, self._readers.map(self._read, new, new.values()), strict=True)
            parts = [part for name in wanted if (part := found[name]) is not None]
            if len(parts) == len(wanted):
                state = parts.pop() if form.state_bytes else None
                memory.add(namespace, self._target.restored(ids[:end], parts, state))
                self.note("read", sum(size for name, size in wanted.items() if name not in known))
                return end - reach
        return 0

    def _end(self, form: StoredForm, names: Sequence[str], found: dict[str, Bytes | None]) -> int:
        """Return with how many tokens a text can begin, by what was ``found`` and what is in the folder."""

        def is_there(name: str, size: int) -> bool:
            return found[name] is not None if name in found else self._folder.has(name, size)

        count = 0
        while count < len(names) and is_there(f"{names[count]}.page", form.page_bytes):
            count += 1
        while form.state_bytes and count and not is_there(f"{names[count - 1]}.state", form.state_bytes):
            count -= 1
        return count * form.tokens

    def _read(self, name: str, size: int) -> Bytes | None:
        try:
            return self._folder.read(name, size)
        except Exception as error:
            self._say("read", error)
            return None

    def _run(self) -> None:
        form = None
        try:
            form = self._target.stored_form()
            if form is None:
                log.warning("this engine keeps no prefixes on disk: --engine cpu does")
        except Exception as error:
            self._say("named", error)
        self._form.set_result(form)
        while True:
            with self._changed:
                while not self._unwritten and self._is_open:
                    self._changed.wait()
                if not self._unwritten:
                    return
                namespace, prefix = self._unwritten.popleft()
            try:
                if form is not None:
                    self._write(form, namespace, prefix)
            except Exception as error:  # a full disk, most likely
                self._say("written", error)
            del prefix

    def _write(self, form: StoredForm, namespace: str, prefix: Any) -> None:
        count = len(prefix.ids) // form.tokens
        if not count:
            return
        names = self._folder.names(form, namespace, prefix.ids[: count * form.tokens], make=True)
        states, parts = prefix.states(), dict[str, NDArray[Any]]()
        for number, name in enumerate(names):
            parts[f"{name}.page"] = prefix.pages[number]
            if (state := states.get((number + 1) * form.tokens)) is not None:
                parts[f"{name}.state"] = state
        self.note("written", self._folder.keep(parts))

    def _say(self, what: str, error: Exception) -> None:
        """Warn that something could not be done, once for each thing."""
        level = logging.DEBUG if what in self._said else logging.WARNING
        self._said.add(what)
        log.log(level, "a prefix on disk could not be %s, so prompts may be read again: %s", what, error)
