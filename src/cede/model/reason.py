"""The typed explanation of every refusal, wait and stop (law 8).

A reason is a code and the numbers behind it, never a bare string: the API, the command line, the
page and the simulator all show this same value. The sentence and the fix are made from the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Code(StrEnum):
    # On submission.
    CAPACITY_EXCEEDED = "capacity_exceeded"
    UNPLACEABLE = "unplaceable"
    NO_AGENTS = "no_agents"
    LIMIT_EXCEEDED = "limit_exceeded"
    RESERVED_EXCEEDED = "reserved_exceeded"
    REQUEST_LIMIT = "request_limit"
    CLASS_EXCEEDED = "class_exceeded"
    SENSITIVE_NOT_ALLOWED = "sensitive_not_allowed"
    TENANT_CONCURRENT = "tenant_concurrent"
    TENANT_NODES = "tenant_nodes"
    NO_POLICY = "no_policy"
    NO_ELIGIBLE_POOL = "no_eligible_pool"
    UNTRACKED = "untracked"
    # In the queue.
    RESTORED = "restored"
    OWN_LIMIT = "own_limit"
    OWN_RESERVED = "own_reserved"
    LIMIT_ABOVE = "limit_above"
    NO_CAPACITY = "no_capacity"
    PARTIAL_HEADROOM = "partial_headroom"
    PROTECTED = "protected"
    EARMARKED = "earmarked"
    WITHHELD = "withheld"
    ON_ITS_WAY = "on_its_way"
    BEING_FREED = "being_freed"
    QUEUED_BEHIND = "queued_behind"
    GOES_TO_OTHERS = "goes_to_others"
    MIN_RUN = "min_run"
    RETRY_DELAY = "retry_delay"
    DEPENDENCY = "dependency"
    ARRAY_BOUND = "array_bound"
    PATIENCE = "patience"
    WAITS_FIRST = "waits_first"
    TOO_DEAR = "too_dear"
    NO_SET = "no_set"
    NOT_EXHAUSTIVE = "not_exhaustive"
    AT_SHARE = "at_share"
    BEYOND_SHARE = "beyond_share"
    WITHIN_SHARE = "within_share"
    BETWEEN_THRESHOLDS = "between_thresholds"
    NOT_FAIRER = "not_fairer"
    NO_FAIR_SHARE = "no_fair_share"
    USAGE_THRESHOLD = "usage_threshold"
    STAGE_BACKOFF = "stage_backoff"
    NO_LONGER_ELIGIBLE = "no_longer_eligible"
    NEXT = "next"
    NO_NODE = "no_node"
    NODES_OUT = "nodes_out"
    NODES_CLAIMED = "nodes_claimed"
    NOT_LENT = "not_lent"
    CHECKPOINT_ELSEWHERE = "checkpoint_elsewhere"
    HELD_OUTSIDE = "held_outside"
    CLUSTER_BUSY = "cluster_busy"
    # Why a holder was stopped: the rule that made the taking legal.
    RECLAIM = "reclaim"
    RESERVE_KEPT = "reserve_kept"
    PRIORITY = "priority"
    HIGHER_CLASS = "higher_class"
    EXCHANGE = "exchange"
    OWN_POLICY = "own_policy"
    STARVATION = "starvation"
    OVER_LIMIT = "over_limit"
    SENSITIVE_CLAIM = "sensitive_claim"
    # How a request ended.
    PREEMPTED = "preempted"
    RETRIES_EXHAUSTED = "retries_exhausted"
    LEASE_EXPIRED = "lease_expired"
    CANCELLED = "cancelled"
    WORK_FAILED = "work_failed"
    WORK_LEFT = "work_left"
    RESUME_FAILED = "resume_failed"
    NOT_STARTED = "not_started"
    CHECKPOINT_FAILED = "checkpoint_failed"
    WALLTIME = "walltime_exceeded"
    NODE_LOST = "node_lost"
    DEPENDENCY_FAILED = "dependency_failed"
    CLUSTER_ENDED = "cluster_ended"


# The rules under which a holder is stopped through no fault of its own.
TAKINGS = frozenset(
    {
        *(Code.RECLAIM, Code.RESERVE_KEPT, Code.PRIORITY, Code.HIGHER_CLASS, Code.EXCHANGE),
        *(Code.OWN_POLICY, Code.STARVATION, Code.OVER_LIMIT, Code.SENSITIVE_CLAIM),
    }
)

# code: (the state, and what would change it). Words in braces are keys of `detail`.
SENTENCES: dict[Code, tuple[str, str]] = {
    Code.CAPACITY_EXCEEDED: (
        "{key}: {requested} exceeds the capacity {bound} of pool {pool}",
        "ask for at most {bound} {key}, or grow the pool",
    ),
    Code.UNPLACEABLE: (
        "pool {pool} has no nodes that could hold {tasks} of {amounts} each{wanted}",
        "ask for less per task, for fewer tasks or other nodes, or add nodes",
    ),
    Code.NO_AGENTS: (
        "pool {pool} has no nodes, so nothing there can start a command",
        "use a pool of nodes, or hold the units yourself: cede run -- COMMAND",
    ),
    Code.LIMIT_EXCEEDED: (
        "{key}: {requested} exceeds the limit {bound} of {policy} in pool {pool}",
        "ask for at most {bound} {key}, or raise the limit",
    ),
    Code.RESERVED_EXCEEDED: (
        "{key}: {requested} exceeds what {policy} has reserved in pool {pool} ({bound}), and "
        "non-preemptible work may not borrow",
        "ask for at most {bound} {key}, reserve more, or let the work be preemptible",
    ),
    Code.REQUEST_LIMIT: (
        "{key}: {requested} exceeds the limit {bound} of the request itself",
        "ask for at most {bound} {key}, or raise its limit: cede limit REQUEST {key}={requested}",
    ),
    Code.CLASS_EXCEEDED: (
        "class {requested} is above {bound}, the highest that {policy} may use in pool {pool}",
        "ask for class {bound} or lower, or raise the policy's max_class",
    ),
    Code.SENSITIVE_NOT_ALLOWED: (
        "{policy} may not run sensitive work in pool {pool}, and {what} is",
        "ask without it, or let the policy: allow_sensitive",
    ),
    Code.TENANT_CONCURRENT: (
        "tenant {tenant} has {held} requests that have not ended, and may have {bound} at once",
        "one of them must end, or its quota grow: cede tenant update {tenant} --max-concurrent "
        "{enough}",
    ),
    Code.TENANT_NODES: (
        "tenant {tenant} has {held} nodes in use and may have {bound}; {requested} more do not fit",
        "its work must end, or its quota grow: cede tenant update {tenant} --max-nodes {enough}",
    ),
    Code.NO_POLICY: (
        "{subject} has no policy in {pool}",
        "attach one: cede resource-pool attach-policy POOL {name} --component-type {type} …",
    ),
    Code.NO_ELIGIBLE_POOL: (
        "no pool can ever grant this: {all}",
        "change one of the bounds named, or the request",
    ),
    Code.UNTRACKED: (
        "{subject} has no policy in any pool, so this runs untracked",
        "attach a policy to have it counted, or set unpooled: refuse to forbid it",
    ),
    Code.RESTORED: (
        "pool {pool} grants nothing yet: the database was restored from a copy; {unknown}",
        "nothing: it goes on by itself; if nothing runs that cede does not know of: cede pool "
        "enable {pool}",
    ),
    Code.OWN_LIMIT: (
        "{policy} holds {held} of its limit of {bound} {key} in pool {pool}; {requested} more do "
        "not fit",
        "one of its own holders must end, or {remedy}",
    ),
    Code.LIMIT_ABOVE: (
        "{above} and those below it hold or were promised {held} of its limit of {bound} {key} in "
        "pool {pool}; {requested} more for {policy} do not fit",
        "a holder below {above} must end, or its limit be raised",
    ),
    Code.OWN_RESERVED: (
        "{held} of the {bound} {key} reserved for {policy} in pool {pool} are under "
        "non-preemptible work, or in a share below it; {requested} more do not fit",
        "one of those holders must end, or {remedy}",
    ),
    Code.NO_CAPACITY: (
        "{requested} {key} are needed and {free} of {bound} are free in pool {pool}; {rest}",
        "{missing} {key} must be released",
    ),
    Code.PARTIAL_HEADROOM: (
        "{policy} has {headroom} {key} of its reserve unused in pool {pool}; a request of "
        "{requested} does not fit it whole, so it must borrow and may not reclaim",
        "ask for at most {headroom} {key}, or reserve {missing} more",
    ),
    Code.PROTECTED: (
        "{requested} {key} are needed and {free} of {bound} are free in pool {pool}; {rest}",
        "{missing} {key} must be released",
    ),
    Code.WAITS_FIRST: (
        "{missing} {key} are missing in pool {pool}; walltimes free them within {seconds} s, which "
        "is as soon as stopping others would",
        "wait for it",
    ),
    Code.TOO_DEAR: (
        "{missing} {key} are missing in pool {pool}; the cheapest work that could be stopped for "
        "this would cost {cost}, and it is worth {value}",
        "submit it with a longer walltime or a higher class, or wait",
    ),
    Code.NO_SET: (
        "{missing} {key} are missing in pool {pool}; at most {most} holders are stopped for one "
        "request, and no {most} that may be stopped would make room",
        "ask for less, raise max_victims, or wait until {missing} {key} are released",
    ),
    Code.NOT_EXHAUSTIVE: (
        "{missing} {key} are missing in pool {pool}; no set of holders was found that would make "
        "room, and not every set was tried",
        "ask for less, or raise victim_groups_max",
    ),
    Code.EARMARKED: (
        "{requested} {key} are needed and what is free or being freed in pool {pool} is promised "
        "to {owner}; {missing} {key} are missing",
        "{missing} {key} more must be released, or {owner} must give up",
    ),
    Code.WITHHELD: (
        "what is free in pool {pool} is withheld for {owner}, the first in the queue: {when}",
        "nothing: this is tried again when {owner} has started, or in {seconds} s when the "
        "withholding ends{sooner}",
    ),
    Code.ON_ITS_WAY: (
        "{amounts} are being freed for this in pool {pool}",
        "nothing: it starts once {victims} stopped",
    ),
    Code.BEING_FREED: (
        "{freed} {key} are being freed in pool {pool} by {victims}, and this is the first in the "
        "queue that they suffice for",
        "nothing: it starts once they are free, unless somebody of higher standing comes first",
    ),
    Code.QUEUED_BEHIND: (
        "{freed} {key} are being freed in pool {pool}, and {owner} comes first for them; {missing} "
        "{key} are missing",
        "{missing} {key} more must be released",
    ),
    Code.GOES_TO_OTHERS: (
        "{amounts} are not free in pool {pool}; what could be freed for this would go to {owner}",
        "there must be room for {owner} as well",
    ),
    Code.MIN_RUN: (
        "holders that could be stopped in pool {pool} are still inside their first {seconds} "
        "seconds",
        "nothing: it is tried again when that time is over",
    ),
    Code.RETRY_DELAY: (
        "attempt {attempt} may start {seconds} seconds from now",
        "nothing: the retry policy's delay",
    ),
    Code.DEPENDENCY: (
        "it starts after {dependency}, {state}{more}",
        "nothing: it waits until that has ended{well}; to give it up: cede cancel {request}",
    ),
    Code.ARRAY_BOUND: (
        "at most {bound} tasks of its array run at once: {held} hold units, and {next} are before "
        "it in the queue",
        "one of these must end; to run more at once, submit the array with more than %{bound}",
    ),
    Code.NO_NODE: (
        "{first}, but only {found} of {tasks} tasks of {amounts} each find a node with that much "
        "free{wanted}{closest}",
        "a node must become free, or ask for less per task",
    ),
    Code.NODES_OUT: (
        "what this needs in pool {pool} is on nodes that are out of service: {nodes}",
        "bring one of them back: cede node list",
    ),
    Code.HELD_OUTSIDE: (
        "what this needs in pool {pool} is held outside of cede: {nodes}",
        "nothing: it starts when that is free again; look at it with the cluster's own commands",
    ),
    Code.CLUSTER_BUSY: (
        "node {node} was taken by others before it could start: {why}",
        "nothing: it waits at its old place",
    ),
    Code.CLUSTER_ENDED: (
        "the cluster of node {node} ended it: {why}",
        "look at it with the cluster's own commands; submit it with retries to have it tried again",
    ),
    Code.NOT_LENT: (
        "what this needs in pool {pool} is free on other policies' own nodes, of which no more are "
        "lent to it: {nodes}",
        "their policies must lend more, or its own may borrow (cede policy update --max-borrow, "
        "--lend, --borrow); work that cannot be asked to leave needs a walltime as well",
    ),
    Code.CHECKPOINT_ELSEWHERE: (
        "{checkpoint} is in the folder of {nodes}, where there is no room now; "
        "other nodes of pool {pool} have room and not the checkpoint",
        "nothing: {then}",
    ),
    Code.NODES_CLAIMED: (
        "what this needs in pool {pool} is on nodes that are claimed for others' sensitive work: "
        "{nodes}",
        "who claimed one, or an operator, must give it back: cede node unclaim NODE",
    ),
    Code.PATIENCE: (
        "{free} of {bound} {key} are free in pool {pool}, and this is in the {stage} stage: "
        "{below} has been below its fair share for {since} seconds, and starves after {seconds}",
        "nothing: then it takes what others hold beyond their shares",
    ),
    Code.AT_SHARE: (
        "{free} of {bound} {key} are free in pool {pool}, and this is in the {stage} stage: "
        "{policy} is not below its fair share, with {used} of {share} {key}",
        "{missing} {key} must be released, or {policy} be given more weight or a reserve",
    ),
    Code.BEYOND_SHARE: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but with {requested} more {key} {policy} would hold {would}, beyond its share of "
        "{share}, and from there nobody takes from anybody",
        "{remedy}, or {policy} be given more weight or a reserve",
    ),
    Code.WITHIN_SHARE: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but the first to go would be {group}: {before} {key} are before it and {through} "
        "with it, of {share}",
        "{missing} {key} must be released, or {policy} be given more weight or a reserve",
    ),
    Code.BETWEEN_THRESHOLDS: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but the first to go is {group}: {before} {key} are before it and {through} with "
        "it, between {aggressive} and {normal} of a share, and that is for who starves "
        "aggressively",
        "{remedy}",
    ),
    Code.NOT_FAIRER: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but stopping the first to go would leave {holder} with {left} of its fair share, "
        "no better off than {policy} with {level}",
        "{missing} {key} must be released, or {policy} be given more weight or a reserve",
    ),
    Code.NO_FAIR_SHARE: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but {policy} has no fair share of it while others want all that is guaranteed to "
        "them",
        "{missing} {key} must be released, or {policy} be given a reserve",
    ),
    Code.USAGE_THRESHOLD: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but the {held} {key} that {holder} holds are protected by "
        "non_preemptible_resource_usage_threshold ({threshold})",
        "{missing} {key} must be released, or the threshold be lowered",
    ),
    Code.STAGE_BACKOFF: (
        "{free} of {bound} {key} are free in pool {pool}; this starves and is in the {stage} "
        "stage, but the nodes of those that it could take have just been taken from",
        "nothing: it is tried at a heartbeat of theirs, {seconds} seconds after the last time",
    ),
    Code.NO_LONGER_ELIGIBLE: (
        "paused by an edit: {all}",
        "raise one of the bounds named and it waits at its old place again, or cancel it",
    ),
    Code.NEXT: ("it fits and starts with the next pass", "nothing"),
    Code.RECLAIM: (
        "stopped in pool {pool} for {beneficiary}, which is inside its reserve; this was borrowed",
        "reserve more for {policy}, or run it when the pool is idle",
    ),
    Code.RESERVE_KEPT: (
        "stopped in pool {pool} for {beneficiary}, which is inside its reserve and has room "
        "nowhere else; without this {policy} still holds {kept}, and it reserves {reserved}",
        "reserve more for {policy}, or run it when the pool is idle",
    ),
    Code.HIGHER_CLASS: (
        "stopped in pool {pool} for {beneficiary}: class {rank} is above {victim_rank}",
        "submit it with a higher class, or let it run on nodes of its own policy",
    ),
    Code.EXCHANGE: (
        "stopped in pool {pool} for {beneficiary}, which takes its place in the share of {policy}: "
        "class {rank} is above {victim_rank}",
        "submit it with a higher class, or reserve more for {policy}",
    ),
    Code.PRIORITY: (
        "stopped in pool {pool} for {beneficiary}: priority {rank} is above {victim_rank}",
        "raise the priority of {policy}, or reserve what it needs",
    ),
    Code.OWN_POLICY: (
        "stopped in pool {pool} for {beneficiary}, non-preemptible work of the same policy",
        "reserve more for {policy}",
    ),
    Code.STARVATION: (
        "stopped in pool {pool} for {beneficiary}, which starved below its fair share; this was "
        "further beyond the share of {policy}",
        "give {policy} more weight or a reserve, or run it when the pool is idle",
    ),
    Code.OVER_LIMIT: (
        "stopped in pool {pool}: {where} was left with {bound} {key}, and {held} were held",
        "raise that bound, or set over_limit to drain",
    ),
    Code.SENSITIVE_CLAIM: (
        "stopped in pool {pool}: {claimant} claimed node {node} for sensitive work",
        "nothing: it starts again on another node, or when that one is unclaimed",
    ),
    Code.PREEMPTED: (
        "{cause}; it has no retries, so that ended it",
        "submit it with retries",
    ),
    Code.RETRIES_EXHAUSTED: (
        "attempt {attempt} was its last: {cause}",
        "submit it with more retries",
    ),
    Code.LEASE_EXPIRED: (
        "its client was silent for longer than its lease of {seconds} seconds",
        "keep the client running, or give the request a longer lease",
    ),
    Code.CANCELLED: ("cancelled by {actor}", "nothing"),
    Code.WORK_FAILED: ("the work itself failed with exit code {exit_code}", "see its own output"),
    Code.WORK_LEFT: (
        "it left with exit code 75, which says that it saved its work",
        "nothing: it goes on from there",
    ),
    Code.RESUME_FAILED: (
        "its checkpoint {checkpoint} cannot be read, and it may not start without one: {why}",
        "bring the checkpoint back and submit it again, or submit it with resume: preferred",
    ),
    Code.NOT_STARTED: ("{node} did not start it: {why}", "mend what it names, and submit it again"),
    Code.CHECKPOINT_FAILED: (
        "it was to be stopped ({rule}) and did not save its work in the time it had",
        "make it answer the hint, or give it a longer checkpoint time-out",
    ),
    Code.WALLTIME: (
        "it was still running on {node} when its walltime was over",
        "submit it with a longer walltime, or let it save its work",
    ),
    Code.NODE_LOST: (
        "node {node} could not keep it running ({cause})",
        "nothing: it is started again elsewhere",
    ),
    Code.DEPENDENCY_FAILED: (
        "it was to start after {dependency}, which ended as {status} ({cause})",
        "mend that, and submit both again; work that is to start in any case: --after-any",
    ),
}


def _rule_in_words(detail: Mapping[str, Any]) -> str:
    """The sentence of the rule under which it was preempted, with the beneficiary; its numbers are
    kept beside it.
    """
    rule = detail.get("rule")
    return Reason(Code(rule), detail).text if rule in set(Code) else "preempted"


class _Blanks(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "?"


@dataclass(frozen=True, slots=True)
class Reason:
    """A typed explanation: a code, and the names and numbers that make its sentence."""

    code: Code
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return SENTENCES[self.code][0].format_map(_Blanks(self._words()))

    @property
    def fix(self) -> str:
        return SENTENCES[self.code][1].format_map(_Blanks(self._words()))

    def _words(self) -> dict[str, Any]:
        words = dict(self.detail)
        if self.code is Code.PREEMPTED:
            words["cause"] = _rule_in_words(words)
        if "pools" in words:
            words["all"] = "; ".join(Reason.from_dict(each).text for each in words["pools"])
        return words

    def to_dict(self) -> dict[str, Any]:
        return {"code": str(self.code), **self.detail}

    def to_public(self) -> dict[str, Any]:
        """The reason with its sentences, for showing it to people."""
        return {**self.to_dict(), "text": self.text, "fix": self.fix}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reason:
        detail = {key: value for key, value in data.items() if key not in ("code", "text", "fix")}
        return cls(Code(data["code"]), detail)
