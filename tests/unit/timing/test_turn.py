"""The turn to time, seen from the process that asks for it; who hands it out is tested in tests/unit/kernelbench."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from kernelmark.errors import UnavailableError
from kernelmark.timing.turn import TURN_VARIABLE, turn_to_time


def test_where_nobody_hands_out_turns_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TURN_VARIABLE, raising=False)
    with turn_to_time() as note:
        assert note == ""


def test_one_that_hands_out_turns_and_is_gone_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(TURN_VARIABLE, f"1:{tmp_path / 'none'}")
    with pytest.raises(UnavailableError, match="does not answer"), turn_to_time():
        pass


def test_one_that_ends_before_it_answers_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "turn"))
        listener.listen()
        monkeypatch.setenv(TURN_VARIABLE, f"7:{tmp_path / 'turn'}")
        asked: list[bytes] = []

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                asked.append(line.recv(64))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UnavailableError, match="it ended"), turn_to_time():
            pass
        thread.join()
    assert asked == [b"7\n"]
