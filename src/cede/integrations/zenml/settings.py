"""The plug-in's settings, from the environment of the ZenML server.

A value that cannot be right stops the ZenML server at its start, with the name of the variable: a
plug-in that guesses would let steps run uncounted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cede.client.config import Connection, read_token, resolve
from cede.client.errors import NotConfigured
from cede.model import bounds

FAIL_OPEN = "CEDE_ZENML_FAIL_OPEN"
TIMEOUT = "CEDE_ZENML_TIMEOUT"
LEASE = "CEDE_ZENML_LEASE"
TOKEN_FILE = "CEDE_TOKEN_FILE"

# A step's creation waits this long for an answer; ZenML's own clients give up after 30 seconds.
TIMEOUT_DEFAULT = 10.0
TIMEOUT_MAX = 25.0
# A running step's heartbeat promises the next one within 315 seconds at worst; one more of its 15
# second intervals, so that it is over before the units are released.
LEASE_DEFAULT = 330.0

_PREFIX = "CEDE_ZENML_"
_KNOWN = (FAIL_OPEN, TIMEOUT, LEASE)
_HOW = (
    f"give the ZenML server CEDE_SERVER, such as http://127.0.0.1:8080, and CEDE_TOKEN or "
    f"{TOKEN_FILE} in its environment"
)
_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """`fail_open`: steps run uncounted while cede does not answer, instead of failing.

    `timeout`: seconds that one call to cede may take. `lease`: seconds of silence after which a
    waiter is cancelled and a running step's units are released.
    """

    connection: Connection
    fail_open: bool = False
    timeout: float = TIMEOUT_DEFAULT
    lease: float = LEASE_DEFAULT

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        _refuse_unknown(environ)
        return cls(
            connection=_connection(environ),
            fail_open=_switch(environ, FAIL_OPEN),
            timeout=_seconds(environ, TIMEOUT, TIMEOUT_DEFAULT, 0.1, TIMEOUT_MAX),
            lease=_seconds(
                environ,
                LEASE,
                LEASE_DEFAULT,
                bounds.LEASE_MIN / bounds.SECOND,
                bounds.LEASE_MAX / bounds.SECOND,
            ),
        )


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    """Refuse unknown variables: a misspelt `fail_open` would show only when cede is away, by
    failing steps."""
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in _KNOWN:
            raise NotConfigured(f"{name} is no setting of cede's: it has {', '.join(_KNOWN)}")


def _connection(environ: Mapping[str, str]) -> Connection:
    named = environ.get(TOKEN_FILE)
    try:
        token = read_token(Path(named)) if named and not environ.get("CEDE_TOKEN") else None
        return resolve(token=token, environ=environ)
    except NotConfigured as error:
        # The ZenML server shows only the message of an error, and has no command line of cede's.
        raise NotConfigured(f"{error.message}; {_HOW}") from None


def _switch(environ: Mapping[str, str], name: str) -> bool:
    given = environ.get(name, "").strip().lower()
    if given not in _WORDS:
        raise NotConfigured(f"{name} must be true or false, not {given!r}")
    return _WORDS[given]


def _seconds(
    environ: Mapping[str, str], name: str, otherwise: float, least: float, most: float
) -> float:
    given = environ.get(name, "").strip()
    if not given:
        return otherwise
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        raise NotConfigured(f"{name} must be from {least:g} to {most:g} seconds, not {given!r}")
    return seconds
