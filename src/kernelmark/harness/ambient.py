"""The session in use, for what has no other way to learn of it; light enough for any pytest run to import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from kernelmark.harness.session import Session

__all__ = ["current_session", "session_in_use", "use_session"]

_current: ContextVar[Session | Callable[[], Session | None] | None] = ContextVar(
    "kernelmark_session", default=None
)

S = TypeVar("S", bound="Session | Callable[[], Session | None]")


@contextmanager
def use_session(session: S) -> Iterator[S]:
    """Make ``session`` the current one inside the ``with`` block; does not close it.

    Args:
        session: The session, or what gives it when it is first needed, which may be never.
    """
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)


def session_in_use() -> Session | None:
    """Give the session of the innermost :func:`use_session`; ``None`` outside any."""
    session = _current.get()
    return session() if callable(session) else session


def current_session() -> Session:
    """Give the session in use; outside any, one for the whole process that keeps its rows in memory."""
    return session_in_use() or _default()


@cache
def _default() -> Session:
    from kernelmark.harness.session import Session

    return Session()
