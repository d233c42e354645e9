"""The arguments of a command: the state, the instant, and a place for further rows to write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cede.engine.state.state import State
from cede.model.errors import CedeError, Conflict
from cede.model.token import Token
from cede.store import Store
from cede.store.values import AuditNote, Noted, Removal, Run


class Undecided(CedeError):
    """The answer to a command depends on the pass over those before it in the same transaction.
    The command is run again in the next one; the first of a transaction never raises this.
    """


@dataclass(slots=True)
class Tx:
    """One transaction in the making. A refused command leaves nothing in it. `asked` are the nodes
    that its submissions ask for, by tenant: the pass has yet to say who of them gets any. `run` and
    `removal` are retention's, of which there is one.
    """

    state: State
    now: int
    wall: str
    notes: list[AuditNote] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    deleted_requests: list[str] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    run: Run | None = None
    removal: Removal | None = None
    noted: Noted | None = None  # the history's, of which there is one

    def audit(self, actor: str, action: str, target: str, detail: dict[str, Any]) -> None:
        """C13: who did what, in the same transaction as its effect."""
        self.notes.append(AuditNote(self.wall, actor, action, target, detail))

    def put_token(self, row: Token) -> None:
        """Make a token, or change one: revoking is putting it again with `revoked`."""
        self.tokens.append(row)

    def token(self, token_id: str, store: Store) -> Token:
        """A token as this transaction has it: nobody else writes, so nothing is newer."""
        changed = (each for each in reversed(self.tokens) if each.id == token_id)
        return next(changed, None) or store.get_token(token_id)

    def delete_request(self, request_id: str) -> None:
        """Remove an ended request from the database; its events stay."""
        if request_id in self.state.requests:
            raise Conflict("not_ended", f"request {request_id} has not ended: cancel it first")
        self.deleted_requests.append(request_id)

    @property
    def wrote(self) -> bool:
        """Whether there is anything to write besides the state's changes."""
        retained = self.run is not None or self.removal is not None or self.noted is not None
        return bool(self.notes or self.tokens or self.deleted_requests or retained)

    def sizes(self) -> tuple[int, int, int]:
        """To cut back to when a command is refused."""
        return len(self.notes), len(self.tokens), len(self.deleted_requests)

    def cut(self, sizes: tuple[int, int, int]) -> None:
        notes, tokens, deleted = sizes
        del self.notes[notes:], self.tokens[tokens:], self.deleted_requests[deleted:]
