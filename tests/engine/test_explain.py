"""Why a waiter waits, and what would change it: tried on the engine, not guessed."""

from __future__ import annotations

from typing import Any

from cede.engine.explain.why import why
from tests.scenario import tell

FULL = """
    pool gpus 8
    team red  reserved 4 limit 8 priority 10
    team blue reserved 2 limit 4 priority 10
    red submits r1 of 4 walltime 100s -> running r1
    red submits r2 of 4               -> running r2
"""


def told(text: str, name: str) -> dict[str, Any]:
    story = tell(FULL + text)
    return why(story.state, name, story.now)


def test_it_says_who_holds_what_is_missing_and_until_when() -> None:
    answer = told("red submits w of 2 -> waiting w", "w")
    pool = answer["pools"][0]
    holders = {each["request"]: each for each in pool["holders"]}
    assert holders["r1"]["ends_in"] == 100 and holders["r2"]["ends_in"] is None
    assert holders["r1"]["in_share"] and not holders["r2"]["in_share"]
    assert (pool["place"], pool["in_share"], pool["earliest_start"]) == (1, False, 100)


def test_a_change_of_size_or_reserve_is_offered_where_it_would_help() -> None:
    answer = told("blue submits b of 3 -> waiting b (partial_headroom)", "b")
    found = {each["change"]: each for each in answer["pools"][0]["changes"]}
    assert found["reserve"]["to"]["gpu"] == 3 and found["reserve"]["then"] == "promised"
    assert found["reserve"]["text"].startswith("room is freed for it if 3 gpu")
    assert found["holder_ends"]["then"] == "starts"
    assert "limit" not in found


def test_a_higher_limit_is_offered_to_who_is_at_its_limit() -> None:
    answer = told(
        """
        r2 done
        blue submits b1 of 4 -> running b1
        r1 done
        blue submits b2 of 2 -> waiting b2 (own_limit)
        """,
        "b2",
    )
    found = {each["change"]: each for each in answer["pools"][0]["changes"]}
    assert found["limit"] == {
        "change": "limit", "policy": "blue", "to": {"gpu": 6}, "then": "starts",
        "text": "it starts if the limit of blue is 6 gpu",
    }  # fmt: skip
    assert found["holder_ends"]["request"] == "b1"


def test_a_place_in_the_queue_is_counted_in_the_one_order() -> None:
    story = tell(
        FULL
        + """
        red submits w1..w2 of 2 -> waiting w1 w2
        edit pool gpus reclaim_min_run 1000s
        blue submits b of 2     -> waiting b (min_run)
        """
    )
    places = {
        name: why(story.state, name, story.now)["pools"][0]["place"] for name in ("b", "w1", "w2")
    }
    assert places == {"b": 1, "w1": 2, "w2": 3}


def test_each_pool_has_its_own_reason() -> None:
    story = tell("""
        pool east 2
        team red in east limit 2 priority 10
        team blue in east limit 2 priority 10
        pool west 4
        team red in west limit 2 priority 20
        red submits w of 2 in west   -> running w
        blue submits e of 2          -> running e
        red submits r of 2           -> waiting r (own_limit)
    """)
    answer = why(story.state, "r", story.now)
    assert [(each["pool"], each["reason"]["code"]) for each in answer["pools"]] == [
        ("west", "own_limit"),
        ("east", "protected"),
    ]


def test_a_victim_is_told_for_whom_and_a_waiter_why_it_was_stopped() -> None:
    story = tell(FULL + "blue submits b of 2 -> stopping r2, earmark b")
    answer = why(story.state, "r2", story.now)
    assert (answer["taken_for"], answer["reason"]["code"]) == ("b", "reclaim")
    story = tell(
        """
        pool gpus 2
        team red limit 2
        team blue reserved 2 limit 2
        red submits r of 2 retries 1 -> running r
        blue submits b of 2          -> stopping r, earmark b
        r stops                      -> running b, waiting r
        """
    )
    answer = why(story.state, "r", story.now)
    assert answer["last_stopped"]["code"] == "reclaim"
    assert (answer["attempt"], answer["preempted_count"]) == (2, 1)


def test_on_nodes_the_story_names_them_and_how_saving_goes() -> None:
    state = tell("""
        node n1..n2 2 gpu in gpus
        pool gpus nodes
        team red  reserved 0 limit 4 priority 10
        team blue reserved 4 limit 4 priority 10
        red runs r of 2 checkpoint auto free -> running r, on r n1
        red runs s of 2                 -> running s, on s n2
        r s starts
        blue runs b of 2 tasks 2        -> saving r, stopping s, earmark b
    """).state
    told = why(state, "r", 0)
    assert told["nodes"] == ["n1"]
    assert told["saving"] == {"seconds_left": 600, "answered": False}
    held = why(state, "b", 0)["pools"][0]["holders"]
    assert [each["nodes"] for each in held if each["request"] == "r"] == [["n1"]]


# Reasons that were false once -----------------------------------------------------------------


def test_the_beneficiary_of_a_reclaim_is_first_and_in_share_and_not_its_own_holder() -> None:
    pool = told("blue submits b of 2 -> stopping r2, earmark b", "b")["pools"][0]
    assert (pool["place"], pool["in_share"]) == (1, True)
    assert {each["request"] for each in pool["holders"]} == {"r1", "r2"}


def test_what_is_free_is_said_as_it_is_and_who_has_the_rest() -> None:
    story = tell("""
        pool gpus 14
        team red limit 14 priority 10
        team low reserved 6 limit 14 priority 1
        low submits f of 6 fixed -> running f
        red submits a of 6       -> running a
        red submits w of 4       -> waiting w (no_capacity gpu)
    """)
    text = why(story.state, "w", story.now)["reason"]["text"]
    assert text == (
        "4 gpu are needed and 2 of 14 are free in pool gpus; 6 are held by work that is stopped "
        "for nobody (f); 6 are held by other work of its own policy (a)"
    )


def test_where_nobody_may_be_stopped_nobody_is_counted_in_sets() -> None:
    story = tell("""
        pool gpus 4 preset classes
        team red limit 4
        team blue limit 4
        red submits a of 4 class 5 walltime 900s -> running a
        blue submits w of 2 class 3              -> waiting w (protected gpu)
    """)
    assert "not below this in standing (a)" in why(story.state, "w", story.now)["reason"]["text"]


def test_no_start_is_bounded_that_its_own_limit_or_others_may_delay() -> None:
    """It fits what is free, and waits for its policy's limit: that it "starts in 0 s" was false."""
    story = tell("""
        pool gpus 8
        team red limit 4 priority 10
        red submits a of 4 -> running a
        red submits w of 2 -> waiting w (own_limit gpu)
    """)
    assert why(story.state, "w", story.now)["pools"][0]["earliest_start"] is None
    answer = told("red submits w of 2 -> waiting w\n blue submits b of 4 -> waiting b", "w")
    assert answer["pools"][0]["earliest_start"] is None


def test_the_fix_is_what_was_tried_and_starts_it() -> None:
    answer = told("blue submits b of 4 -> waiting b (partial_headroom)", "b")
    assert answer["reason"]["fix"] == "reserve 4 gpu for blue, or ask for 2 gpu, or r2 must end"


def test_where_no_single_end_helps_several_are_named() -> None:
    story = tell("""
        pool gpus 4
        team red limit 4
        red submits r1..r4 of 1 -> running r1 r2 r3 r4
        red submits w of 2      -> waiting w
    """)
    (change,) = why(story.state, "w", story.now)["pools"][0]["changes"]
    assert (change["change"], len(change["requests"])) == ("holders_end", 2)
