"""The back-off's bounds, and what a stream of events is made of."""

from __future__ import annotations

from cede.client.events import parse_stream
from cede.client.waiting import FIRST, MOST, BackOff


def test_pauses_double_from_one_second_to_twenty_and_are_at_most_halved() -> None:
    for seed in range(50):
        back_off = BackOff(seed)
        full = FIRST
        for _ in range(8):
            assert full / 2 <= back_off.pause() <= full
            full = min(full * 2, MOST)


def test_two_waiters_do_not_ask_in_step() -> None:
    first, second = BackOff(1), BackOff(2)
    assert [first.pause() for _ in range(5)] != [second.pause() for _ in range(5)]


def test_after_a_reset_it_asks_soon_again() -> None:
    back_off = BackOff(3)
    for _ in range(8):
        back_off.pause()
    back_off.reset()
    assert back_off.pause() <= FIRST


def test_events_are_read_from_their_data_lines() -> None:
    text = ': from 3\n\n: still here\n\nid: 4\nevent: x\ndata: {"index": 4,\ndata: "kind": "x"}\n\n'
    assert list(parse_stream(iter(text.splitlines()))) == [{"index": 3}, {"index": 4, "kind": "x"}]
