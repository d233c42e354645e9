"""C3: the form of a token, and how often it is looked up."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest

from cede.model.token import Role, Token
from cede.server import tokens
from cede.server.api.auth import CACHE_SECONDS, Authenticator
from cede.server.api.problem import Problem


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


class Book:
    """Tokens as a store has them, and how often each thing was read."""

    def __init__(self, many: int) -> None:
        self.now = 0.0
        self.found: list[str] = []
        self.versions = 0
        self.tokens = {}
        self.secrets = []
        for number in range(many):
            secret, digest = tokens.new_token()
            self.secrets.append(secret)
            self.tokens[digest] = Token(str(number), "ci", Role.VIEWER, (), digest, "")
        self.auth = Authenticator(self.find, self.version, lambda: "", lambda: self.now)

    def find(self, digest: str) -> Token | None:
        self.found.append(digest)
        return self.tokens.get(digest)

    def version(self) -> tuple[int, int]:
        self.versions += 1
        return len(self.tokens), hash(tuple(each.revoked for each in self.tokens.values()))

    async def ask(self, *secrets: str) -> None:
        await asyncio.gather(*(self.auth.authenticate([f"Bearer {secret}"]) for secret in secrets))


def test_while_no_token_changes_one_read_serves_all_of_them() -> None:
    async def calls() -> None:
        book = Book(50)
        await book.ask(*book.secrets)
        assert len(book.found) == 50
        book.now += CACHE_SECONDS
        book.found.clear()
        book.versions = 0
        await book.ask(*book.secrets, *book.secrets)
        assert (book.found, book.versions) == ([], 1)

    asyncio.run(calls())


def test_after_a_change_of_any_token_every_one_is_looked_up() -> None:
    async def calls() -> None:
        book = Book(2)
        first, second = book.secrets
        for _ in range(3):
            await book.ask(first, second)
            book.now += CACHE_SECONDS
        book.found.clear()
        digest = tokens.hash_of(first)
        book.tokens[digest] = replace(book.tokens[digest], revoked=True)
        await book.ask(second)
        with pytest.raises(Problem, match="valid token"):
            await book.ask(first)
        assert sorted(book.found) == sorted(book.tokens)

    asyncio.run(calls())


def test_what_was_revoked_here_is_looked_up_at_once() -> None:
    async def calls() -> None:
        book = Book(1)
        for _ in range(3):
            await book.ask(*book.secrets)
            book.now += CACHE_SECONDS
        digest, token = next(iter(book.tokens.items()))
        book.tokens[digest] = replace(token, revoked=True)
        book.auth.forget()
        with pytest.raises(Problem, match="valid token"):
            await book.ask(*book.secrets)

    asyncio.run(calls())
