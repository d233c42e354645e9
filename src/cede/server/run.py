"""Runs a server: becomes the writer, checks the database before taking writes, serves, and stops
without losing a call.

The address is bound first and answers last: a second server on the same port fails at once, and a
standby refuses connections until it is the writer.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import uvicorn
import yaml
from starlette.types import ASGIApp

from cede.agent.isolation import Isolation, why_no_namespace
from cede.engine.explain.levels import levels
from cede.launch import processes
from cede.launch.presence import Presence, name_of
from cede.model.bounds import LINK_LIFE, MINUTE
from cede.server.boot import (
    CLIENT_FILE,
    FirstStart,
    first_start,
    join_token,
    this_machine,
    this_node,
)
from cede.server.config import Config, ConfigError, load_config
from cede.server.connections import Connections, protocol_for, room_for_connections
from cede.server.history import History
from cede.server.identities import adopt_identities
from cede.server.links import Links
from cede.server.local_agent import LocalAgent, has_joined, isolation, labels
from cede.server.memory import share_arenas
from cede.server.own_tls import OwnTls, Renewal, names_of, own_tls
from cede.server.retention import Retention
from cede.server.scrub import Scrub
from cede.server.writer import Unsound, Writer
from cede.store import Store, StoreError
from cede.store.errors import DiskFull, Stopped

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
# How long calls that are under way may take to finish once the server is told to stop.
GRACE_SECONDS = 30

Say = Callable[[str], None]

_log = structlog.get_logger("cede.server")


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run `cede up`: flags in, exit code out."""
    try:
        config = load_config(arguments, environ)
    except ConfigError as error:
        for problem in error.problems:
            sys.stderr.write(f"cede: {problem}\n")
        return MISUSED
    return serve(config)


def serve(config: Config) -> int:
    """Serve until told to stop. An error is one line on standard error."""
    _set_up_logging(config.log_level)
    processes.close_to_account()
    try:
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _listening(config) as listener:
            if config.tls:
                own_tls(config).renew(names_of(config))
            return _Running(config, listener).run()
    except Stopped:
        return DONE
    except (StoreError, Unsound, OSError) as error:
        sys.stderr.write(f"cede: {error}\n")
        return FAILED


@contextlib.contextmanager
def _sparing_the_collector() -> Iterator[None]:
    """Exempt what is loaded and imported, which lives long and leaves no cycles, from the garbage
    collector: searching it took a quarter of a start while it grew, and a fifth of every grant
    later.

    Calls leave cycles (tasks, errors), so young objects are searched every 10,000 objects, which
    takes a millisecond; with ten times as many, 27 MB of garbage stood after a rush of calls.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
    gc.set_threshold(10_000, 10, 100)


class _Running:
    """One server from its start to its end."""

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        self._stop = threading.Event()
        self._server: _Server | None = None
        self._close_streams: Callable[[], None] = lambda: None
        self._starting = contextlib.ExitStack()

    def run(self) -> int:
        with _signals(self._on_signal):
            store = Store(self._config.database, anchor=self._config.data / "anchor")
            try:
                return self._serve_with(store)
            finally:
                store.close()

    def _serve_with(self, store: Store) -> int:
        gc.freeze()
        gc.enable()  # a standby may wait for weeks
        try:
            self._take_over(store)
        except DiskFull:
            if not store.make_room():
                raise
            self._take_over(store)
        with _present(store), self._starting as starting:
            starting.enter_context(_sparing_the_collector())
            loaded = store.load()
            found = levels(loaded.state, loaded.moment.instant)
            writer = Writer(store, loaded)
            scrub = Scrub(store, writer.found_damage)
            scrub.first()
            store.hold_space()
            share_arenas()
            writer.start()
            history = History(store, writer, found)
            history.start()
            retention = Retention(store, writer, self._config.keep)
            retention.start()
            try:
                writer.execute(lambda tx: adopt_identities(tx, store.tokens_named)).result()
                self._serve_http(store, writer, scrub.start)
            finally:
                history.stop()
                retention.stop()
                scrub.stop(GRACE_SECONDS)
                writer.stop()
                store.let_go()
        return DONE

    def _take_over(self, store: Store) -> None:
        store.migrate()
        with _word_if_it_takes_long("waiting for the server that has this database now"):
            store.take_over(self._stop)

    def _serve_http(self, store: Store, writer: Writer, then: Callable[[], None]) -> None:
        """Serve until told to stop; `then` is called once the first call can be answered."""
        # Slow to import, and not needed to report a wrong flag or database.
        from cede.server.api import web_page
        from cede.server.api.app import close_streams, create_app

        config = self._config
        url = config.url(self._listener.getsockname()[1])
        isolated = isolation(config) if config.agent else None
        node = this_node(config.heartbeat, labels(config)) if config.agent else None
        # An operator who lets work be root knows that it may read everything.
        exposed = isolated is Isolation.NONE and not config.allow_root_jobs
        own = own_tls(config) if config.tls else None
        made = first_start(
            store,
            writer,
            config.data,
            url,
            node=node,
            ca=None if own is None else own.authority,
            show=_show_secret if exposed else None,
        )
        app = create_app(store, writer, config)
        self._close_streams = lambda: close_streams(app)
        settings = _settings(app, config, own)
        agent = self._agent(writer, url)

        def on_start() -> None:
            _welcome(url, made, config.data / CLIENT_FILE, app.state.cede.links)
            if not web_page.is_built():
                _say(web_page.NOT_BUILT)
            if isolated is not None:
                _say_isolation(isolated, exposed, config.data / CLIENT_FILE)
            if own is not None:
                _say_trust(own, url)
            _say(f"cede is serving on {url}")
            self._starting.close()
            then()
            if agent is not None:
                agent.start()

        self._server = _Server(settings, on_start)
        renewal = None if own is None else _renewal(own, config, settings)
        try:
            if not self._stop.is_set():
                self._server.run(sockets=[self._listener])
        finally:
            if renewal is not None:
                renewal.stop()
            if agent is not None:
                agent.stop()

    def _agent(self, writer: Writer, url: str) -> LocalAgent | None:
        config = self._config
        if not config.agent:
            return None
        join = "" if has_joined(config) else join_token(writer)
        return LocalAgent(config, url, this_machine(), join)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask the server to stop; a second Ctrl-C ends the process at once. Commits are safe
        either way."""
        if self._stop.is_set() and number == signal.SIGINT:
            os._exit(INTERRUPTED)
        self._stop.set()
        if self._server is not None:
            self._server.should_exit = True
        self._close_streams()


def _settings(app: ASGIApp, config: Config, own: OwnTls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        log_level="error",  # no line for every unreadable call
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=config.tls_cert if own is None else own.certificate,
        ssl_keyfile=config.tls_key if own is None else own.key,
        http=protocol_for(Connections(room_for_connections())),
    )


class _Server(uvicorn.Server):
    """uvicorn without its handling of signals, and with a call once it really answers."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()


def _welcome(url: str, made: FirstStart | None, client_file: Path, links: Links) -> None:
    if made is None:
        _say_page(url, client_file, links)
        return
    what = ", ".join(f"{amount} {key}" for key, amount in sorted(made.capacity.items()))
    _say(f"first start: pool local is this machine ({what}), all of it for {made.subject}")
    if made.submitter:
        _say(f"{made.client_file} has a token that may only submit: work here can read it")
    else:
        _say(f"administrator token, shown once: {made.secret}")
        _say(f"it is also in {made.client_file}, for the command line on this machine")
    _say_link(url, links.make(made.secret))


def _say_trust(own: OwnTls, url: str) -> None:
    _say(f"certificates are made by {own.authority}, fingerprint {own.fingerprint}")
    _say(f"elsewhere: cede login {url} --trust {own.fingerprint}")


def _renewal(own: OwnTls, config: Config, settings: uvicorn.Config) -> Renewal:
    def reload() -> None:
        if settings.ssl is not None:  # connections from now on are shown the new one
            settings.ssl.load_cert_chain(own.certificate, own.key)

    made = Renewal(own, names_of(config), reload)
    made.start()
    return made


def _say_link(url: str, code: str) -> None:
    # After the #, so that no browser sends it anywhere.
    minutes = f"{LINK_LIFE // MINUTE} minutes"
    _say(f"the page, by a link that works once, within {minutes}: {url}/#link={code}")


def _say_page(url: str, client_file: Path, links: Links) -> None:
    """Print where the page is, on every start. A terminal is its user's: there a link opens it
    with the token that is in the user's own file. A log is read by others, so it gets the
    address alone.
    """
    token = ""
    if sys.stdout.isatty():
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            token = str(yaml.safe_load(client_file.read_text()).get("token") or "")
    if token:
        _say_link(url, links.make(token))
    else:
        _say(f"the page: {url}; it asks for a token, and cede page prints a link that opens it")


def _show_secret(secret: str) -> None:
    _say(f"administrator token, shown once and kept in no file: {secret}")


def _say_isolation(isolated: Isolation, exposed: bool, client_file: Path) -> None:
    """Print in one line what work on this machine can reach."""
    if isolated is Isolation.ACCOUNT:
        _say("isolation: account; work runs as accounts of its own, one for each team")
    elif isolated is Isolation.NAMESPACE:
        _say("isolation: namespace; work runs as your account and does not see cede's files")
    elif exposed:
        _say(
            f"isolation: none; WORK CAN READ AND CHANGE ALL FILES OF CEDE, {client_file} and the "
            f"database with them: this system gives no user namespace ({why_no_namespace()}). "
            "Start cede as root, or allow user namespaces, before others submit work"
        )
    else:
        _say("isolation: none; work may be root and can read and change all files of cede")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _listening(config: Config) -> Iterator[socket.socket]:
    """Bind the socket; it listens only once uvicorn has it."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A page of a list is sent in one piece; the usual 16 KiB cost a turn of the loop each.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        try:
            listener.bind((config.host, config.port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(f"cannot listen on {config.host}:{config.port}: {reason}") from None
        yield listener
    finally:
        listener.close()


@contextlib.contextmanager
def _present(store: Store) -> Iterator[None]:
    """Show clients on this machine that a server decides about their units.

    A client that sees no sign goes on beyond its lease, so the sign is there before leases are read
    and goes after the last commit. Several servers of one PostgreSQL have none: one of them being
    away proves nothing.
    """
    if store.file is None:
        yield
        return
    presence = Presence(name_of(store.file))
    if not presence.show():
        _log.warning("clients here cannot tell whether a server is alive", name=presence.name)
    try:
        yield
    finally:
        presence.hide()


@contextlib.contextmanager
def _word_if_it_takes_long(word: str, seconds: float = 1) -> Iterator[None]:
    timer = threading.Timer(seconds, _say, [word])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _signals(handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _set_up_logging(level: str) -> None:
    """Log one line per event to standard error; standard output is for messages to people."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(
        level=max(number, logging.WARNING), format="%(levelname)s %(name)s %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
