"""From a request's JSON to the engine's `Submission`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cede.engine.lifecycle.commands import Submission
from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.durations import parse_duration
from cede.model.errors import CedeError, Invalid
from cede.model.node import parse_labels
from cede.model.request import PLAIN, OnSilence, Preemptions, Retry
from cede.model.resources import STEP_RUN, ResourceSettings, request_amounts
from cede.model.shape import Shape, Topology
from cede.model.stopping import Checkpoint, Protocol, Resume, StopPolicy
from cede.model.terms import OF_REQUEST, Terms, parse_terms
from cede.model.work import parse_work
from cede.server.api.auth import Caller
from cede.server.api.bodies import RequestIn, RetryIn, SettingsIn
from cede.server.api.errors import Problem, problem_of, validation_problem
from cede.server.ids import new_id

_NO_RETRY = {kind: Retry(preemptions=kind) for kind in Preemptions}


def submission_of(body: RequestIn, caller: Caller, unpooled: str) -> Submission:
    """What the engine is asked; its pool and the label of its time come with the transaction.

    `unpooled` is what the server does with a step whose subject has no policy anywhere.
    """
    each, preemptible = _demand(body)
    tasks = 1 if body.gang is False else body.tasks
    is_work = body.kind == "work" or body.work is not None
    return Submission(
        id=new_id(),
        subject=caller.subject_for(body.component, body.component_type),
        amounts=each if tasks == 1 else _times(each, tasks),
        preemptible=preemptible,
        retry=_retry(body.retry, is_work),
        walltime=None if body.walltime is None else parse_duration(body.walltime, "walltime"),
        lease=_lease(body),
        on_silence=None if body.on_silence is None else OnSilence(body.on_silence),
        labels=body.labels or {},
        owner=caller.identity,
        unpooled="refuse" if is_work or body.pool is not None else unpooled,
        shape=_shape(body, each, tasks),
        work=None if body.work is None else parse_work(body.work.model_dump()),
        stop_policy=_stop_policy(body),
        terms=_terms(body),
    )


def parts_of(body: RequestIn) -> int:
    """How many requests a body is: independent tasks are requests of their own."""
    if body.gang is not False:
        return 1
    if body.tasks > bounds.PARTS_MAX:
        most = bounds.PARTS_MAX
        raise Invalid("tasks", f"at most {most} independent tasks at once, not {body.tasks}")
    return body.tasks


def parse_item(item: Any) -> RequestIn | Problem:
    """One item of a bulk call; a bad one gets an answer of its own, its neighbours theirs."""
    try:
        return RequestIn.model_validate(item)
    except ValidationError as error:
        return validation_problem(error.errors(include_url=False))
    except CedeError as error:
        return problem_of(error)


def _demand(body: RequestIn) -> tuple[Amounts, bool]:
    if body.settings is not None and body.settings.model_fields_set - set(OF_REQUEST):
        if body.resources is not None:
            raise Invalid("settings", "give either resources or settings, not both")
        settings = _settings(body.settings)
        return request_amounts(settings), _chosen(body.preemptible, settings.preemptible)
    amounts = {key: amount for key, amount in (body.resources or {}).items() if amount}
    amounts[STEP_RUN] = 1
    return amounts, _chosen(body.preemptible, True)


def _times(each: Amounts, tasks: int) -> Amounts:
    for key, amount in each.items():
        if amount * tasks > bounds.AMOUNT_MAX:
            raise Invalid("tasks", f"{tasks} times {amount} {key} is more than anybody has")
    return {key: amount * tasks for key, amount in each.items()}


def _shape(body: RequestIn, each: Amounts, tasks: int) -> Shape | None:
    labels = parse_labels(body.node_labels or {}, "node_labels")
    usual = body.per_node is None and not labels and not body.fingerprint
    if tasks == 1 and usual and body.topology == "tight":
        return None
    return Shape(each, tasks, body.per_node, labels, body.fingerprint, Topology(body.topology))


def _stop_policy(body: RequestIn) -> StopPolicy:
    made = StopPolicy(
        checkpoint=Checkpoint(body.checkpoint),
        protocol=Protocol(body.checkpoint_protocol),
        timeout=_time("checkpoint_timeout", body.checkpoint_timeout, PLAIN.timeout),
        deferral_max=_time("max_deferral", body.max_deferral, PLAIN.deferral_max),
        interruptible=body.interruptible,
        resume=Resume(body.resume),
        resume_wait=_time("resume_wait", body.resume_wait, PLAIN.resume_wait),
    )
    return PLAIN if made == PLAIN else made


def _terms(body: RequestIn) -> Terms:
    own = {} if body.settings is None else body.settings.model_dump(exclude_none=True)
    return parse_terms(
        preemption_class=body.class_,
        sensitive=body.sensitive,
        tenant=body.tenant,
        limit=body.limit,
        weight=body.weight,
        settings={name: own[name] for name in OF_REQUEST if name in own},
    )


def _time(field: str, given: float | None, otherwise: int) -> int:
    return otherwise if given is None else parse_duration(given, field)


def _settings(given: SettingsIn) -> ResourceSettings:
    return ResourceSettings.parse(given.model_dump(exclude_none=True, exclude=set(OF_REQUEST)))


def _chosen(given: bool | None, otherwise: bool) -> bool:
    return otherwise if given is None else given


def _retry(given: RetryIn | None, is_work: bool) -> Retry:
    """A step's preemptions use up its retries, as document 000 says; submitted work's do not."""
    usual = Preemptions.FREE if is_work else Preemptions.COUNT
    if given is None:
        return _NO_RETRY[usual]
    return Retry(
        max_retries=given.max_retries,
        delay=parse_duration(given.delay, "retry.delay", most=bounds.RETRY_DELAY_MAX),
        backoff=given.backoff,
        preemptions=usual if given.preemptions is None else Preemptions(given.preemptions),
    )


def _lease(body: RequestIn) -> int | None:
    """What agents run needs no client that stays; their node's lease is what counts."""
    given = body.lease
    if body.work is not None:
        if given not in (None, "none"):
            raise Invalid("lease", "work that agents run has none: its node's counts")
        return None
    if given is None:
        return bounds.LEASE_DEFAULT
    if isinstance(given, str):
        return None
    return parse_duration(given, "lease", most=bounds.LEASE_MAX)
