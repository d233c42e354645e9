"""The files of attempts, wherever these run: checkpoints are looked for and removed, output is
read.
"""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from cede.agent import wire
from cede.agent.retention import Retention
from cede.agent.settings import Settings
from cede.agent.surroundings import checkpoint_directory, protocol_of
from cede.agent.values import Key, Looked, Order
from cede.checkpoint import shelf
from cede.launch import places
from cede.launch.clock import time_of_day
from cede.launch.order import NoOrder, read_output
from cede.model import bounds

_log = structlog.get_logger("cede.agent")


class Shelves:
    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._home = settings.data / "attempts"
        self._home.mkdir(mode=0o711, exist_ok=True)
        # Removing gigabytes of old checkpoints, or reading them, must not hold up a lease.
        self._cleaner = ThreadPoolExecutor(1, "cleaner")
        self._reader = ThreadPoolExecutor(2, "reader")
        self._looked: queue.SimpleQueue[Looked] = queue.SimpleQueue()
        self._retention = Retention(settings.checkpoints, settings.keep_checkpoints)

    def _is_live(self, key: Key) -> bool:
        """Whether an attempt may still produce output."""
        raise NotImplementedError

    def looked(self) -> Iterator[Looked]:
        while not self._looked.empty():
            yield self._looked.get()

    def look(self, order: Order) -> None:
        """Verify the checkpoints that an attempt could start from, newest first: one is enough
        for a task alone, a gang may have to go further back.
        """
        alone = len(order.body.get("nodes") or ()) <= 1
        most = 1 if alone else bounds.CHECKPOINTS_KNOWN_MAX

        def read() -> None:
            found = shelf.Good()
            if protocol_of(order):
                found = shelf.good(checkpoint_directory(order, self._settings), most)
            self._looked.put(Looked(order.key, found.ids, "; ".join(found.problems)))

        self._reader.submit(read)

    def keep_checkpoint(self, order: Order, checkpoint: str) -> None:
        """Remove checkpoints older than this one, which is committed."""
        if protocol_of(order):
            directory = checkpoint_directory(order, self._settings)
            self._cleaner.submit(_clean, directory, checkpoint)

    def look_for_old(self, ask: Callable[[list[str]], None]) -> None:
        """At intervals, ask about requests with old checkpoints: whether they have ended is not
        known here."""
        if self._retention.is_due(self._clock()):
            self._cleaner.submit(lambda: ask(self._retention.old()))

    def remove_checkpoints(self, requests: Collection[str]) -> None:
        self._cleaner.submit(self._retention.remove, requests)

    def answer(self, question: wire.LogQuestion) -> wire.Json:
        """Return output from where it was asked for, as far as it is still there."""
        key, most, since = question.key, question.most, question.since
        if question.age is not None:
            since = max(since or 0.0, time_of_day() - question.age)  # by the clock of the records
        try:
            with places.Place(self._home / key.directory) as place:
                # In this order: a supervisor writes the last output before its exit record. Without
                # a spec there never was a supervisor, and the output says why.
                over = place.exists(places.EXIT) or not place.exists(places.SPEC)
                found = read_output(
                    place,
                    question.stream,
                    question.offset,
                    most,
                    over=over,
                    tail=question.tail,
                    since=since,
                )
        except NoOrder:
            return wire.no_order_json(question)
        except OSError:
            # Not started yet, or removed long ago.
            return wire.log_json(question, question.offset, b"", gone=not self._is_live(key))
        return wire.log_json(question, found.start, found.data, end=found.end)

    def close_shelves(self) -> None:
        for each in (self._cleaner, self._reader):
            each.shutdown(wait=False, cancel_futures=True)


def _clean(directory: Any, checkpoint: str) -> None:
    try:
        shelf.clean(directory, checkpoint)
    except OSError as error:
        if error.errno != errno.ENOENT:
            _log.warning("cannot clean", directory=str(directory), why=str(error))
