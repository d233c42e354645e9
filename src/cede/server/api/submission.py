"""From a request's JSON to the engine's `Submission`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from cede.engine.lifecycle.commands import Submission
from cede.model import bounds
from cede.model.amounts import Amounts
from cede.model.array import Array, array_of, parse_array
from cede.model.copying import maker
from cede.model.durations import parse_duration
from cede.model.errors import CedeError, Invalid
from cede.model.fields import changed, read
from cede.model.request import PLAIN, Preemptions, Request, Retry
from cede.model.resources import STEP_RUN, ResourceSettings, request_amounts
from cede.model.shape import Shape
from cede.model.stopping import StopPolicy
from cede.model.terms import OF_REQUEST, USUAL, Terms, parse_terms
from cede.model.work import parse_work
from cede.server.api.auth import Caller
from cede.server.api.bodies import RequestIn, RetryIn, SettingsIn
from cede.server.api.declared import given
from cede.server.api.errors import problem_of, validation_problem
from cede.server.api.problem import Problem
from cede.server.ids import new_id

_submission = maker(Submission)
_NO_RETRY = {kind: Retry(preemptions=kind) for kind in Preemptions}


def submission_of(body: RequestIn, caller: Caller, unpooled: str) -> Submission:
    """The submission for the engine; the transaction adds its pool and the label of its time.

    `unpooled` says how the server treats a step whose subject has no policy anywhere.
    """
    each, preemptible = _demand(body)
    tasks = 1 if body.gang is False else body.tasks
    is_work = body.kind == "work" or body.work is not None
    refuses = is_work or body.pool is not None or unpooled == "refuse"
    return _submission(
        id=new_id(),
        # A step of somebody without any policy runs untracked, whatever the token is bound to:
        # one that counts the steps of some stacks must not break those of the others.
        subject=caller.subject_for(body.component, body.component_type, anybody=not refuses),
        amounts=each if tasks == 1 else _times(each, tasks),
        preemptible=preemptible,
        retry=_retry(body.retry, is_work),
        lease=_lease(body),
        owner=caller.identity,
        unpooled="refuse" if refuses else unpooled,
        shape=_shape(body, each, tasks),
        work=None if body.work is None else parse_work(body.work.model_dump()),
        stop_policy=changed(PLAIN, given(body, StopPolicy)),
        terms=_terms(body),
        **read(Request, given(body, Request)),
    )


def array_in(body: RequestIn) -> Array | None:
    """The tasks that a body is, which are requests of their own; None if it is one request."""
    if text := given(body, Request).get("array"):
        if body.tasks != 1 or body.gang is not None:
            raise Invalid("array", "each of its tasks is one; leave out tasks and gang")
        return parse_array(text)
    if body.gang is not False:
        return None
    if body.tasks > bounds.PARTS_MAX:
        most = bounds.PARTS_MAX
        raise Invalid("tasks", f"at most {most} independent tasks at once, not {body.tasks}")
    return array_of(body.tasks) if body.tasks > 1 else None


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
    """How the tasks must sit; None for one task anywhere."""
    said = given(body, Shape)
    if tasks == 1 and not said:
        return None
    anywhere = Shape(each, tasks)
    made = changed(anywhere, said)
    return None if tasks == 1 and made is anywhere else made


def _terms(body: RequestIn) -> Terms:
    said = given(body, Terms)
    if body.settings is None:
        return parse_terms(**said) if said else USUAL
    own = body.settings.model_dump(exclude_none=True)
    settings = {name: own[name] for name in OF_REQUEST if name in own}
    return parse_terms(settings=settings or None, **said)


def _settings(body: SettingsIn) -> ResourceSettings:
    return ResourceSettings.parse(body.model_dump(exclude_none=True, exclude=set(OF_REQUEST)))


def _chosen(said: bool | None, otherwise: bool) -> bool:
    return otherwise if said is None else said


def _retry(body: RetryIn | None, is_work: bool) -> Retry:
    """A step's preemptions use up its retries, as document 000 says; submitted work's do not."""
    usual = Preemptions.FREE if is_work else Preemptions.COUNT
    return changed(_NO_RETRY[usual], {} if body is None else given(body, Retry))


def _lease(body: RequestIn) -> int | None:
    """The lease of a request; work of agents has none of its own, only that of its node."""
    asked = body.lease
    if body.work is not None:
        if asked not in (None, "none"):
            raise Invalid("lease", "work that agents run has none: its node's counts")
        return None
    if asked is None:
        return bounds.LEASE_DEFAULT
    if isinstance(asked, str):
        return None
    return parse_duration(asked, "lease", most=bounds.LEASE_MAX)
