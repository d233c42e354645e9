"""Claims and sensitive work that an earlier version stored under a token's bare name.

A name that one identity has becomes it, on nodes and requests alike and in one transaction, so that
a claim and the work on its node keep the same claimant. Every server does this once it has become
the writer: a server of the earlier version may go on writing names until then. A name that several
identities have stays: holders under it go on, and an operator must claim the nodes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cede.model.token import Token
from cede.server.tx import Tx


def adopt_identities(tx: Tx, named: Callable[[str], list[Token]]) -> None:
    """Replace the bare names in the state; `named` returns the tokens that have a name."""
    state = tx.state
    sensitive = [each for each in state.requests.values() if each.terms.sensitive]
    owners = {each.owner for each in sensitive} | {each.claimed_by for each in state.nodes.values()}
    names = sorted(name for name in owners if name and "/" not in name)
    known = {name: identity_of(named(name)) for name in names}
    for request in sensitive:
        if (identity := known.get(request.owner)) is not None:
            state.put(replace(request, owner=identity))
    for node in list(state.nodes.values()):
        if (identity := known.get(node.claimed_by)) is not None:
            state.put(replace(node, claimed_by=identity))


def identity_of(tokens: Iterable[Token]) -> str | None:
    """Return the one identity of these tokens, or None; revoked ones count where there is no
    other."""
    tokens = list(tokens)
    alive = {each.identity for each in tokens if not each.revoked}
    found = alive or {each.identity for each in tokens}
    return found.pop() if len(found) == 1 else None
