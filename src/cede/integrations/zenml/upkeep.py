"""What nobody else does: units of steps that have ended while cede was away, or whose run was
deleted, go back; leases of steps that start, or run without heartbeats, are renewed.

It compares cede's holders with ZenML's rows and remembers nothing, so every replica may do it and
none needs to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine
from sqlmodel import Session, col, select
from zenml.enums import ExecutionStatus
from zenml.utils.time_utils import utc_now
from zenml.zen_stores.schemas import StepRunSchema

from cede.client.errors import CedeClientError
from cede.integrations.zenml import mapping
from cede.integrations.zenml.line import Line, advice

log = logging.getLogger(__name__)

# Renewals come three times within a lease, and a deleted run's units within a minute.
PAUSE_MAX = 60.0
# After a failure: soon, then less often; a lease is running.
RETRY_FIRST = 1.0
RETRY_MOST = 5.0
# More holders than this at once belong to more than one ZenML server.
HOLDERS_MAX = 10_000
CHUNK = 500


class Step(NamedTuple):
    """A step run's row, as far as it matters here."""

    status: str
    seconds_since: float


class Upkeep:
    """A thread that lives as long as its server."""

    def __init__(self, line: Line, engine: Engine, server_id: str, lease: float) -> None:
        self._line = line
        self._engine = engine
        self._server_id = server_id
        self._pause = min(lease / 3, PAUSE_MAX)
        self._hurry = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="cede-upkeep", daemon=True).start()

    def hurry(self) -> None:
        """Something was left undone: look now, and again until it is done."""
        self._hurry.set()

    def sweep(self) -> None:
        """Look at every holder once. Raises what cede answers."""
        holders = self._line.find(
            HOLDERS_MAX,
            status=["allocated", "preempting"],
            **{f"label.{mapping.SERVER}": self._server_id},
        )
        steps = self._steps([each["labels"][mapping.STEP_RUN_ID] for each in holders])
        for each in holders:
            self._tend(each, steps.get(each["labels"][mapping.STEP_RUN_ID]))

    def _tend(self, request: dict[str, Any], step: Step | None) -> None:
        if step is None or _has_ended(step.status):
            why = "has ended" if step else "was deleted"
            log.warning("request %s is released: its step run %s", request["id"], why)
            self._line.release(request["id"], mapping.outcomes_for(step.status if step else ""))
        elif mapping.needs_renewal(request, step.status, step.seconds_since):
            self._line.renew(request["id"], running=False)

    def _steps(self, ids: Sequence[str]) -> dict[str, Step]:
        found: dict[str, Step] = {}
        now = utc_now()
        with Session(self._engine) as session:
            for start in range(0, len(ids), CHUNK):
                chunk = [UUID(each) for each in ids[start : start + CHUNK]]
                rows = session.exec(
                    select(StepRunSchema.id, StepRunSchema.status, StepRunSchema.updated).where(
                        col(StepRunSchema.id).in_(chunk)
                    )
                )
                for step_id, status, updated in rows:
                    found[str(step_id)] = Step(status, (now - updated).total_seconds())
        return found

    def _run(self) -> None:
        failures = 0
        while True:
            soon = min(RETRY_FIRST * 2 ** (failures - 1), RETRY_MOST)
            self._hurry.wait(soon if failures else self._pause)
            self._hurry.clear()
            try:
                self.sweep()
                failures = 0
            except CedeClientError as error:
                failures = min(failures + 1, 10)
                log.debug("upkeep: %s", advice(error, self._line.server))
            except Exception:
                # ZenML's database may be away as well; the thread must outlive that.
                log.exception("upkeep failed and is tried again")
                failures = 0


def _has_ended(status: str) -> bool:
    execution = ExecutionStatus(status)
    return bool(execution.is_finished or execution is ExecutionStatus.RETRYING)
