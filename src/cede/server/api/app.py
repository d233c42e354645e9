"""The FastAPI app: routers, the layers around them, and the answers to errors."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cede import __version__
from cede.server import clock
from cede.server.api import (
    agent,
    audit,
    bridges,
    configuration,
    edge,
    events,
    history,
    links,
    logs,
    nodes,
    openapi,
    plan,
    policies,
    pools,
    requests,
    shares,
    status,
    system,
    tenants,
    tokens,
    usage,
    web_page,
)
from cede.server.api.auth import Authenticator
from cede.server.api.bridge_metrics import BridgeGauges
from cede.server.api.context import Context
from cede.server.api.costly import Costly
from cede.server.api.dispatch import ANSWERED, Dispatch
from cede.server.api.errors import problem_of, respond
from cede.server.api.limits import Limiter
from cede.server.api.metrics import Metrics
from cede.server.api.pulse import Pulse
from cede.server.api.relay import Relay
from cede.server.api.shared import Shared
from cede.server.config import Config
from cede.server.links import Links
from cede.server.writer import Writer
from cede.store import Store


class App(FastAPI):
    """An app whose routes FastAPI knows and describes, while calls go past its layers."""

    edge: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.edge(scope, receive, send)

    async def elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let FastAPI answer a call to a path that is none of cede's routes."""
        await super().__call__(scope, receive, send)


def create_app(store: Store, writer: Writer, config: Config) -> App:
    """Make the whole HTTP API over one store and one writer."""
    context = Context(
        store=store,
        writer=writer,
        config=config,
        auth=Authenticator(store.find_token, store.tokens_version, clock.wall, clock.monotonic),
        limiter=Limiter(),
        metrics=Metrics(store, writer.index, BridgeGauges(writer.order_board, writer.now)),
        pulse=Pulse(),
        relay=Relay(writer.order_board.wake, clock.monotonic),
        monotonic=clock.monotonic,
        costly=Costly(writer, clock.monotonic),
        shared=Shared(writer, clock.monotonic),
        links=Links(clock.monotonic),
    )
    writer.listeners.append(lambda index: context.pulse.beat())
    writer.on_turn = context.metrics.observe_turn
    writer.on_judged = context.metrics.count_judged
    app = routes()
    app.state.cede = context
    for kind in ANSWERED:
        app.add_exception_handler(kind, _answer_error)
    app.edge = edge.Edge(
        Dispatch(app, app.elsewhere),
        hosts=edge.allowed_hosts(config.host, config.allowed_hosts),
        index=lambda: writer.index,
        now=writer.now,
        observe=context.metrics.observe_answer,
    )
    return app


def routes() -> App:
    """Make the app with its routes and nothing behind them: enough to describe the API."""
    app = App(
        title="cede",
        version=__version__,
        openapi_url=None,  # it is served behind a token, with the rest
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in (
        *(system, pools, shares, status, policies, nodes, requests, logs, agent, bridges),
        *(events, plan, tokens, links, audit, tenants, usage, history, configuration, web_page),
    ):
        # Flat, not included: enumerating the router yields every route itself.
        app.router.routes.extend(module.router.routes)
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    return app


def close_streams(app: FastAPI) -> None:
    """End the open event streams, from any thread: a server that stops need not wait for them."""
    context: Context = app.state.cede
    context.pulse.close()
    context.writer.order_board.close()


async def _answer_error(request: Request, error: Exception) -> Response:
    return respond(problem_of(error))
