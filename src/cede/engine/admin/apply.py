"""Apply: make pools, policies and tenants as a configuration declares them, all of it or nothing.

Everything is put in place first and checked then (S4), so the order of the declarations does not
matter: one reserve may go down while another goes up. A declared object gets all its fields from
the declaration: a field that is not given has its default. Undeclared objects stay, unless they are
pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cede.engine.admin import edits, tenant_edits
from cede.engine.admin.checks import Misfit, check_settings, misfits
from cede.engine.admin.membership import join, leave
from cede.engine.admin.node_lease import put_leases
from cede.engine.admin.presets import PRESETS
from cede.engine.state.loading import policies_at_once
from cede.engine.state.state import State
from cede.engine.state.trial import whole
from cede.model import bounds
from cede.model.configuration import Change, Configuration, WantedPolicy, WantedPool
from cede.model.errors import Invalid, nearest
from cede.model.fields import said, shown
from cede.model.policy import Policy
from cede.model.pool import Pool
from cede.model.settings import Settings
from cede.model.subject import Subject
from cede.model.tenant import parse_fields

CREATE, UPDATE, DELETE = "create", "update", "delete"
# The pool and the subject of a policy, which identify it.
_Key = tuple[str, Subject]


def apply(
    state: State,
    wanted: Configuration,
    *,
    prune: bool,
    new_id: Callable[[], str],
    created: str = "",
) -> list[Change]:
    """Apply a configuration and return the changes. An impossible one is refused, with the place of
    the error, and nothing is changed.
    """
    with whole(state):
        run = _Run(state, wanted, prune, new_id, created)
        run.pools()
        run.policies()
        run.tenants()
        run.check()
    return run.changes


@dataclass(slots=True)
class _Run:
    state: State
    wanted: Configuration
    prune: bool
    new_id: Callable[[], str]
    created: str
    changes: list[Change] = field(default_factory=list)
    _touched: dict[str, None] = field(default_factory=dict)  # pools to check in the end

    # Pools --------------------------------------------------------------------------------------

    def pools(self) -> None:
        wanted = {each.name: each for each in self.wanted.pools or ()}
        if self.prune and self.wanted.pools is not None:
            self._prune_pools(wanted)
        known = {each.name: each for each in self.state.pools.values()}
        pairs = [(each, known.get(name)) for name, each in wanted.items()]
        for each, old in pairs:
            if old is not None and (old.nodes is None) != (each.nodes is None):
                raise _other_kind(each, old)
        # Nodes leave every pool before they join any: two pools may swap nodes.
        for each, old in pairs:
            if old is not None and each.nodes is not None and each.nodes != old.nodes:
                leave(self.state, old, each.nodes)
        for each, old in pairs:
            with _at(each.path):
                self._pool(each, old)

    def _prune_pools(self, wanted: Mapping[str, WantedPool]) -> None:
        for pool in [each for each in self.state.pools.values() if each.name not in wanted]:
            for policy in self.wanted.policies or ():
                if policy.pool == pool.name:
                    problem = f"pool {pool.name} is not declared, and would be deleted"
                    raise Invalid(f"{policy.path}.pool", problem)
            edits.delete_pool(self.state, pool.id)
            self.changes.append(Change(DELETE, "pool", pool.id, pool.name))

    def _pool(self, wanted: WantedPool, old: Pool | None) -> None:
        state = self.state
        given: dict[str, Any] = {
            "preset": wanted.preset,
            "settings": wanted.settings,
            "description": wanted.description,
        }
        if old is None:
            made = Pool(
                id=self.new_id(),
                name=wanted.name,
                capacity=wanted.capacity or {},
                nodes=wanted.nodes,
                created=self.created,
                **given,
            )
            state.put(made)  # before nodes join it
        else:
            made = replace(old, **given)
        if wanted.nodes is not None and (old is None or wanted.nodes != old.nodes):
            made = join(state, made, wanted.nodes)
        elif wanted.capacity is not None and wanted.capacity != made.capacity:
            made = replace(made, capacity=wanted.capacity, edited=state.next_index())
        if made == old:
            return
        check_settings(made)
        state.put(made)
        put_leases(state, [each for each in state.nodes.values() if each.pool_id == made.id])
        self._touched[made.id] = None
        if old is None:
            state.emit("pool_created", pool_id=made.id, name=made.name)
        else:
            state.emit("pool_updated", pool_id=made.id, capacity=dict(made.capacity))
        do, fields = CREATE if old is None else UPDATE, _pool_differences(old, made)
        self.changes.append(Change(do, "pool", made.id, made.name, fields=fields))

    # Policies -----------------------------------------------------------------------------------

    def policies(self) -> None:
        by_name = {each.name: each.id for each in self.state.pools.values()}
        old = {(each.pool_id, each.subject): each for each in self.state.policies.values()}
        wanted: dict[_Key, WantedPolicy] = {}
        for each in self.wanted.policies or ():
            if each.pool not in by_name:
                near = nearest(each.pool, by_name)
                problem = f"no pool {each.pool!r:.80} is declared or there; {near}".rstrip("; ")
                raise Invalid(f"{each.path}.pool", problem)
            wanted[by_name[each.pool], each.subject] = each
        going: list[Policy] = []
        if self.prune and self.wanted.policies is not None:
            going = [each for key, each in old.items() if key not in wanted]
        gone = {each.id for each in going}
        stay = {key: each for key, each in old.items() if each.id not in gone}
        planned = self._planned(wanted, stay)
        depths = _depths(planned, wanted)
        changed = [key for key in wanted if planned[key] != old.get(key)]
        if changed:
            changed.sort(key=lambda key: depths[planned[key].id])
            self._put_policies([(old.get(key), planned[key]) for key in changed])
        self._drop_policies(going)

    def _planned(
        self, wanted: Mapping[_Key, WantedPolicy], stay: Mapping[_Key, Policy]
    ) -> dict[_Key, Policy]:
        """All policies after the change, the declared ones as declared."""
        ids = {key: each.id for key, each in stay.items()}
        ids |= {key: self.new_id() for key in wanted if key not in ids}
        called = _called(wanted, stay)
        planned = dict(stay)
        for key, each in wanted.items():
            pool_id, subject = key
            above = None if each.parent is None else ids[_parent(each, called[pool_id])]
            base = stay.get(key) or Policy(ids[key], pool_id, subject, created=self.created)
            planned[key] = replace(base, name=each.name, parent_id=above, **each.fields)
        return planned

    def _put_policies(self, changed: Iterable[tuple[Policy | None, Policy]]) -> None:
        """Put changed policies from the top down: then no policy is ever below itself or below a
        missing parent.
        """
        with policies_at_once(self.state):
            for before, made in changed:
                if before is not None:
                    made = replace(made, edited=self.state.next_index())
                self.state.put(made)
                self._touched[made.pool_id] = None
                self._note_policy(before, made)

    def _note_policy(self, old: Policy | None, made: Policy) -> None:
        do, kind = (CREATE, "policy_attached") if old is None else (UPDATE, "policy_updated")
        self.state.emit(kind, pool_id=made.pool_id, policy=made.name)
        was = {} if old is None else self._policy_fields(old)
        usual = Policy("", "", made.subject, name=made.subject.name)
        became = self._policy_fields(made)
        kept = self._policy_fields(usual) if old is None else was
        fields = {k: (was.get(k), v) for k, v in became.items() if v != kept[k]}
        pool = self.state.pools[made.pool_id].name
        self.changes.append(Change(do, "policy", made.id, str(made.subject), pool, fields))

    def _policy_fields(self, policy: Policy) -> dict[str, Any]:
        above = None if policy.parent_id is None else self.state.policies.get(policy.parent_id)
        parent = None if above is None else str(above.subject)
        return {"name": policy.name, "parent": parent, **shown(policy)}

    def _drop_policies(self, going: list[Policy]) -> None:
        """Drop policies from the lowest up."""
        if not going:
            return
        edits.refuse_if_used(self.state, going)
        left = {each.id: each for each in going}
        with policies_at_once(self.state):
            while left:
                above = {each.parent_id for each in self.state.policies.values()}
                for policy in [each for each in left.values() if each.id not in above]:
                    del left[policy.id]
                    self._drop_policy(policy)

    def _drop_policy(self, policy: Policy) -> None:
        pool = self.state.pools[policy.pool_id]
        self.state.drop(policy)
        self.state.emit("policy_detached", pool_id=pool.id, policy=policy.name)
        self.changes.append(Change(DELETE, "policy", policy.id, str(policy.subject), pool.name))

    # Tenants ------------------------------------------------------------------------------------

    def tenants(self) -> None:
        named = dict(self.state.tenancy.named)
        wanted = {each.name: each for each in self.wanted.tenants or ()}
        if self.prune and self.wanted.tenants is not None:
            for tenant in [each for name, each in named.items() if name not in wanted]:
                tenant_edits.delete_tenant(self.state, tenant.id)
                self.changes.append(Change(DELETE, "tenant", tenant.id, tenant.name))
        for name, each in wanted.items():
            with _at(each.path):
                self._tenant(name, each.fields)

    def _tenant(self, name: str, fields: Mapping[str, Any]) -> None:
        state, old = self.state, self.state.tenancy.named.get(name)
        if old is None:
            made = tenant_edits.create_tenant(
                state, id=self.new_id(), name=name, created=self.created, **fields
            )
            given = {k: (None, v) for k, v in said(made).items()}
            self.changes.append(Change(CREATE, "tenant", made.id, name, fields=given))
            return
        was, becomes = shown(old), shown(replace(old, **parse_fields(fields)))
        changed = {k: (was[k], v) for k, v in becomes.items() if v != was[k]}
        if changed:
            tenant_edits.update_tenant(state, old.id, **fields)
            self.changes.append(Change(UPDATE, "tenant", old.id, name, fields=changed))

    # Checks -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check S4 of every touched pool; an error names its place in the configuration."""
        for pool_id in self._touched:
            pool = self.state.pools[pool_id]
            for misfit in misfits(self.state, pool):
                raise self._placed(pool, misfit)

    def _placed(self, pool: Pool, misfit: Misfit) -> Invalid:
        """The error at the first declared one of: the policy that it is about, the policy above,
        the pool.
        """
        error, declared = misfit.error, {}
        for each in self.wanted.policies or ():
            if each.pool == pool.name:
                declared[each.subject] = each.path
        for policy in reversed(misfit.policies):
            if policy.subject in declared:
                return Invalid(f"{declared[policy.subject]}.{error.field}", error.problem)
        last = misfit.policies[-1]
        problem = f"{error.field} of policy {last.name}, which stays: {error.problem}"
        if last.parent_id is not None:
            above = self.state.policies[last.parent_id]
            if above.subject in declared:
                return Invalid(f"{declared[above.subject]}.reserved", problem)
        part = "capacity" if pool.nodes is None else "nodes"
        paths = [each.path for each in self.wanted.pools or () if each.name == pool.name]
        return Invalid(f"{paths[0]}.{part}" if paths else "policies", problem)


@contextmanager
def _at(path: str) -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise Invalid(f"{path}.{error.field}", error.problem) from None


def _other_kind(wanted: WantedPool, old: Pool) -> Invalid:
    has, gets = ("a capacity", "nodes") if old.nodes is None else ("nodes", "capacity")
    problem = f"pool {old.name} has {has}, and stays like that; delete it and declare it anew"
    return Invalid(f"{wanted.path}.{gets}", problem)


def _pool_differences(old: Pool | None, new: Pool) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    names = ["nodes" if new.nodes is not None else "capacity", "preset", "description"]
    for name in names:
        was, is_ = None if old is None else getattr(old, name), getattr(new, name)
        if was != is_ and (old is not None or is_):
            found[name] = (was, is_)
    return found | _setting_differences(None if old is None else old.settings, new)


def _setting_differences(old: Settings | None, new: Pool) -> dict[str, tuple[Any, Any]]:
    base = PRESETS[new.preset] if old is None else old
    return {
        f"settings.{name}": (None if old is None else old.shown(name), value)
        for name, value in new.settings.differences(base).items()
    }


def _called(
    wanted: Mapping[_Key, WantedPolicy], stay: Mapping[_Key, Policy]
) -> dict[str, dict[str, list[_Key]]]:
    """By pool: the names by which policies below may refer to a policy: its name and its
    subject.
    """
    names = {key: each.name for key, each in stay.items()}
    names |= {key: each.name for key, each in wanted.items()}
    found: dict[str, dict[str, list[_Key]]] = {}
    for key, name in names.items():
        in_pool = found.setdefault(key[0], {})
        in_pool.setdefault(name, []).append(key)
        if name != str(key[1]):
            in_pool.setdefault(str(key[1]), []).append(key)
    return found


def _parent(policy: WantedPolicy, called: Mapping[str, list[_Key]]) -> _Key:
    assert policy.parent is not None
    found = called.get(policy.parent, [])
    exact = [key for key in found if str(key[1]) == policy.parent] or found
    if len(exact) == 1:
        return exact[0]
    if not exact:
        near = nearest(policy.parent, called)
        problem = f"no policy {policy.parent!r:.80} in pool {policy.pool}; {near}".rstrip("; ")
    else:
        several = ", ".join(sorted(str(key[1]) for key in exact))
        problem = f"several policies are called {policy.parent!r:.80}: say {several}"
    raise Invalid(f"{policy.path}.parent", problem)


def _depths(planned: Mapping[_Key, Policy], wanted: Mapping[_Key, WantedPolicy]) -> dict[str, int]:
    """The depth of each policy in the tree, by id; a circle or too deep a tree is refused."""
    by_id = {each.id: each for each in planned.values()}
    keys = {each.id: key for key, each in planned.items()}
    depths: dict[str, int] = {}
    for policy in by_id.values():
        way: list[str] = []
        at: str | None = policy.id
        while at is not None and at not in depths:
            if at in way:
                raise _below_itself([by_id[each] for each in way[way.index(at) :]], keys, wanted)
            way.append(at)
            at = by_id[at].parent_id if by_id[at].parent_id in by_id else None
        depth = 0 if at is None else depths[at]
        for each in reversed(way):
            depth += 1
            depths[each] = depth
            if depth > bounds.TREE_DEPTH_MAX:
                place = _place(each, keys, wanted)
                problem = f"stands {depth} deep; at most {bounds.TREE_DEPTH_MAX}"
                raise Invalid(place, problem)
    return depths


def _below_itself(
    ring: list[Policy], keys: Mapping[str, _Key], wanted: Mapping[_Key, WantedPolicy]
) -> Invalid:
    names = [str(each.subject) for each in ring]
    # Unchanged policies alone form no circle, so one in the ring is declared.
    declared = next(each.id for each in ring if keys[each.id] in wanted)
    said = " stands below ".join([*names, names[0]])
    return Invalid(_place(declared, keys, wanted), f"{said}: let one of them have another parent")


def _place(policy_id: str, keys: Mapping[str, _Key], wanted: Mapping[_Key, WantedPolicy]) -> str:
    found = wanted.get(keys[policy_id])
    return "policies" if found is None else f"{found.path}.parent"
