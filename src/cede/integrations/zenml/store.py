"""`ResourcePoolStore`: ZenML's interface for resource pools, carried out by a cede server.

It keeps nothing: a request's id is cede's, its data is in its labels, and a step run's request is
found in ZenML's own row. So any number of replicas answer alike, and each can be lost.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlmodel import Session, col, select
from zenml.config.server_config import ServerConfiguration
from zenml.constants import ENV_ZENML_SERVER, handle_bool_env_var
from zenml.enums import (
    AuthScheme,
    ResourceRequestReclaimTolerance,
    ResourceRequestRuntimeState,
)
from zenml.models import (
    Page,
    ResourceRequestFilter,
    ResourceRequestRenewalRequest,
    ResourceRequestRequest,
    ResourceRequestResponse,
)
from zenml.zen_stores.resource_pools.store_interface import ResourcePoolsSQLStoreInterface
from zenml.zen_stores.schemas import StackComponentSchema, StepRunSchema, UserSchema

from cede.client.errors import CedeClientError, NotFound, ServerBroken, ServerUnreachable
from cede.client.errors import Unauthorized as TokenRefused
from cede.integrations.zenml import answers, listing, mapping
from cede.integrations.zenml.line import Line, advice
from cede.integrations.zenml.own import Own
from cede.integrations.zenml.settings import Settings
from cede.integrations.zenml.told import Told
from cede.integrations.zenml.upkeep import Upkeep

if TYPE_CHECKING:
    from zenml.zen_stores.sql_zen_store import SqlZenStore

log = logging.getLogger(__name__)

# The newest this many requests can be listed; for older ones, ask cede.
LIST_MAX = 2_000

# The status that a poller gets while cede is away: the one that it already had.
_MEANWHILE = {
    ResourceRequestRuntimeState.PENDING: "pending",
    ResourceRequestRuntimeState.SUBMITTED: "allocated",
}


class ResourcePoolStore(ResourcePoolsSQLStoreInterface):
    """Resource pools of a cede server for a ZenML server."""

    def __init__(self, store: SqlZenStore) -> None:
        settings = Settings.read()
        super().__init__(store)
        self._settings = settings
        self._deaf = _without_authentication()
        self._line = Line(settings)
        self._server_id = str(store.get_deployment_id())
        self._own = Own(self._line, self._server_id)
        self._told = Told()
        self._upkeep = Upkeep(self._line, store.engine, self._server_id, settings.lease)
        self._introduce()
        self._upkeep.start()

    def create_resource_request(
        self, session: Session, resource_request: ResourceRequestRequest
    ) -> ResourceRequestResponse:
        """Create a request for a step run; answers always, in bounded time."""
        asked, step_run_id = resource_request, resource_request.step_run_id
        if step_run_id is None:
            raise ValueError("cede counts step runs only: step_run_id is missing")
        try:
            body = self._body(session, asked, step_run_id)
            made = self._line.create(body, key=f"zenml:{self._server_id}:{step_run_id}")
        except mapping.Unsupported as error:
            return self._hopeless(session, asked, step_run_id, str(error))
        except (ServerUnreachable, ServerBroken, TokenRefused) as error:
            said = advice(error, self._line.server)
            if not self._settings.fail_open:
                log.error("step run %s is refused: %s", step_run_id, said)
                return answers.refused(asked, step_run_id, said)
            log.warning("step run %s runs uncounted: %s", step_run_id, said)
            return answers.untracked(asked, step_run_id, said)
        except CedeClientError as error:
            return self._hopeless(session, asked, step_run_id, advice(error, self._line.server))
        if made["status"] == mapping.UNSTORED:
            return answers.untracked(asked, step_run_id, mapping.reason_of(made))
        self._own.note(made["id"])
        made = self._explained(made)
        self._told.tell(made)
        if made["status"] == mapping.REJECTED:
            _retry_no_more(session, step_run_id)
        return answers.answer(made)

    def _explained(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a waiter with its reason as of now, which only a read of the request has."""
        if request["status"] in ("queued", "suspended") and not request.get("reason"):
            with suppress(CedeClientError):  # it waits, with or without a reason
                return self._line.get(request["id"])
        return request

    def _hopeless(
        self, session: Session, asked: ResourceRequestRequest, step_run_id: UUID, reason: str
    ) -> ResourceRequestResponse:
        """Refuse a request that would be refused again."""
        log.error("step run %s is refused: %s", step_run_id, reason)
        _retry_no_more(session, step_run_id)
        return answers.refused(asked, step_run_id, reason)

    def get_resource_request(
        self, resource_request_id: UUID, hydrate: bool = True
    ) -> ResourceRequestResponse:
        return answers.answer(self._asked(lambda: self._own.get(str(resource_request_id))))

    def list_resource_requests(
        self, filter_model: ResourceRequestFilter, hydrate: bool = False
    ) -> Page[ResourceRequestResponse]:
        """Return this ZenML server's requests, of the newest that cede has."""
        filters = listing.narrowed(filter_model, self._server_id)
        found = self._asked(lambda: self._line.find(LIST_MAX, explain="true", **filters))
        users = self._users(filter_model)
        pairs = [(each, answers.answer(each)) for each in found]
        shown = listing.in_order(
            [
                shown
                for request, shown in pairs
                if listing.matches(request, shown, filter_model, users)
            ],
            filter_model,
        )
        size, first = filter_model.size, filter_model.offset
        return Page[ResourceRequestResponse](
            index=filter_model.page,
            max_size=size,
            total_pages=max(-(-len(shown) // size), 1),
            total=len(shown),
            items=shown[first : first + size],
        )

    def renew_resource_request(
        self, resource_request_id: UUID, renewal_request: ResourceRequestRenewalRequest
    ) -> ResourceRequestResponse:
        """Extend the lease; to a running step the answer `preempting` is the order to stop."""
        state = renewal_request.runtime_state
        running = state is ResourceRequestRuntimeState.RUNNING
        granted = state is ResourceRequestRuntimeState.SUBMITTED
        try:
            self._own.check(str(resource_request_id))
            request = self._line.renew(str(resource_request_id), running=running, patient=granted)
            if request["status"] == "queued":
                request = self._explained(self._upkeep.tended(request))
        except NotFound:
            raise KeyError(f"cede has no request {resource_request_id}") from None
        except CedeClientError as error:
            said = advice(error, self._line.server)
            if state not in _MEANWHILE:
                raise RuntimeError(said) from error
            log.warning("request %s is taken to be as it was: %s", resource_request_id, said)
            return answers.unchanged(resource_request_id, renewal_request, _MEANWHILE[state], said)
        self._told.tell(request)
        return answers.answer(request, renewal_request)

    def release_resource_request(self, resource_request_id: UUID) -> ResourceRequestResponse:
        """Give the units of a request back; one that has ended stays as it is."""

        def release() -> dict[str, Any]:
            self._own.check(str(resource_request_id))
            return self._line.release(str(resource_request_id), ("stopped", "done"))

        return answers.answer(self._asked(release))

    def release_step_run_resources(self, session: Session, step_run_id: UUID) -> None:
        """Give back the units of a step run that has ended. Never fails: if cede does not
        answer, the upkeep does it later, or the lease's end."""
        step = session.get(StepRunSchema, step_run_id)
        if step is None or step.resource_request_id is None:
            return
        request_id = str(step.resource_request_id)
        try:
            self._line.release(request_id, mapping.outcomes_for(step.status))
        except NotFound:
            log.debug("request %s of step run %s is gone already", request_id, step_run_id)
        except CedeClientError as error:
            log.warning(
                "the units of step run %s are given back later: %s",
                step_run_id,
                advice(error, self._line.server),
            )
            self._upkeep.hurry()

    def _body(
        self, session: Session, asked: ResourceRequestRequest, step_run_id: UUID
    ) -> dict[str, Any]:
        if asked.pool_selector is not None:
            raise mapping.Unsupported("pool_selector: cede chooses among the policies' pools")
        step = session.get_one(StepRunSchema, step_run_id)
        component = session.get(StackComponentSchema, (asked.component_ids or [])[0])
        if component is None:
            raise mapping.Unsupported("its stack component was deleted; run it on another stack")
        settings = step.get_step_configuration().config.resource_settings
        demands = [each.model_dump() for each in asked.demands]
        pool = asked.pool or (str(asked.pool_id) if asked.pool_id else None)
        return {
            "kind": "step",
            "component": component.name,
            "component_type": component.type,
            "resources": mapping.amounts_of(demands, settings.gpu_count),
            "preemptible": asked.reclaim_tolerance is not ResourceRequestReclaimTolerance.NONE,
            "lease": self._settings.lease,
            # A step without heartbeats keeps its units however long it is silent.
            "on_silence": "keep" if asked.lease_expires_at is None or self._deaf else "stop",
            "labels": self._labels(session, step, asked, component.id),
            **({"pool": pool} if pool else {}),
        }

    def _labels(
        self,
        session: Session,
        step: StepRunSchema,
        asked: ResourceRequestRequest,
        component_id: UUID,
    ) -> dict[str, str]:
        run = step.pipeline_run
        start_within = step.get_step_configuration().config.resource_settings
        return mapping.labels_of(
            {
                "pipeline": run.pipeline.name if run.pipeline else None,
                "run": run.name,
                "step": step.name,
                mapping.SERVER: self._server_id,
                mapping.STEP_RUN_ID: step.id,
                mapping.RUN_ID: run.id,
                mapping.PROJECT_ID: run.project_id,
                mapping.COMPONENT_ID: component_id,
                mapping.USER_ID: asked.user,
                mapping.TOLERANCE: asked.reclaim_tolerance,
                mapping.START_WITHIN: start_within.initialization_lease_seconds,
                mapping.REPLACES: self._replaced(session, step),
            }
        )

    def _replaced(self, session: Session, step: StepRunSchema) -> UUID | None:
        """Return the request of the try before this one."""
        before = (
            select(StepRunSchema.resource_request_id)
            .where(col(StepRunSchema.pipeline_run_id) == step.pipeline_run_id)
            .where(col(StepRunSchema.name) == step.name)
            .where(col(StepRunSchema.version) < step.version)
            .order_by(col(StepRunSchema.version).desc())
        )
        return session.exec(before).first()

    def _users(self, wanted: ResourceRequestFilter) -> set[UUID] | None:
        """Return the users asked for by name or id; None for all users."""
        if wanted.user is None:
            return None
        named = wanted.generate_name_or_id_query_conditions(wanted.user, UserSchema, ["full_name"])
        with Session(self.store.engine) as session:
            return set(session.exec(select(UserSchema.id).where(named)))

    def _asked(self, call: Any) -> Any:
        """Return cede's answer, or raise the error that ZenML's API has a status for."""
        try:
            return call()
        except NotFound as error:
            raise KeyError(error.message) from None
        except CedeClientError as error:
            raise RuntimeError(advice(error, self._line.server)) from error

    def _introduce(self) -> None:
        """Log which server and token are used. A cede server that is away now may be back for
        the first step."""
        if self._deaf:
            log.warning(
                "this ZenML server works without authentication, where its heartbeats fail: "
                "running steps cannot be preempted; choose another auth_scheme"
            )
        try:
            token = self._line.whoami()
        except CedeClientError as error:
            log.error("resource pools: %s", advice(error, self._line.server))
            return
        log.info(
            "resource pools are those of cede at %s, as %s (%s)",
            self._line.server,
            token["name"],
            token["role"],
        )


def _retry_no_more(session: Session, step_run_id: UUID) -> None:
    """Let ZenML fail a step that no retry helps. ZenML commits this with its request; a step
    that is not submitted but called is retried by ZenML's client all the same.
    """
    step = session.get(StepRunSchema, step_run_id)
    if step is not None:
        step.is_retriable = False
        session.add(step)
        session.commit()


def _without_authentication() -> bool:
    """Whether this process is a ZenML server without authentication. In 0.98 such a server
    answers every heartbeat with an error, before it would ask this plug-in."""
    if not handle_bool_env_var(ENV_ZENML_SERVER, default=False):
        return False
    return bool(ServerConfiguration.get_server_config().auth_scheme is AuthScheme.NO_AUTH)
