"""The ledger of one pool: all sums and orders that decisions read, kept as holdings come and go.

Two capacities matter. Free *now* is the capacity less all live holdings. Free *to promise* is the
capacity less staying holdings and promises: leaving holders do not count, earmarks do (law 4).
Nothing here decides; `recount` in `audit.py` computes the same numbers from scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import floor, inf
from operator import attrgetter
from typing import Any

from sortedcontainers import SortedList

from cede.engine.fair.balance import Balance
from cede.engine.ledger.queue import Queue, QueueKey, Stand
from cede.engine.ledger.task_groups import UNPUBLISHED, Published, TaskGroups, claims_moved
from cede.engine.nodes.homes import Homes, is_settled
from cede.engine.nodes.inventory import NodeInventory
from cede.engine.rights.cover import Fill, Holding
from cede.engine.rights.cut import Cut, CutPlace
from cede.engine.rights.standing import (
    BORROWED,
    IN_SHARE,
    LOWEST,
    WITHIN_SHARE,
    Age,
    Standing,
    standing,
)
from cede.model.amounts import Amounts, add_to, take_from, total_of_many
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.request import Request
from cede.model.settings import Patience, Precedence, QueueOrder, Rank, Share
from cede.model.shape import Form, Shape
from cede.model.terms import CLASS_MAX, USUAL

# (rights, rank, minus index, id): the order in which holders are considered as victims.
Place = tuple[int, int, int, str]
# (rights, rank, policy, band): holders that are alike to every rule.
Tier = tuple[int, int, str, int]


# A policy's share, or one band of it, from the safest on.
Level = tuple[str, int]

# See `alike_to`.
Alike = tuple[Any, ...]
# Kinds of requests for which a ledger keeps its answers.
_ALIKE_MAX = 4_096

ROUNDING = 1e-6

Count = Callable[[dict[str, int], Amounts], None]  # into a sum, or out of it


def alike(holding: Holding) -> tuple[Any, ...]:
    """A key that is equal for holdings that differ only in node, age and in being told to stop."""
    amounts = tuple(sorted(holding.amounts.items()))
    return holding.policy_id, holding.rank, holding.preemptible, amounts


Departing = tuple[tuple[Any, ...], bool]


def departing(holding: Holding) -> Departing:
    """A key that is equal for victims of which none can go on unless the oldest can, apart from
    their nodes.
    """
    return alike(holding), holding.may_go_on


def known_by(holding: Holding) -> Any:
    """A key that is equal for interchangeable holdings: in a counted pool all that are alike, on
    nodes each alone.
    """
    return holding.id if holding.footprint else alike(holding)


class PoolLedger:
    """One pool's holdings, waiters and sums."""

    def __init__(
        self, pool: Pool, policies: dict[str, Policy], inventory: NodeInventory | None = None
    ) -> None:
        self.pool = pool
        self.inventory = inventory
        self.policies = policies
        self.fair = pool.settings.share is Share.FAIR_SHARE
        # Whether elements may starve below a fair share, even if another share gives rights.
        self.starves = self.fair or pool.settings.patience is Patience.STARVATION
        self.counting = tuple(sorted(pool.capacity)) if self.fair else counting_keys(pool, policies)
        self.published = UNPUBLISHED
        self._shares: dict[Level, Mapping[str, float]] = {}
        self.homes = Homes(policies, inventory)
        self.chains = {pid: chain(policies, pid) for pid in policies}  # itself, and upwards
        self._balance_uses()
        parents = {each.parent_id for each in policies.values()}  # their limits bound those below
        self.limits = {pid: p.limit for pid, p in policies.items() if pid in parents and p.limit}
        self.live: dict[str, int] = {}
        self.leaving: dict[str, int] = {}
        # Leaving holders that come back, by kind, the oldest first.
        self.departing: dict[Departing, SortedList[tuple[int, str]]] = {}
        self.earmarked: dict[str, int] = {}
        # Of a policy and all below it: held or promised; the promised and the leaving part of that.
        self.used: dict[str, dict[str, int]] = {pid: {} for pid in policies}
        self.used_promised: dict[str, dict[str, int]] = {pid: {} for pid in policies}
        self.used_leaving: dict[str, dict[str, int]] = {pid: {} for pid in policies}
        self.yielded: dict[str, dict[str, int]] = {pid: {} for pid in policies}  # of that leaving
        self.confined: dict[str, dict[str, int]] = {pid: {} for pid in policies}
        self.holdings: dict[str, Holding] = {}
        self.parts = 0  # the sum over holdings of their nodes; in a counted pool 1 for each
        self.earmarks: dict[str, Holding] = {}
        self.withheld: dict[str, str] = {}  # waiters with withheld room: their policy
        self.heads: dict[str, tuple[int, Standing]] = {}  # the standing of each, cached by `view`
        self.timed: dict[str, None] = {}  # holders with a walltime
        # Of a version: holders and their ends, as ordered by `forecast`.
        self.ends: tuple[int, dict[str, int]] = (-1, {})
        self.spare: dict[str, tuple[Any, dict[str, int]]] = {}  # the room beside each, by `bounds`
        self.queues: dict[QueueKey, Queue] = {}
        self._clear_kinds()
        self.streams: dict[QueueKey, tuple[Any, ...]] = {}  # the streams of each queue, by `cursor`
        # (policy, rank, rights): owners of earmarks
        self.owed: dict[tuple[str, int, int], Queue] = {}
        self.owed_sums: dict[tuple[int, int], dict[str, int]] = {}  # (rank, rights): their sums
        self.task_groups = TaskGroups()
        self.appraised: dict[str, Any] = {}  # holders: their last appraisal by `pricing`
        self.scores: dict[QueueKey, float] = {}  # of the oldest in each queue, where a score orders
        self.fair_settings: dict[str, Any] = {}  # the settings of policies, cached by `publish`
        # Held directly under a policy, by band; a holding of a higher band goes before them.
        self.banded: dict[tuple[str, int], dict[str, int]] = {}
        # Cached answers, by question, until the next change.
        self._answers: dict[tuple[Any, ...], dict[str, int]] = {}
        self.holders_alike: dict[tuple[Any, ...], Any] = {}  # holders in groups, cached by `why`
        self.pool_bounds: dict[Standing, tuple[int, list[Any]]] = {}  # of a version, by standing
        self.version = 0  # changes with the ledger, so that cached answers can be checked
        self.tiers: dict[Tier, dict[str, int]] = {}  # takeable sums
        self.takeable: dict[str, SortedList[Place]] = {}
        self._rights: dict[str, int] = {}
        self._unlisted: dict[str, None] = {}  # holdings that are listed later, see `hold_many`
        self._open_shares()

    def _clear_kinds(self) -> None:
        """Clear the caches, by policy and kind of request: whether it may queue here, and where. A
        ledger is opened again when its pool, a policy or a node is edited, so they stay valid.
        """
        self._admitted: dict[tuple[str, Alike], bool] = {}
        self._stands: dict[tuple[str, Alike], Stand] = {}
        # How much each policy starves, by the clocks and the version that say so; by `publish`.
        self.hunger: dict[str, tuple[Any, int, Any]] = {}

    @property
    def by_amounts(self) -> bool:
        """Whether reserves protect amounts: they give rights, and rights come before rank."""
        rights_first = self.pool.settings.precedence is Precedence.RIGHTS_FIRST
        return rights_first and not self.fair and not self.homes.decide

    @property
    def keeps_order(self) -> bool:
        """Whether standing and age alone order waiters, without nodes, balance or score."""
        by_score = self.pool.settings.rank is Rank.CLASS
        return self.inventory is None and self.balance is None and not by_score

    def _balance_uses(self) -> None:
        """Where fair shares alone decide between policies: make the balance, and the two cuts of
        each policy's groups.
        """
        rank = self.pool.settings.rank
        alone = self.fair and rank is Rank.NONE and not self.homes.decide
        self.balance = Balance(self.chains) if alone else None
        self._cuts: dict[str, tuple[Cut, Cut]] = {
            pid: (Cut(self._crossed), Cut(self._crossed)) for pid in (self.chains if alone else ())
        }

    def _open_shares(self) -> None:
        """Elsewhere: make the fills of the policies' shares, which cover holdings."""
        bands = range(2 if self.fair else 1)
        # From closest to home: its own policy's share, band by band, then those above.
        self.levels: dict[str, tuple[Level, ...]] = {
            pid: tuple((each, band) for each in self.chains[pid] for band in bands)
            for pid in self.policies
        }
        own = [level for pid in self.policies for level in self.levels[pid][: len(bands)]]
        self._fills: dict[Level, Fill] = {
            each: self._new_fill(each) for each in (own if self.balance is None else ())
        }

    def _new_fill(self, level: Level) -> Fill:
        return Fill(
            self.share_at(level),
            self.counting,
            partial(self._covered_at, level),
            partial(self._uncovered_at, level),
        )

    # Holdings ---------------------------------------------------------------------------------

    def hold(self, holding: Holding) -> None:
        self.changed()
        self._count_in(holding)
        self._fill(holding)
        self._judge(holding.task_group)

    def hold_many(self, holdings: Sequence[Holding]) -> None:
        """Hold each of these: shares are cut once, and holdings are listed when all have their
        rights.
        """
        if self.fair:  # each of them changes which holdings of its task group are safe
            for holding in holdings:
                self.hold(holding)
            return
        self.changed()
        self._unlisted = dict.fromkeys(each.id for each in holdings)
        to_fill: dict[Level, list[Holding]] = {}
        self._count_many(holdings)
        for holding in holdings:
            if (level := self._level_of(holding)) is not None:
                to_fill.setdefault(level, []).append(holding)
        for level, some in to_fill.items():
            self._fills[level].add_many(some)
        self._unlisted = {}
        self._list_many(holdings)

    def _count_in(self, holding: Holding) -> None:
        self.holdings[holding.id] = holding
        self.parts += max(len(holding.footprint), 1)
        if self.inventory is not None:
            self.inventory.hold(holding)
        for policy_id in self.chains[holding.policy_id]:
            add_to(self.used[policy_id], holding.amounts)
            if holding.earmark:
                add_to(self.used_promised[policy_id], holding.amounts)
        if not holding.preemptible:
            add_to(self.confined[holding.policy_id], holding.amounts)
        self.task_groups.hold(holding)
        if holding.earmark:
            self.earmarks[holding.id] = holding
            add_to(self.earmarked, holding.amounts)
        else:
            add_to(self.live, holding.amounts)
            if holding.leaving:
                self._count_leaving(holding, add_to)

    def _count_many(self, holdings: Sequence[Holding]) -> None:
        """The same of each; those that stay are summed by their policy first."""
        staying: dict[tuple[str, bool], list[Amounts]] = {}
        for holding in holdings:
            if holding.earmark or holding.leaving:
                self._count_in(holding)
                continue
            self.holdings[holding.id] = holding
            self.parts += len(holding.footprint) or 1
            if self.inventory is not None:
                self.inventory.hold(holding)
            self.task_groups.hold(holding)
            kind = (holding.policy_id, holding.preemptible)
            staying.setdefault(kind, []).append(holding.amounts)
        for (policy_id, preemptible), many in staying.items():
            amounts = total_of_many(many)
            for above in self.chains[policy_id]:
                add_to(self.used[above], amounts)
            if not preemptible:
                add_to(self.confined[policy_id], amounts)
            add_to(self.live, amounts)

    def let_go(self, holding_id: str) -> None:
        self.changed()
        holding = self.holdings[holding_id]
        self.parts -= max(len(holding.footprint), 1)
        if self.inventory is not None:
            self.inventory.let_go(holding)
        self._unfill(holding)
        self.appraised.pop(holding_id, None)
        self.timed.pop(holding_id, None)
        del self.holdings[holding_id]
        for policy_id in self.chains[holding.policy_id]:
            take_from(self.used[policy_id], holding.amounts)
            if holding.earmark:
                take_from(self.used_promised[policy_id], holding.amounts)
        if not holding.preemptible:
            take_from(self.confined[holding.policy_id], holding.amounts)
        if holding.earmark:
            del self.earmarks[holding_id]
            take_from(self.earmarked, holding.amounts)
        else:
            take_from(self.live, holding.amounts)
            if holding.leaving:
                self._count_leaving(holding, take_from)
        self.task_groups.let_go(holding)
        self._judge(holding.task_group)

    def replace(self, holding: Holding) -> None:
        """Replace a changed holding: its holder is asked to stop, or goes on. Its amounts are
        nearly always the same, so only the leaving sums are counted again.
        """
        old = self.holdings[holding.id]
        if self.inventory is not None or _counted(old) != _counted(holding):
            self.let_go(holding.id)
            self.hold(holding)
            return
        self.changed()
        self._unfill(old)
        self.appraised.pop(holding.id, None)
        self.timed.pop(holding.id, None)
        del self.holdings[holding.id]
        self.holdings[holding.id] = holding
        if old.leaving:
            self._count_leaving(old, take_from)
        if holding.leaving:
            self._count_leaving(holding, add_to)
        self.task_groups.replace(holding, old)
        self._fill(holding)
        self._judge(holding.task_group)

    def _count_leaving(self, holding: Holding, count: Count) -> None:
        for policy_id in self.chains[holding.policy_id]:
            count(self.used_leaving[policy_id], holding.amounts)
        count(self.leaving, holding.amounts)
        if holding.comes_back:
            kind, place = departing(holding), (holding.index, holding.id)
            if count is add_to:
                if kind not in self.departing:
                    self.departing[kind] = SortedList()
                self.departing[kind].add(place)
            else:
                self.departing[kind].remove(place)
                if not self.departing[kind]:
                    del self.departing[kind]

    def _fill(self, holding: Holding) -> None:
        if (level := self._level_of(holding)) is not None:
            self._fills[level].add(holding)

    def _level_of(self, holding: Holding) -> Level | None:
        """The share that a holding fills first; None if its rights come from elsewhere: then they
        are set here.
        """
        if self.balance is not None:
            if not holding.leaving:
                self.balance.hold(holding.policy_id, holding.amounts)
                for cut in self._cuts[holding.policy_id]:
                    cut.add(_cut_place(holding), holding.amounts)
            self._set_rights(holding.id, self._group(holding))
            return None
        if self.homes.decide:
            at_home = self.homes.at_home(holding.policy_id, holding.footprint)
            self._set_rights(holding.id, IN_SHARE if at_home else BORROWED)
            return None
        if holding.yields:  # it fills no share, so its beneficiary's promise is not behind it
            for policy_id in self.chains[holding.policy_id]:
                add_to(self.yielded[policy_id], holding.amounts)
            self._set_rights(holding.id, BORROWED)
            return None
        if holding.preemptible:
            add_to(self.banded.setdefault((holding.policy_id, holding.band), {}), holding.amounts)
        return self.levels[holding.policy_id][0]

    def _unfill(self, holding: Holding) -> None:
        if not self.homes.decide:
            self._empty(holding)
        self._unlist(holding)
        del self._rights[holding.id]

    def _empty(self, holding: Holding) -> None:
        if self.balance is not None:
            if not holding.leaving:
                self.balance.let_go(holding.policy_id, holding.amounts)
                for cut in self._cuts[holding.policy_id]:
                    cut.remove(_cut_place(holding))
            return
        if holding.yields:
            for policy_id in self.chains[holding.policy_id]:
                take_from(self.yielded[policy_id], holding.amounts)
            return
        if holding.preemptible:
            take_from(self.banded[holding.policy_id, holding.band], holding.amounts)
        self._take_out(holding, self.levels[holding.policy_id])

    def _group(self, holding: Holding) -> int:
        """The rights that the groups of the policy's fair share give a holding. A promise is always
        in share: it belongs to its owner (law 4).
        """
        if holding.earmark:
            return IN_SHARE
        if holding.leaving:
            return BORROWED
        safe, within = self._cuts[holding.policy_id]
        place = _cut_place(holding)
        if safe.covers(place):
            return IN_SHARE
        return WITHIN_SHARE if within.covers(place) else BORROWED

    def filled_before(self, holding: Holding) -> list[Holding]:
        """Where fair shares alone decide: the holdings that fill a policy's share before one."""
        place = _cut_place(holding)
        return [
            each
            for each in self.holdings.values()
            if each.policy_id == holding.policy_id and not each.leaving and _cut_place(each) < place
        ]

    def _crossed(self, holding_id: str) -> None:
        """Set the rights of a holding that a cut of its policy's share has moved across."""
        self._set_rights(holding_id, self._group(self.holdings[holding_id]))

    def _judge(self, task_group: str) -> None:
        """Update the bands of a task group's holdings, after a change of these or of its claim."""
        if not self.fair:
            return
        for holding in list(
            self.task_groups.banded(task_group, self.published.claims.get(task_group))
        ):
            if self.balance is None:
                self._unfill(self.holdings[holding.id])
            else:  # its place in the policy's share is the same
                self._unlist(self.holdings[holding.id])
                del self._rights[holding.id]
            self.task_groups.replace(holding, self.holdings[holding.id])
            self.holdings[holding.id] = holding
            if holding.earmark:
                self.earmarks[holding.id] = holding
            if self.balance is None:
                self._fill(holding)
            else:
                self._set_rights(holding.id, self._group(holding))

    def covered_below(self, level: Level) -> Amounts:
        """The amounts covered below a level, which fill its share first."""
        return self._fills[level].below

    def share_at(self, level: Level) -> Mapping[str, float]:
        """The share that covers holdings at a level: a reserve, or a part of a fair share."""
        policy_id, band = level
        if not self.fair:
            return self.policies[policy_id].reserved
        known = self._shares.get(level)
        if known is None:
            settings = self.pool.settings
            part = (
                settings.aggressive_preemption_satisfaction_threshold,
                settings.preemption_satisfaction_threshold,
            )[band]
            share = self.published.shares.get(policy_id, {})
            # A whole amount that exceeds the share by a rounding error is within it.
            known = {key: part * amount + ROUNDING for key, amount in share.items()}
            self._shares[level] = known
        return known

    def publish(self, published: Published) -> None:
        """Take over newly computed fair shares: cuts, bands and queues follow them."""
        moved = claims_moved(self.published.claims, published.claims)
        waiting = list(self._alone(set(moved))) if self.fair else []
        self.published = published
        self.changed()
        self._shares.clear()
        if self.balance is not None:
            self._draw(published)
        else:
            for level, fill in self._fills.items():
                fill.reshare(self.share_at(level))
            for fill in self._fills.values():
                fill.settle()
        for task_group in moved:
            if task_group in self.task_groups:
                self._judge(task_group)
        for key, age, demand in waiting:
            band = self._next_band(age[2], demand)
            if band != key.band:
                self.stop_waiting(key, age)
                self.wait(key._replace(band=band), age, demand)

    def _draw(self, published: Published) -> None:
        assert self.balance is not None
        self.balance.entitled = published.entitled
        for policy_id, cuts in self._cuts.items():
            drawn = published.lines.get(policy_id, (None, None))
            for cut, line in zip(cuts, drawn, strict=True):
                cut.draw(line)

    def _alone(self, among: set[str]) -> Iterator[tuple[QueueKey, Age, Amounts]]:
        """The waiters among these that are not tasks of a group."""
        for key, queue in self.queues.items() if among else ():
            if not key.task_group:
                for age in queue.ages():
                    if age[2] in among:
                        yield key, age, queue.demand(age[2])

    def satisfaction(self, key: QueueKey) -> tuple[float, ...]:
        """The order of a queue by satisfaction: of its policies from the top, then of its task
        group; by score or balance where these decide.
        """
        if key.scored is not None:
            return (-self.scores.get(key, 0.0),)
        if not self.fair:
            return ()
        if self.balance is not None:
            return (*self.balance.levels(key.policy_id), self._use_of_group(key.task_group))
        known = self.published.satisfaction
        own = known.get(key.task_group, 0.0) if key.task_group else 0.0
        return (*(known.get(each, 0.0) for each in reversed(self.chains[key.policy_id])), own)

    def _use_of_group(self, task_group: str) -> float:
        """The largest used part of a task group's share over all keys."""
        claim = self.published.claims.get(task_group)
        if claim is None:
            return 0.0
        used, leaving = self.task_groups.used, self.task_groups.leaving
        held, gone = used.get(task_group, {}), leaving.get(task_group, {})
        parts = zip(claim.due.totals.items(), claim.due.fair, strict=True)
        found = [
            (held.get(key, 0) - gone.get(key, 0)) / (share * whole)
            for (key, whole), share in parts
            if share > 0
        ]
        return round(max(found), 9) if found else inf

    def band(self, key: QueueKey, demand: Amounts) -> int:
        """The band of a waiter of a queue inside its task group, once granted."""
        if not self.fair or not key.task_group:
            return key.band
        return self._next_band(key.task_group, demand)

    def _next_band(self, task_group: str, demand: Amounts) -> int:
        return self.task_groups.next_band(task_group, self.published.claims.get(task_group), demand)

    def _take_out(self, holding: Holding, levels: tuple[Level, ...]) -> None:
        """Take a holding out of the fills of these levels, from the lowest up."""
        for at, level in enumerate(levels):
            if holding.id not in self._fills[level]:
                break
            if self._fills[level].remove(holding):
                for above in levels[at + 1 :]:
                    self._fills[above].shift(holding.amounts, -1)
        for level in levels:
            self._fills[level].settle()

    def _above(self, level: Level) -> tuple[Level, ...]:
        policy_id, band = level
        return self.levels[policy_id][band + 1 :]

    def _covered_at(self, level: Level, holding: Holding) -> None:
        """Take a holding that a share covers now out of the shares above."""
        above = self._above(level)
        if above:
            self._take_out(holding, above)
            for each in above:
                self._fills[each].shift(holding.amounts, 1)
            for each in above:
                self._fills[each].settle()
        distance = self.levels[holding.policy_id].index(level)
        self._set_rights(holding.id, IN_SHARE - distance)

    def _uncovered_at(self, level: Level, holding: Holding, was_covered: bool) -> None:
        """Offer a holding that a share does not cover to the next share above."""
        above = self._above(level)
        if not above:
            self._set_rights(holding.id, BORROWED)
            return
        if was_covered:
            for each in above:
                self._fills[each].shift(holding.amounts, -1)
        self._fills[above[0]].add(holding)
        for each in above:
            self._fills[each].settle()

    def rights(self, holding_id: str) -> int:
        return self._rights[holding_id]

    def standing_of(self, holding_id: str) -> Standing:
        holding = self.holdings[holding_id]
        return self.standing(holding.rank, self._rights[holding_id])

    def last_served(self, holding: Holding) -> tuple[Standing, tuple[float, ...]]:
        """A sort key of promises, the first to be dropped first: of the lowest standing and, where
        fair shares alone decide, of the policy with the highest level of use.
        """
        levels = () if self.balance is None else self.balance.levels(holding.policy_id)
        return self.standing_of(holding.id), tuple([-each for each in levels])

    def standing(self, rank: int, rights: int) -> Standing:
        return standing(rights, rank, self.pool.settings.precedence)

    def rank(self, policy_id: str, request: Request) -> int:
        if self.pool.settings.rank is Rank.NONE:
            return 0
        if self.pool.settings.rank is Rank.PRIORITY:
            return self.policies[policy_id].priority
        return CLASS_MAX if request.terms.sensitive else request.terms.preemption_class

    def _set_rights(self, holding_id: str, rights: int) -> None:
        if holding_id in self._unlisted:
            self._rights[holding_id] = rights
            return
        holding = self.holdings[holding_id]
        if holding_id in self._rights:
            self._unlist(holding)
        self._rights[holding_id] = rights
        if holding.age is not None:
            kind = (holding.policy_id, holding.rank, rights)
            if kind not in self.owed:
                self.owed[kind] = Queue()
            self.owed[kind].add(holding.age, holding.amounts)
            add_to(self.owed_sums.setdefault((holding.rank, rights), {}), holding.amounts)
        if not holding.takeable or holding.safe:
            return
        place = (rights, holding.rank, -holding.index, holding_id)
        for key in holding.amounts:
            if key not in self.takeable:
                self.takeable[key] = SortedList()
            self.takeable[key].add(place)
        self._add_to_tier(holding, rights)

    def _list_many(self, holdings: Iterable[Holding]) -> None:
        """List holdings whose rights are known."""
        places: dict[str, list[Place]] = {}
        for holding in holdings:
            if not holding.takeable or holding.safe:
                continue
            rights = self._rights[holding.id]
            place = (rights, holding.rank, -holding.index, holding.id)
            for key in holding.amounts:
                places.setdefault(key, []).append(place)
            self._add_to_tier(holding, rights)
        for key, some in places.items():
            self.takeable.setdefault(key, SortedList()).update(some)

    def _add_to_tier(self, holding: Holding, rights: int) -> None:
        tier = (rights, holding.rank, holding.policy_id, holding.band)
        add_to(self.tiers.setdefault(tier, {}), holding.amounts)

    def _unlist(self, holding: Holding) -> None:
        rights = self._rights[holding.id]
        if holding.age is not None:
            self.owed[holding.policy_id, holding.rank, rights].remove(holding.age)
            take_from(self.owed_sums[holding.rank, rights], holding.amounts)
        if not holding.takeable or holding.safe:
            return
        place = (rights, holding.rank, -holding.index, holding.id)
        for key in holding.amounts:
            self.takeable[key].remove(place)
        tier = (rights, holding.rank, holding.policy_id, holding.band)
        take_from(self.tiers[tier], holding.amounts)

    def changed(self) -> None:
        """Note a change of the pool: cached answers are invalid."""
        self.version += 1
        if self._answers:
            self._answers.clear()
        if self.holders_alike:
            self.holders_alike.clear()

    # Waiters ----------------------------------------------------------------------------------

    def stand(self, policy_id: str, request: Request) -> Stand:
        """The queue of a request under a policy, and its demand; cached by kind of request."""
        like = None if self.fair else alike_to(request)
        known = None if like is None else self._stands.get((policy_id, like))
        if known is None:
            known = Stand(self.queue_of(policy_id, request), self.pool.metered(request.amounts))
            if like is not None:
                if len(self._stands) >= _ALIKE_MAX:
                    self._stands.clear()
                self._stands[policy_id, like] = known
        return known

    def admits(self, policy_id: str, request: Request, judge: Callable[[], bool]) -> bool:
        """Whether a request may queue under a policy; `judge` is asked once for each kind."""
        like = alike_to(request)
        if like is None:
            return judge()
        known = self._admitted.get((policy_id, like))
        if known is None:
            if len(self._admitted) >= _ALIKE_MAX:
                self._admitted.clear()
            known = self._admitted[policy_id, like] = judge()
        return known

    def queue_of(self, policy_id: str, request: Request) -> QueueKey:
        on_nodes, scored = self.inventory is not None, None
        if self.pool.settings.order is QueueOrder.SCORE:
            scored = (request.terms.tenant, request.stop_policy.checkpoint)
        key = QueueKey(
            policy_id,
            request.preemptible,
            self.form(request),
            self.rank(policy_id, request),
            scored=scored,
            settled=on_nodes and is_settled(self.pool, self.policies[policy_id], request),
            claimant=request.owner if on_nodes and request.terms.sensitive else "",
        )
        if request.part_of is not None and (self.fair or request.terms.limit):
            limit = tuple(sorted(request.terms.limit.items()))
            return key._replace(task_group=request.part_of, limit=limit)
        if not self.fair:
            return key
        demand = self.pool.metered(request.amounts)
        return key._replace(band=self._next_band(request.id, demand))

    def form(self, request: Request) -> Form | None:
        """The form of a request on this pool's nodes; None in a counted pool."""
        if self.inventory is None:
            return None
        shape = request.shape or Shape(request.amounts)
        form = shape.form(self.pool.metered(shape.amounts))
        if request.pin is None:
            return form
        return form._replace(folders=tuple(sorted(request.pin.folders)))

    def wait(self, key: QueueKey, age: Age, demand: Amounts) -> None:
        self.changed()
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue()
        queue.add(age, demand)

    def wait_together(self, key: QueueKey, ages: list[Age], demand: Amounts) -> None:
        """Queue many waiters with the same demand."""
        self.changed()
        self.queues.setdefault(key, Queue()).add_many(ages, demand)

    def stop_waiting(self, key: QueueKey, age: Age) -> None:
        self.changed()
        # An empty queue stays: a pass that uses it must see waiters that come back.
        self.queues[key].remove(age)

    def forget_empty_queues(self) -> None:
        """Remove empty queues of task groups and pins; between passes none of them is in use."""
        for key in [key for key, queue in self.queues.items() if key.passing and not len(queue)]:
            del self.queues[key]
            self.streams.pop(key, None)

    # Sums -------------------------------------------------------------------------------------

    def takeable_below(
        self, bound: Standing, within: str | None = None, *, spared: int | None = None
    ) -> dict[str, int]:
        """The sum that holders of strictly lower standing could give back; of one subtree, if
        given, and without those of `spared` rights.
        """
        asked = ("below", bound, within, spared)
        result = self._answers.get(asked)
        if result is None:
            result = self._answers[asked] = {}
            for (rights, rank, policy_id, _), amounts in self.tiers.items():
                inside = within is None or within in self.chains[policy_id]
                if amounts and inside and rights != spared and self.standing(rank, rights) < bound:
                    add_to(result, amounts)
        return result

    def left_of_share(self, level: Level) -> dict[str, int]:
        """The share at a level less all that is held there or below; negative where more is held
        than it covers.
        """
        asked = ("share", level)
        result = self._answers.get(asked)
        if result is None:
            share, policy_id = self.share_at(level), level[0]
            used, gone = self.used[policy_id], self.yielded[policy_id]
            result = self._answers[asked] = {
                key: floor(share.get(key, 0)) - used.get(key, 0) + gone.get(key, 0)
                for key in self.counting
            }
        return result

    def unsafe_in(self, policy_id: str, rank: int, rights: int) -> dict[str, int]:
        """The sum that holders of a policy could give back that no share of their task group makes
        safe; of one rank and rights.
        """
        return self.tiers.get((rights, rank, policy_id, 0), {})

    def takeable_beyond(self) -> dict[str, int]:
        """An upper bound on the sum that holders could give back by amounts: of keys that count,
        the staying holdings of policies beyond their reserves.
        """
        if not self.by_amounts:
            return {}
        result = self._answers.get(("beyond",))
        if result is None:
            of_policies: dict[str, dict[str, int]] = {}
            for (_, _, policy_id, _), amounts in self.tiers.items():
                add_to(of_policies.setdefault(policy_id, {}), amounts)
            result = self._answers["beyond",] = {}
            for policy_id, amounts in of_policies.items():
                used, leaving = self.used[policy_id], self.used_leaving[policy_id]
                reserved = self.policies[policy_id].reserved
                for key, amount in amounts.items():
                    if key in self.counting:
                        stays = used.get(key, 0) - leaving.get(key, 0)
                        amount = min(amount, max(stays - reserved.get(key, 0), 0))
                    if amount:
                        result[key] = result.get(key, 0) + amount
        return result

    def promised_below(self, bound: Standing, within: str) -> dict[str, int]:
        """The sum of promises in a subtree to owners of strictly lower standing."""
        asked = ("promised", bound, within)
        result = self._answers.get(asked)
        if result is None:
            result = self._answers[asked] = {}
            for (policy_id, rank, rights), queue in self.owed.items():
                if within in self.chains[policy_id] and self.standing(rank, rights) < bound:
                    for owner_id in queue:
                        add_to(result, queue.demand(owner_id))
        return result

    def takeable_inside(self, policy_id: str, band: int, bound: Standing) -> dict[str, int]:
        """The sum that holders of a policy, of this standing or above, could give back to a waiter
        of that policy of a higher band.
        """
        if not band:
            return {}
        asked = ("inside", policy_id, band, bound)
        result = self._answers.get(asked)
        if result is None:
            result = self._answers[asked] = {}
            for (rights, rank, other, safety), amounts in self.tiers.items():
                if other == policy_id and safety < band and self.standing(rank, rights) >= bound:
                    add_to(result, amounts)
        return result

    def yielding(self, policy_id: str, rank: int, bound: Standing) -> dict[str, int]:
        """The sum that holders of a policy, of lower rank than this, could give back to a waiter of
        that policy that will have the standing `bound`.
        """
        asked = ("yielding", policy_id, bound)
        result = self._answers.get(asked)
        if result is None:
            result = self._answers[asked] = {}
            for (rights, lower, other, _), amounts in self.tiers.items():
                if other == policy_id and lower < rank and self.standing(lower, rights) < bound:
                    add_to(result, amounts)
        return result

    def earmarked_from(self, bound: Standing) -> dict[str, int]:
        """The sum of promises to owners of this standing or above, which a waiter of it may not
        cut.
        """
        if bound is LOWEST:
            return self.earmarked
        asked = ("from", bound)
        result = self._answers.get(asked)
        if result is None:
            result = self._answers[asked] = {}
            for (rank, rights), amounts in self.owed_sums.items():
                if amounts and self.standing(rank, rights) >= bound:
                    add_to(result, amounts)
        return result


# The fields of a holding that all sums but the leaving ones depend on.
_counted = attrgetter("policy_id", "amounts", "preemptible", "task_group", "earmark")


def alike_to(request: Request) -> Alike | None:
    """A key that is equal for requests that may queue in the same places and, without fair shares,
    in the same queues; None for requests with unusual terms.
    """
    if request.terms is not USUAL or request.shape is not None or request.pin is not None:
        return None
    return (
        tuple(request.amounts.items()),
        request.preemptible,
        request.work is None,
        request.walltime is None,
        request.stop_policy.checkpoint,
    )


def _cut_place(holding: Holding) -> CutPlace:
    return (holding.preemptible, holding.index, holding.id)


def chain(policies: dict[str, Policy], policy_id: str) -> tuple[str, ...]:
    """A policy, its parent, and so on to the top."""
    found = [policy_id]
    while (parent := policies[found[-1]].parent_id) in policies and parent is not None:
        found.append(parent)
    return tuple(found)


def counting_keys(pool: Pool, policies: dict[str, Policy]) -> tuple[str, ...]:
    """Keys that count for rights: those of which some policy of the pool reserves a positive
    amount.
    """
    reserved = {
        key for policy in policies.values() for key, amount in policy.reserved.items() if amount
    }
    return tuple(sorted(key for key in reserved if pool.bounds_key(key)))
