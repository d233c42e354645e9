"""Join tokens, and the tokens of the machines and bridges that join by them (C8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cede.model import bounds
from cede.model.errors import Conflict
from cede.model.subject import Subject
from cede.model.token import Role, Token
from cede.server.ids import new_id
from cede.server.writer import Tx
from cede.store import Store


def spendable(tx: Tx, store: Store, token: Token, has_made: Callable[[Token], bool]) -> Token:
    """Return the join token as it is now, if it may make one more, or `has_made` this one: the
    answer that carried the new token may have been lost, and then it is asked for once more.
    """
    token = tx.token(token.id, store)
    if token.revoked:
        raise Conflict("join_token_used", "this join token was revoked; ask for another")
    if token.uses == 0 and not has_made(token):
        raise Conflict("join_token_used", "this join token is used up; ask for another")
    return token


def hand_over(tx: Tx, store: Store, join: Token, mine: Subject, name: str, digest: str) -> None:
    """Give one machine or bridge one token, and revoke its earlier ones."""
    if join.uses is not None and mine not in join.subjects:
        tx.put_token(replace(join, uses=join.uses - 1, subjects=(*join.subjects, mine)))
    revoke_tokens(tx, store, mine)
    shown = name[: bounds.NAME_LENGTH_MAX]
    tx.put_token(Token(new_id(), shown, Role.NODE, (mine,), digest, tx.wall))


def revoke_tokens(tx: Tx, store: Store, mine: Subject) -> None:
    for token in tokens_of(tx, store, mine):
        tx.put_token(replace(token, revoked=True))


def tokens_of(tx: Tx, store: Store, mine: Subject) -> list[Token]:
    """Return the tokens that speak for a machine or a bridge, as this transaction has them."""
    found = {each.id: each for each in (*store.tokens_of_machine(mine), *tx.tokens)}
    return [each for each in found.values() if each.role is Role.NODE and each.subjects == (mine,)]
