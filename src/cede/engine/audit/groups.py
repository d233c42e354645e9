"""The safety of each holding of a request, recounted for the audit by the definition alone.

The holdings of a request fill its fair share in the order of their last start. Those before the
first cut are safest, those before the second cut less so, the others are free to take. This shares
no code with `fair.groups`, which decides the same: one mistake must not hide behind the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SAFE, LESS_SAFE, FREE = 2, 1, 0
# Shares that differ by less are equal.
HAIR = 1e-9
# A whole amount that rounding left this little above a fair share is within it.
ROUNDING = 1e-6

Share = Mapping[str, float]  # fractions of the whole, by key


class Held(NamedTuple):
    """An allocation or a promise; `started` is the index of its last start or saved progress."""

    id: str
    amounts: Mapping[str, int]
    started: int


class Entitled(NamedTuple):
    """A policy's due and the settings of its groups, in the form of a request's claim."""

    due: Any
    settings: Any


def safety(held: Iterable[Held], claim: Any) -> list[int]:
    """The safety of each of these holdings, which are in order; `claim` is what was published for
    them.
    """
    settings, totals = claim.settings, claim.due.totals
    fair = dict(zip(totals, claim.due.fair, strict=True))
    demand = dict(zip(totals, claim.due.demand, strict=True))
    counts_itself = settings.consider_allocation_on_fair_share_bound_preemptible
    threshold = settings.non_preemptible_resource_usage_threshold
    # A request whose due is all it wants is never beyond its share.
    wants_no_more = any(demand[key] > HAIR for key in totals) and all(
        abs(fair[key] - demand[key]) <= HAIR for key in totals
    )
    before = dict.fromkeys(totals, 0)
    result = []
    for each in held:
        after = {key: n + each.amounts.get(key, 0) for key, n in before.items()}
        judged = after if counts_itself else before
        used = {key: n / totals[key] if totals[key] else 0.0 for key, n in judged.items()}
        spared = threshold and all(
            before[key] < most for key, most in threshold.items() if key in before
        )
        first = settings.aggressive_preemption_satisfaction_threshold
        second = settings.preemption_satisfaction_threshold
        if spared or _is_within(used, fair, demand, first, counts_itself):
            result.append(SAFE)
        elif wants_no_more or _is_within(used, fair, demand, second, counts_itself):
            result.append(LESS_SAFE)
        else:
            result.append(FREE)
        before = after
    return result


def _is_within(used: Share, fair: Share, demand: Share, part: float, counts_itself: bool) -> bool:
    """Whether a use is below that part of the share in every key of which more is wanted.

    If no more is wanted of any key, one key below its part is enough. A use that counts the holding
    itself may also be exactly that part.
    """
    more = 2 * HAIR if counts_itself else 0.0
    below = {key: used[key] + HAIR < part * fair[key] + more for key in used}
    wanting = [below[key] for key in used if fair[key] + HAIR < demand[key]]
    return all(wanting) if wanting else any(below.values())
