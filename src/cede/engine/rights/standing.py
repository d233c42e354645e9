"""The order of standing.

This is the only order in the system (law 3): the queue is sorted by it, victims are legal by it,
earmarks are contested by it. It knows nothing of time, cost or nodes. If you need "unless", you
want patience or a price.
"""

from __future__ import annotations

from cede.model import bounds
from cede.model.settings import Precedence
from cede.model.terms import CLASS_MAX

# Rights: how close to home a holding is covered: by its own policy's share; by an ancestor's share,
# one less for every step up; or by none.
IN_SHARE = 2 * bounds.TREE_DEPTH_MAX  # a policy's fair share has two bands
WITHIN_SHARE = IN_SHARE - 1  # under fair share: the second of them, between its two thresholds
BORROWED = 0
ABOVE_RIGHTS = IN_SHARE + 1

# A place in the order of standing. Compares as a tuple; equal standings never take from each other.
Standing = tuple[int, int]

# (submitted_at, index, request id): older first, and never equal.
Age = tuple[int, int, str]

LOWEST: Standing = (-(1 << 62), -(1 << 62))  # below every other: may cut into nothing


def standing(rights: int, rank: int, precedence: Precedence) -> Standing:
    if precedence is Precedence.RIGHTS_FIRST:
        return (rights, rank)
    if precedence is Precedence.RANK_FIRST:
        return (rank, rights)
    # Home first: only the highest class, which is never stopped, stands before holders at home.
    return (rights + (ABOVE_RIGHTS if rank >= CLASS_MAX else 0), rank)
