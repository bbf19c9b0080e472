"""The session in use: given, made when it is needed, or the process's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.harness import Session, current_session, session_in_use, use_session


def test_the_innermost_session_is_in_use_and_none_outside(make_session: Callable[..., Session]) -> None:
    outer, inner = make_session(), make_session()
    with use_session(lambda: None):  # the run of these tests has one where it was asked to benchmark
        assert session_in_use() is None
        with use_session(outer) as given:
            assert given is outer
            with use_session(inner):
                assert current_session() is inner
            assert current_session() is session_in_use() is outer
        assert session_in_use() is None


def test_a_session_can_be_made_when_it_is_first_asked_for(make_session: Callable[..., Session]) -> None:
    made: list[Session] = []

    def make() -> Session:
        made.append(make_session())
        return made[0]

    with use_session(make):
        assert made == []
        assert current_session() is made[0]


def test_outside_any_there_is_one_session_for_the_process() -> None:
    assert current_session() is current_session()
    with use_session(lambda: None):
        assert session_in_use() is None
        assert current_session() is not None


def test_a_session_is_put_back_where_the_block_fails(make_session: Callable[..., Session]) -> None:
    with use_session(lambda: None):
        with pytest.raises(ValueError, match="out"), use_session(make_session()):
            raise ValueError("out")
        assert session_in_use() is None
