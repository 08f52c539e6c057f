"""The gate at which tasks wait: so many pass, the others when it is opened."""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.testing import Gate


def test_so_many_enter_and_the_others_wait_until_it_is_open(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", free=2)
    gate.enter()
    gate.enter("second")
    assert not gate.has_waited("second")
    third = threading.Thread(target=gate.enter, args=("third",), daemon=True)
    third.start()
    while not gate.has_waited("third"):
        third.join(0.01)
    assert third.is_alive() and not gate.is_open
    gate.open()
    third.join(30.0)
    assert not third.is_alive()
    gate.enter()  # it stays open


def test_who_meets_another_waits_for_it(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", free=0)
    first = threading.Thread(target=gate.meet, args=("first", 1), daemon=True)
    first.start()
    gate.directory.joinpath("met-first").touch()  # the same one, again
    first.join(0.1)
    assert first.is_alive()
    gate.meet("second", 1)
    first.join(30.0)
    assert not first.is_alive()
