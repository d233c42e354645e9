"""Periodic work that no other component does: it releases units of steps that ended while cede was
away or whose run was deleted, renews leases of steps that start or run without heartbeats, and
releases waiters whose run is being stopped.

It compares cede's requests with ZenML's rows and remembers nothing, so every replica may do it and
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
from zenml.zen_stores.schemas import PipelineRunSchema, StepRunSchema

from cede.client.errors import CedeClientError
from cede.integrations.zenml import mapping
from cede.integrations.zenml.line import Line, advice

log = logging.getLogger(__name__)

# Renewals come three times within a lease, and a deleted run's units within a minute.
PAUSE_MAX = 60.0
# After a failure: soon, then less often; a lease is running.
RETRY_FIRST = 1.0
RETRY_MOST = 5.0
# More waiters and holders than this at once belong to more than one ZenML server.
ALIVE_MAX = 10_000
CHUNK = 500
_STOPPED = (ExecutionStatus.STOPPING.value, ExecutionStatus.STOPPED.value)


class Step(NamedTuple):
    """The columns of a step run's row that the upkeep needs."""

    status: str
    seconds_since: float
    run_status: str


class Upkeep:
    """The thread of the periodic work; it lives as long as its server."""

    def __init__(self, line: Line, engine: Engine, server_id: str, lease: float) -> None:
        self._line = line
        self._engine = engine
        self._server_id = server_id
        self._pause = min(lease / 3, PAUSE_MAX)
        self._hurry = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="cede-upkeep", daemon=True).start()

    def hurry(self) -> None:
        """Sweep now, and again until it succeeds: a release was left undone."""
        self._hurry.set()

    def sweep(self) -> None:
        """Check every waiter and holder once. Raises cede's errors."""
        alive = self._line.find(
            ALIVE_MAX,
            status=["queued", "allocated", "preempting"],
            **{f"label.{mapping.SERVER}": self._server_id},
        )
        steps = self._steps([_step_of(each) for each in alive])
        for each in alive:
            self._tend(each, steps.get(_step_of(each)))

    def tended(self, waiter: dict[str, Any]) -> dict[str, Any]:
        """Check one waiter and return it. ZenML's launcher calls nothing else while it waits, so
        this is how it learns that its run is being stopped."""
        step = self._steps([_step_of(waiter)]).get(_step_of(waiter))
        return self._tend(waiter, step) or waiter

    def _tend(self, request: dict[str, Any], step: Step | None) -> dict[str, Any] | None:
        """Release a request that is no longer needed and return it, or renew it if only the
        upkeep does."""
        if why := _why_over(request, step):
            log.warning("request %s is released: %s", request["id"], why)
            outcomes = mapping.outcomes_for(step.status if step else "")
            left = self._line.release(request["id"], outcomes)
            return left | {"reason": {"text": why}}
        if step is not None and mapping.needs_renewal(request, step.status, step.seconds_since):
            self._line.renew(request["id"], running=False)
        return None

    def _steps(self, ids: Sequence[str]) -> dict[str, Step]:
        found: dict[str, Step] = {}
        now = utc_now()
        with Session(self._engine) as session:
            for start in range(0, len(ids), CHUNK):
                chunk = [UUID(each) for each in ids[start : start + CHUNK]]
                rows = session.exec(
                    select(
                        StepRunSchema.id,
                        StepRunSchema.status,
                        StepRunSchema.updated,
                        PipelineRunSchema.status,
                    )
                    .join(PipelineRunSchema)
                    .where(col(StepRunSchema.id).in_(chunk))
                )
                for step_id, status, updated, run_status in rows:
                    since = (now - updated).total_seconds()
                    found[str(step_id)] = Step(status, since, run_status)
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


def _step_of(request: dict[str, Any]) -> str:
    return str(request["labels"][mapping.STEP_RUN_ID])


def _why_over(request: dict[str, Any], step: Step | None) -> str | None:
    """Return why a request is no longer needed, or None."""
    if step is None:
        return "its step run was deleted"
    execution = ExecutionStatus(step.status)
    if execution.is_finished or execution is ExecutionStatus.RETRYING:
        return "its step run has ended"
    # A holder learns of it by its heartbeat, and stops by itself.
    if request["status"] == "queued" and step.run_status in _STOPPED:
        return "its pipeline run is being stopped"
    return None
