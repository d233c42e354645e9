"""`cede up --tls`: the certificates, when they are made anew, and who may read the keys."""

from __future__ import annotations

import shutil
import ssl
import stat
from pathlib import Path

import pytest

from cede.server import own_tls
from cede.server.config import Config
from cede.server.own_tls import NoTls, OwnTls, Renewal, names_of

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

NAMES = ["DNS:localhost", "IP:127.0.0.1"]


@pytest.fixture
def own(tmp_path: Path) -> OwnTls:
    made = OwnTls(tmp_path / "tls")
    assert made.renew(NAMES)
    return made


def test_keys_are_their_owners_alone(own: OwnTls) -> None:
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((own.folder / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(own.folder.stat().st_mode) == 0o700
    left = {each.name for each in own.folder.iterdir()}
    assert left == {"ca.key", "ca.pem", "server.key", "server.pem", "names.json"}


def test_the_certificate_is_signed_by_the_authority(own: OwnTls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    trusting = ssl.create_default_context(cafile=own.authority)
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
    for name in ("localhost", "127.0.0.1"):
        assert _shakes_hands(context, trusting, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        _shakes_hands(context, trusting, "elsewhere")


def _shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bool:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[int] = set()
    while len(done) < 2:
        for side in (here, there):
            try:
                side.do_handshake()
                done.add(id(side))
            except ssl.SSLWantReadError:
                continue
    return True


def test_it_is_made_anew_for_other_names_and_before_its_end(own: OwnTls) -> None:
    before = own.certificate.read_bytes(), own.fingerprint
    assert not own.renew(NAMES)
    assert own.renew([*NAMES, "DNS:gpu-server"])
    assert own.certificate.read_bytes() != before[0] and own.fingerprint == before[1]
    soon = own_tls.CERTIFICATE_DAYS + 1
    second = own.certificate.read_bytes()
    assert own.renew([*NAMES, "DNS:gpu-server"], margin_days=soon)
    assert own.certificate.read_bytes() != second and own.fingerprint == before[1]
    # The authority itself must outlive what it signs.
    assert own.renew(NAMES, margin_days=own_tls.AUTHORITY_DAYS)
    assert own.fingerprint != before[1]


def test_an_interrupted_renewal_is_begun_again(own: OwnTls) -> None:
    (own.folder / "names.json").unlink()
    own.key.write_text("half")
    assert own.renew(NAMES)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(own.certificate, own.key)


def test_a_running_server_takes_the_new_one_along(own: OwnTls) -> None:
    reloaded: list[bytes] = []
    renewal = Renewal(own, NAMES, lambda: reloaded.append(own.certificate.read_bytes()))
    renewal.look()
    assert reloaded == []
    renewal.look(margin_days=own_tls.CERTIFICATE_DAYS + 1)
    assert reloaded == [own.certificate.read_bytes()]


def test_the_names_are_those_that_clients_may_use() -> None:
    config = Config(Path("/x"), "", host="192.0.2.7", allowed_hosts=("gpu.example",))
    found = names_of(config)
    assert {"DNS:localhost", "IP:127.0.0.1", "IP:::1", "IP:192.0.2.7", "DNS:gpu.example"} <= {
        *found
    }
    assert "IP:0.0.0.0" not in names_of(Config(Path("/x"), "", host="0.0.0.0"))


def test_without_openssl_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoTls, match="openssl is not here"):
        OwnTls(tmp_path / "tls").renew(NAMES)
