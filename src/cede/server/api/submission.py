"""From a request's JSON to the engine's `Submission`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cede.engine.commands import Submission
from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.errors import CedeError, Invalid
from cede.model.request import OnSilence, Preemptions, Retry
from cede.model.resources import STEP_RUN, ResourceSettings, request_amounts
from cede.model.settings import parse_duration
from cede.server.api.auth import Caller
from cede.server.api.bodies import RequestIn, RetryIn, SettingsIn
from cede.server.api.errors import Problem, problem_of, validation_problem
from cede.server.ids import new_id

_NO_RETRY = {kind: Retry(preemptions=kind) for kind in Preemptions}


def submission_of(body: RequestIn, caller: Caller, unpooled: str) -> Submission:
    """What the engine is asked; its pool and the label of its time come with the transaction.

    `unpooled` is what the server does with a step whose subject has no policy anywhere.
    """
    amounts, preemptible = _demand(body)
    return Submission(
        id=new_id(),
        subject=caller.subject_for(body.component, body.component_type),
        amounts=amounts,
        preemptible=preemptible,
        retry=_retry(body.retry, body.kind),
        walltime=None if body.walltime is None else parse_duration(body.walltime, "walltime"),
        lease=_lease(body.lease),
        on_silence=OnSilence(body.on_silence),
        labels=body.labels or {},
        owner=caller.name,
        unpooled="refuse" if body.kind == "work" or body.pool is not None else unpooled,
    )


def parse_item(item: Any) -> RequestIn | Problem:
    """One item of a bulk call; a bad one gets an answer of its own, its neighbours theirs."""
    try:
        return RequestIn.model_validate(item)
    except ValidationError as error:
        return validation_problem(error.errors(include_url=False))
    except CedeError as error:
        return problem_of(error)


def _demand(body: RequestIn) -> tuple[Amounts, bool]:
    if body.settings is not None:
        if body.resources is not None:
            raise Invalid("settings", "give either resources or settings, not both")
        settings = _settings(body.settings)
        return request_amounts(settings), _chosen(body.preemptible, settings.preemptible)
    amounts = {key: amount for key, amount in (body.resources or {}).items() if amount}
    amounts[STEP_RUN] = 1
    return amounts, _chosen(body.preemptible, True)


def _settings(given: SettingsIn) -> ResourceSettings:
    return ResourceSettings.parse(given.model_dump(exclude_none=True))


def _chosen(given: bool | None, otherwise: bool) -> bool:
    return otherwise if given is None else given


def _retry(given: RetryIn | None, kind: str) -> Retry:
    """A step's preemptions use up its retries, as document 000 says; submitted work's do not."""
    usual = Preemptions.FREE if kind == "work" else Preemptions.COUNT
    if given is None:
        return _NO_RETRY[usual]
    return Retry(
        max_retries=given.max_retries,
        delay=parse_duration(given.delay, "retry.delay", most=bounds.RETRY_DELAY_MAX),
        backoff=given.backoff,
        preemptions=usual if given.preemptions is None else Preemptions(given.preemptions),
    )


def _lease(given: float | str | None) -> int | None:
    if given is None:
        return bounds.LEASE_DEFAULT
    if isinstance(given, str):
        return None
    return parse_duration(given, "lease", most=bounds.LEASE_MAX)
