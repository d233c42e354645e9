"""`cede up --tls`: an authority and a certificate of the server's own, made by the `openssl`
program, and renewed before they end.

The authority lasts ten years and is what clients trust; the certificate lasts a year and is renewed
a month before its end, or when the server has other names. A running server loads a new one without
a restart.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import structlog

from cede.server.config import Config

FOLDER = "tls"
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
# Renewed when less than this is left.
MARGIN_DAYS = 30
LOOK_SECONDS = 3600.0
_DAY = 24 * 3600
_NAMES = "names.json"
_ANY = ("0.0.0.0", "::")

_log = structlog.get_logger("cede.tls")

_AUTHORITY = """\
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_REQUEST = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
"""
_CERTIFICATE = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


class NoTls(OSError):
    """Certificates cannot be made here."""


@dataclass(frozen=True, slots=True)
class OwnTls:
    """The files: keys are readable by their owner only. `certificate` is followed by the
    authority, so that clients see the fingerprint that the server printed.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def fingerprint(self) -> str:
        der = ssl.PEM_cert_to_DER_cert(self.authority.read_text())
        return f"sha256:{sha256(der).hexdigest()}"

    def renew(self, names: list[str], *, margin_days: int = MARGIN_DAYS) -> bool:
        """Make the files that are missing, end soon or have other names; return whether any was
        made."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = False
        # The authority must outlive every certificate that it signs.
        if not self._lasts(self.authority, CERTIFICATE_DAYS + margin_days):
            self._make_authority()
            made = True
        known = self._names()
        if made or known != names or not self._lasts(self.certificate, margin_days):
            self._make_certificate(names)
            made = True
        return made

    def _names(self) -> list[str] | None:
        with contextlib.suppress(OSError, ValueError):
            found: list[str] = json.loads((self.folder / _NAMES).read_text())
            return found
        return None

    def _lasts(self, certificate: Path, days: int) -> bool:
        if not certificate.is_file():
            return False
        left = ("-noout", "-checkend", str(days * _DAY))
        return _openssl("x509", "-in", str(certificate), *left, check=False) == 0

    def _make_authority(self) -> None:
        name = f"cede at {socket.gethostname()} {secrets.token_hex(4)}"[:64]
        with self._making() as folder:
            settings = _written(folder / "settings", _AUTHORITY.format(name=name))
            _openssl(
                *("req", "-x509", "-config", settings, *_new_key(folder / "ca.key")),
                *("-days", str(AUTHORITY_DAYS), "-out", str(folder / "ca.pem")),
            )
            self.authority.unlink(missing_ok=True)  # an interrupted start begins again
            for file in ("ca.key", "ca.pem"):
                (folder / file).replace(self.folder / file)

    def _make_certificate(self, names: list[str]) -> None:
        with self._making() as folder:
            settings = _written(folder / "settings", _REQUEST.format(name="cede server"))
            request, signed = str(folder / "request"), folder / "signed"
            key = _new_key(folder / "key")
            _openssl("req", "-new", "-config", settings, *key, "-out", request)
            further = _written(folder / "further", _CERTIFICATE.format(names=",".join(names)))
            _openssl(
                *("x509", "-req", "-in", request, "-extfile", further, "-out", str(signed)),
                *("-CA", str(self.authority), "-CAkey", str(self.folder / "ca.key")),
                *("-set_serial", f"0x0{secrets.token_hex(15)}", "-days", str(CERTIFICATE_DAYS)),
            )
            both = folder / "both"
            both.write_text(signed.read_text() + self.authority.read_text())
            (self.folder / _NAMES).unlink(missing_ok=True)  # the same here
            (folder / "key").replace(self.key)
            both.replace(self.certificate)
            names_file = folder / "names"
            names_file.write_text(json.dumps(names))
            names_file.replace(self.folder / _NAMES)

    @contextlib.contextmanager
    def _making(self) -> Iterator[Path]:
        """Make a folder beside the files: half-made ones never get into their place."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield Path(folder)


class Renewal:
    """Checks every hour whether the certificate ends soon, and makes the server load a new one."""

    def __init__(self, own: OwnTls, names: list[str], reload: Callable[[], None]) -> None:
        self._own, self._names, self._reload = own, names, reload
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tls renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def look(self, margin_days: int = MARGIN_DAYS) -> None:
        try:
            if self._own.renew(self._names, margin_days=margin_days):
                self._reload()
                _log.info("the certificate was renewed", fingerprint=self._own.fingerprint)
        except OSError as error:
            _log.warning("the certificate cannot be renewed", error=str(error))

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self.look()


def own_tls(config: Config) -> OwnTls:
    return OwnTls(config.data / FOLDER)


def names_of(config: Config) -> list[str]:
    """Return the names and addresses by which clients may call this server."""
    given = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *config.allowed_hosts]
    given += [] if config.host in _ANY else [config.host]
    return [_san(each) for each in dict.fromkeys(given) if each]


def _san(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _new_key(path: Path) -> list[str]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    return [*curve, "-nodes", "-keyout", str(path)]


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def _openssl(*arguments: str, check: bool = True) -> int:
    program = shutil.which("openssl")
    if program is None:
        raise NoTls(
            "tls: the program openssl is not here; install it, or give tls_cert and tls_key"
        )
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "OPENSSL_CONF": os.devnull},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=0o077,
    )
    if check and done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        raise NoTls(f"tls: openssl {arguments[0]} failed: {said}")
    return done.returncode
