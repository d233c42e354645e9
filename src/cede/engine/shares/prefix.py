"""The place of a holding in a share: what is used before it, and where the share ends.

Against waiters of other policies the share of the holding's policy, or of one above, counts whole.
Between requests of one policy the request's own share counts, and what stands before the holding
decides. This module shows afterwards what `PoolLedger` and `task groups` decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cede.engine.fair.groups import Group
from cede.engine.ledger.ledger import ROUNDING, Level, PoolLedger
from cede.engine.rights.cover import Holding
from cede.engine.rights.standing import BORROWED, IN_SHARE, WITHIN_SHARE
from cede.model.amounts import Amounts, add_to

# By a holding's safety inside its task group.
GROUPS = (Group.PREEMPTIBLE, Group.AGGRESSIVELY_PREEMPTIBLE, Group.NON_PREEMPTIBLE)

# The bands of a policy's share; a holding behind the last is beyond the share.
_BANDS = (Group.NON_PREEMPTIBLE, Group.AGGRESSIVELY_PREEMPTIBLE)
_LAST = len(_BANDS) - 1

# The groups by rights, where only fair shares decide.
BY_RIGHTS = {
    IN_SHARE: Group.NON_PREEMPTIBLE,
    WITHIN_SHARE: Group.AGGRESSIVELY_PREEMPTIBLE,
    BORROWED: Group.PREEMPTIBLE,
}


@dataclass(frozen=True, slots=True)
class Prefix:
    """A holding's place in a share. `bound` is where its group ends or, if it is behind all, where
    the share does.

    `above` is how many steps up the covering policy is; None if no share covers the holding, or if
    the share is its own request's.
    """

    group: Group
    before: Amounts
    through: Amounts
    bound: dict[str, float]
    above: int | None = None


def in_policy(ledger: PoolLedger, holding: Holding) -> Prefix:
    """The place that decided how close to home a holding is covered (`PoolLedger.rights`)."""
    if ledger.balance is not None:
        return _in_group(ledger, holding)
    level = _cover(ledger, holding)
    asked = (holding.policy_id, _LAST) if level is None else level
    before = _sum(_filling(ledger, holding, asked[0]))
    group = Group.PREEMPTIBLE if level is None else _BANDS[level[1]]
    above = None if level is None else ledger.chains[holding.policy_id].index(level[0])
    bound = {key: _whole(amount) for key, amount in ledger.share_at(asked).items()}
    return Prefix(group, before, _sum([holding], before), bound, above)


def _in_group(ledger: PoolLedger, holding: Holding) -> Prefix:
    """The same where only fair shares decide: the groups of the policy's own share."""
    before = _sum(ledger.filled_before(holding))
    group = BY_RIGHTS[ledger.rights(holding.id)]
    bound: dict[str, float] = {}
    if (lines := ledger.published.lines.get(holding.policy_id)) is not None:
        line = lines[0 if group is Group.NON_PREEMPTIBLE else 1]
        parts = zip(line.totals.items(), line.bound, strict=True)
        bound = {key: _whole(min(part, 1) * total) for (key, total), part in parts}
    above = None if group is Group.PREEMPTIBLE else 0
    return Prefix(group, before, _sum([holding], before), bound, above)


def in_request(ledger: PoolLedger, holding: Holding) -> Prefix:
    """The place that decided how safe a holding is beside the other requests of its policy."""
    order = ledger.task_groups.of(holding.task_group)
    at = next((n for n, each in enumerate(order) if each.id == holding.id), len(order))
    before = _sum(order[:at])
    bound: dict[str, float] = {}
    claim = ledger.published.claims.get(holding.task_group)
    if claim is not None:
        settings = claim.settings
        part = settings.preemption_satisfaction_threshold
        if GROUPS[holding.band] is Group.NON_PREEMPTIBLE:
            part = settings.aggressive_preemption_satisfaction_threshold
        parts = zip(claim.due.totals.items(), claim.due.fair, strict=True)
        bound = {key: _whole(part * share * total) for (key, total), share in parts}
    return Prefix(GROUPS[holding.band], before, _sum([holding], before), bound)


def _cover(ledger: PoolLedger, holding: Holding) -> Level | None:
    """The policy and the band of its share that cover a holding."""
    rights = ledger.rights(holding.id)
    if rights == BORROWED:
        return None
    return ledger.levels[holding.policy_id][IN_SHARE - rights]


def _filling(ledger: PoolLedger, holding: Holding, policy_id: str) -> Iterator[Holding]:
    """The holdings that fill a policy's share before this one: those covered below it, then earlier
    ones.
    """
    for other in ledger.holdings.values():
        chain = ledger.chains[other.policy_id]
        if other.id == holding.id or policy_id not in chain:
            continue
        cover = _cover(ledger, other)
        below = cover is not None and chain.index(cover[0]) < chain.index(policy_id)
        if below or other.place < holding.place:
            yield other


def _sum(holdings: Iterable[Holding], start: Amounts | None = None) -> dict[str, int]:
    total = dict(start or {})
    for each in holdings:
        add_to(total, each.amounts)
    return total


def _whole(amount: float) -> int | float:
    """A part of a share for people: an integer where it is nearly one, else to the hundredth."""
    nearest = round(amount)
    return nearest if abs(amount - nearest) <= 2 * ROUNDING else round(amount, 2)
