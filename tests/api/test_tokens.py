"""C3: the form of a token."""

from __future__ import annotations

import hashlib

from cede.model.token import Role
from cede.server import tokens


def test_a_token_has_a_prefix_256_bits_and_a_checksum() -> None:
    secret, digest = tokens.new_token()
    assert secret.startswith("cede_")
    assert len(secret) == tokens.LENGTH
    assert 62**43 > 2**256 > 62**42
    assert tokens.well_formed(secret)
    assert digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in digest


def test_no_two_are_alike() -> None:
    assert len({tokens.new_token()[0] for _ in range(1_000)}) == 1_000


def test_a_mistyped_token_is_recognised_without_a_lookup() -> None:
    secret, _ = tokens.new_token()
    for place in range(len(secret)):
        other = "1" if secret[place] != "1" else "2"
        assert not tokens.well_formed(secret[:place] + other + secret[place + 1 :]), place
    for bad in ("", "cede_", secret[:-1], secret + "x", "x" * tokens.LENGTH, secret[:-1] + "é"):
        assert not tokens.well_formed(bad)


def test_roles_are_ordered() -> None:
    assert Role.VIEWER < Role.SUBMITTER < Role.OPERATOR < Role.ADMIN
    ladder = [str(role) for role in Role if not role.machine]
    assert ladder == ["viewer", "submitter", "operator", "admin"]
