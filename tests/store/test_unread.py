"""What was read from a row is what was written, whoever looks at it and when."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cede.model.work import Work
from cede.store.node_rows import work_from, work_text
from cede.store.unread import UnreadMap, UnreadWork

WORK = Work(("python", "train.py"), {"SEED": "7"}, "/data", "alice")


@pytest.mark.parametrize("work", [WORK, Work(("true",))])
def test_it_becomes_the_work_that_was_written(work: Work) -> None:
    read = work_from(work_text(work))
    assert read is not None
    assert (type(read), work_text(read)) == (UnreadWork, work_text(work))
    assert (read.argv, read.env, read.directory, read.user) == (
        (work.argv, work.env, work.directory, work.user)
    )
    assert type(read) is Work
    assert (read, work_text(read), repr(read)) == (work, work_text(work), repr(work))


def test_it_is_equal_to_its_like_whether_somebody_looked_or_not() -> None:
    text = work_text(WORK)
    assert work_from(text) == WORK
    assert work_from(text) == work_from(text)
    assert work_from(text) == WORK != work_from(work_text(Work(("false",))))
    assert replace(work_from(text) or WORK, user="") == replace(WORK, user="")


def test_a_copy_is_plain_work() -> None:
    text = work_text(WORK)
    for copied in (copy.copy(work_from(text)), pickle.loads(pickle.dumps(work_from(text)))):
        assert (type(copied), copied) == (Work, WORK)


def test_rows_from_before_a_field_was_there_are_read() -> None:
    assert work_from('[["true"]]') == Work(("true",))


def test_many_may_look_at_once() -> None:
    text = work_text(WORK)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(200):
            read = work_from(text)
            assert read is not None
            found = threads.map(lambda name, work=read: getattr(work, name), ["argv", "env"] * 8)
            assert list(found) == [WORK.argv, WORK.env] * 8


def test_a_map_is_equal_to_the_one_that_was_written() -> None:
    read = UnreadMap('{"a":"1","b":"2"}')
    assert (dict(read), len(read), read["b"], "c" in read) == ({"a": "1", "b": "2"}, 2, "2", False)
    assert read == {"a": "1", "b": "2"} == read != {"a": "1"}
    assert repr(read) == "{'a': '1', 'b': '2'}"
    for copied in (copy.copy(read), pickle.loads(pickle.dumps(read))):
        assert (type(copied), copied) == (dict, read)
