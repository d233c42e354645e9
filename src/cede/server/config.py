"""The configuration of a server: flags, then the environment, then a file, then defaults.

Unknown keys and wrong types are refused, and all problems are named at once, so that an operator
who edits a file can fix it once. A server listens on this machine only, unless it has a certificate
or is told outright that it may listen without one.
"""

from __future__ import annotations

import argparse
import ipaddress
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cede.model import bounds, written
from cede.model.durations import parse_duration
from cede.model.errors import Invalid, choices
from cede.model.private import is_private
from cede.store.values import Keep

LOG_LEVELS = ("debug", "info", "warning", "error")
UNPOOLED = ("allow", "refuse")
FOREVER = "forever"
FILE_VARIABLE = "CEDE_SERVER_CONFIG"


class ConfigError(Exception):
    """All problems of a configuration."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class Config:
    data: Path
    database: str
    host: str = "127.0.0.1"
    port: int = 8080
    unpooled: str = "allow"
    allowed_hosts: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls: bool = False  # with a certificate that the server makes itself
    insecure_listen: bool = False
    log_level: str = "info"
    heartbeat: int = bounds.HEARTBEAT_DEFAULT  # of nodes, in milliseconds
    agent: bool = True  # whether this machine is a node, with an agent of its own
    allow_root_jobs: bool = False
    file: Path | None = None  # that it was read from
    # How long history is kept, in milliseconds; None: for ever.
    keep_requests: int | None = bounds.KEEP_REQUESTS_DEFAULT
    keep_events: int | None = bounds.KEEP_EVENTS_DEFAULT
    keep_audit: int | None = None
    keep_idempotency: int = bounds.IDEMPOTENCY_LIFE

    @property
    def keep(self) -> Keep:
        return Keep(self.keep_requests, self.keep_events, self.keep_audit, self.keep_idempotency)

    def url(self, port: int) -> str:
        """Return the address at which a program on this machine reaches the server."""
        scheme = "https" if self.tls or self.tls_cert else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def load_config(arguments: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Return the configuration of these flags and this environment, or raise all problems with
    it."""
    flags = vars(_parser().parse_args(arguments))
    problems: list[str] = []
    file = flags.pop("config") or environ.get(FILE_VARIABLE)
    given: dict[str, Any] = {}
    from_file = _read_file(Path(file), problems) if file else {}
    for name, value in from_file.items():
        if name not in _FIELDS:
            problems.append(f"{file}: unknown key {name!r}; {choices(name, _FIELDS)}")
        else:
            _take(given, name, value, f"{file}: {name}", problems)
    for name in _FIELDS:
        variable = f"CEDE_{name.upper()}"
        if environ.get(variable):
            _take(given, name, _from_text(name, environ[variable]), variable, problems)
    for name, value in flags.items():
        if value not in (None, False, []):
            flag = f"--{name.replace('_', '-')}"
            _take(given, name, _from_text(name, value), flag, problems)
    given.setdefault("data", default_data(environ))
    given.setdefault("database", f"sqlite:///{given['data'] / 'cede.db'}")
    config = Config(**given, file=Path(file).absolute() if file else None)
    problems += _check_listening(config)
    problems += _check_file(file, from_file)
    if problems:
        raise ConfigError(problems)
    return config


def default_data(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "cede"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cede up", description="Start a server on this machine.")
    add = parser.add_argument
    add("--data", metavar="FOLDER", help="where it keeps its files (~/.local/share/cede)")
    add(
        "--database",
        metavar="URL",
        help="sqlite:///… or postgresql://… (SQLite in the data folder)",
    )
    add("--host", help="the address to listen on (127.0.0.1)")
    add("--port", help="the port to listen on, 0 for any (8080)")
    add("--unpooled", metavar="allow|refuse", help="work of a requester without any policy (allow)")
    add("--allowed-hosts", metavar="NAME,…", help="further names that clients may call it by")
    add("--tls", action="store_true", help="serve HTTPS with a certificate of its own making")
    add("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate")
    add("--tls-key", metavar="FILE", help="and this key")
    add("--insecure-listen", action="store_true", help="listen beyond this machine without TLS")
    add("--heartbeat", metavar="TIME", help="how often a node is heard of (10)")
    add("--agent", action="store_const", const="true", help="make this machine a node too (yes)")
    add(
        "--no-agent",
        dest="agent",
        action="store_const",
        const="false",
        help="start no agent: this machine is counted, and runs nothing by itself",
    )
    add("--allow-root-jobs", action="store_true", help="its agent may run work as root")
    add("--keep-requests", metavar="TIME", help="remove requests so long after their end (30d)")
    add("--keep-events", metavar="TIME", help="remove events after so long (30d)")
    add("--keep-audit", metavar="TIME", help="remove audit entries after so long (forever)")
    add("--keep-idempotency", metavar="TIME", help="know repeated calls for so long (1d)")
    add("--log-level", metavar="LEVEL", help=f"{', '.join(LOG_LEVELS)} (info)")
    add("--config", metavar="FILE", help="a YAML file with any of these, by name with underscores")
    return parser


def _read_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        content = written.read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, written.Unreadable) as error:
        problems.append(f"cannot read {path}: {' '.join(str(error).split())}")
        return {}
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        problems.append(f"{path}: must be a map of settings, such as port: 8080")
        return {}
    return content


def _take(given: dict[str, Any], name: str, value: object, where: str, problems: list[str]) -> None:
    try:
        given[name] = _FIELDS[name](value)
    except ValueError as error:
        problems.append(f"{where}: {error}")


def _from_text(name: str, text: object) -> object:
    """Convert the text of a flag or a variable to the type that a file would have."""
    if not isinstance(text, str):
        return text
    if name == "port":
        return int(text) if text.isdecimal() and len(text) < 9 else text
    if name in ("tls", "insecure_listen", "agent", "allow_root_jobs"):
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)
    if name == "allowed_hosts":
        return [part.strip() for part in text.split(",")]
    return text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f"must be a text, not {value!r:.80}")
    return value


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser().absolute()


def _port(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65_535:
        raise ValueError(f"must be an integer from 0 to 65535, not {value!r:.80}")
    return value


def _heartbeat(value: object) -> int:
    least, most = bounds.HEARTBEAT_MIN, bounds.HEARTBEAT_MAX
    try:
        period = parse_duration(value, "heartbeat", most=most)
    except Invalid as error:
        raise ValueError(error.problem) from None
    if period < least:
        raise ValueError(f"must be from {least / 1000:g} to {most // 1000} seconds, not {value}")
    return period


def _kept(value: object) -> int:
    least, most = bounds.KEEP_MIN, bounds.KEEP_MAX
    try:
        time = parse_duration(value, "keep", most=most)
    except Invalid as error:
        raise ValueError(error.problem) from None
    if time < least:
        days = most // bounds.DAY
        raise ValueError(f"must be from 1 to {days} days, such as 30d, not {value!r:.80}")
    return time


def _kept_or_forever(value: object) -> int | None:
    return None if value == FOREVER else _kept(value)


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r:.80}")
        return str(value)

    return parse


def _yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r:.80}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of names, not {value!r:.80}")
    return tuple(_text(each) for each in value)


_FIELDS: dict[str, Callable[[object], Any]] = {
    "data": _path,
    "database": _text,
    "host": _text,
    "port": _port,
    "unpooled": _one_of(*UNPOOLED),
    "allowed_hosts": _texts,
    "tls_cert": _path,
    "tls_key": _path,
    "tls": _yes_or_no,
    "insecure_listen": _yes_or_no,
    "agent": _yes_or_no,
    "allow_root_jobs": _yes_or_no,
    "log_level": _one_of(*LOG_LEVELS),
    "heartbeat": _heartbeat,
    "keep_requests": _kept_or_forever,
    "keep_events": _kept_or_forever,
    "keep_audit": _kept_or_forever,
    "keep_idempotency": _kept,
}


def _check_listening(config: Config) -> list[str]:
    problems = []
    if (config.tls_cert is None) != (config.tls_key is None):
        problems.append("tls_cert and tls_key come together")
    if config.tls and config.tls_cert is not None:
        problems.append("tls makes a certificate, and tls_cert names one: give one of them")
    for name in ("tls_cert", "tls_key"):
        path = getattr(config, name)
        if path is not None and not path.is_file():
            problems.append(f"{name}: {path} is not a file")
    problems += _check_key(config.tls_key)
    encrypted = config.tls or config.tls_cert is not None
    if not is_loopback(config.host) and not encrypted and not config.insecure_listen:
        problems.append(
            f"host: {config.host} can be reached from other machines, and tokens would travel in "
            "the clear; give tls (cede up --tls makes a certificate), tls_cert and tls_key, or "
            "insecure_listen behind a proxy that has them"
        )
    return problems


def _check_file(file: str | None, content: Mapping[str, Any]) -> list[str]:
    """Refuse a file that other users can read if it has the database's password."""
    try:
        password = urlsplit(str(content.get("database") or "")).password
        found = Path(file).stat() if file and password else None
    except (OSError, ValueError):
        return []  # that it is unreadable, or no address, is reported elsewhere
    if found is None or is_private(found.st_mode, found.st_uid):
        return []
    return [
        f"{file}: database has a password, and others than its owner may use the file; "
        f"chmod 600 {shlex.quote(str(file))}"
    ]


def _check_key(path: Path | None) -> list[str]:
    """Refuse a key that other users can read: they could pose as this server."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return []  # that it is missing was reported
    if found is None or is_private(found.st_mode, found.st_uid):
        return []
    return [f"tls_key: others than its owner may use {path}; chmod 600 {shlex.quote(str(path))}"]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
