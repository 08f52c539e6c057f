"""The lease in a directory. With clocks that the tests turn, and without threads, a race is a list of steps; a few
tests at the end of the list are of real processes and threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LeaseError, LeaseLost
from holdfast.standby.file_lease import FileLease
from holdfast.standby.lease import Holder, LeaseState

TIMEOUT = 2.0


class Clock:
    """A host's own: it started at any time, and shows nothing to others."""

    def __init__(self, offset: float = 0.0) -> None:
        self.now = offset

    def __call__(self) -> float:
        return self.now


class Driver:
    """A lease that is stepped by hand. (`acquire` would wait, and start a thread.)"""

    def __init__(self, directory: Path, number: int, offset: float = 0.0) -> None:
        self.clock = Clock(offset)
        self.lease = FileLease(directory, TIMEOUT, self.clock, Holder(100 + number, f"host{number}", 0.0))
        self.lease.connect()

    def look(self) -> bool:
        if self.lease.look():
            self.lease._held = True
        return self.lease._held

    def renew(self) -> None:
        try:
            self.lease.renew()
        except LeaseLost as error:
            self.lease._lost = str(error)
        except LeaseError:
            pass

    @property
    def holds(self) -> bool:
        return self.lease.state is LeaseState.HELD


def drivers(directory: Path, count: int) -> list[Driver]:
    return [Driver(directory, number, 1000.0 * number) for number in range(count)]


def pass_time(seconds: float, *some: Driver) -> None:
    for driver in some:
        driver.clock.now += seconds


def test_the_first_driver_gets_the_lease_and_the_others_see_who_has_it(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    assert first.look() and first.holds and first.lease.term == 1
    assert not second.look() and second.lease.state is LeaseState.FOLLOWING
    assert str(second.lease.holder()) == "pid 100 on host0"


def test_a_lease_that_is_renewed_stays_and_one_that_is_not_is_taken_after_the_timeout(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    for _ in range(10):
        pass_time(0.5, first, second)
        first.renew()
        assert not second.look()
    pass_time(1.9, first, second)
    assert not second.look()  # seen at its last beat, 1.9 s ago
    pass_time(0.2, first, second)
    assert not first.holds  # it stopped to count on it before anybody may take it
    assert second.look() and second.holds and second.lease.term == 2


def test_a_follower_waits_the_whole_timeout_however_old_the_lease_is(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    pass_time(3600.0, first, second)
    assert not second.look()  # its own first look: nothing is known before it
    pass_time(1.0, second)
    assert not second.look()
    pass_time(1.0, second)
    assert second.look()


def test_a_released_lease_is_taken_at_once(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    assert not second.look()
    first.lease.release()
    assert first.lease.state is LeaseState.RELEASED
    assert second.look()


def test_a_paused_holder_is_unsure_when_it_wakes_and_finds_that_it_lost(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    second.look()
    pass_time(5.0, first, second)
    assert second.look()
    assert first.lease.state is LeaseState.UNSURE
    first.renew()
    assert first.lease.state is LeaseState.LOST
    with pytest.raises(LeaseLost, match=r"it went to pid 101 on host1 \(term 2; this driver had term 1\)"):
        first.lease.require()
    pass_time(1.0, first, second)
    second.renew()
    assert second.holds


def test_a_holder_that_was_late_goes_on_if_nobody_took_over(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    pass_time(5.0, first)
    assert first.lease.state is LeaseState.UNSURE
    first.renew()
    assert first.holds and first.lease.term == 2
    assert not second.look()
    assert sorted(name for name in os.listdir(tmp_path)) == ["term-000000000002"]


def test_of_two_followers_that_find_it_stale_at_once_one_gets_it(tmp_path: Path) -> None:
    first, second, third = drivers(tmp_path, 3)
    first.look()
    second.look(), third.look()
    pass_time(3.0, first, second, third)
    between(second.lease, "_create", lambda: third.look())
    second.look()
    assert third.holds and not second.holds


def test_a_follower_steps_back_when_the_holder_wakes_up_in_the_middle_of_it(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    second.look()
    pass_time(3.0, second)  # for the first one less time went by, say: its host was slow to write
    between(second.lease, "_create", first.renew)
    assert not second.look()
    first.renew()
    assert first.holds


def test_a_beat_that_was_paused_before_its_write_does_not_outlive_a_takeover(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    first.look()
    second.look()
    pass_time(1.5, first, second)

    def sleep() -> None:
        pass_time(1.0, first, second)
        assert second.look()

    between(first.lease, "_replace", sleep)
    first.renew()
    assert first.lease.state is LeaseState.LOST and second.holds


def test_a_driver_that_dies_while_it_takes_the_lease_blocks_nobody(tmp_path: Path) -> None:
    first, second = drivers(tmp_path, 2)
    (tmp_path / ".term-000000000001.dead.tmp").write_bytes(b"")  # it died before the link …
    assert first.look()
    pass_time(3.0, first)
    (tmp_path / "term-000000000002").write_bytes(b"")  # … or after it, with nothing written
    assert not second.look()
    pass_time(2.0, second)
    assert second.look() and second.lease.term == 3
    assert sorted(os.listdir(tmp_path)) == ["term-000000000003"]


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LeaseError, match="a part of the path is a file"):
        FileLease(tmp_path / "file" / "lease", TIMEOUT).connect()


def test_it_works_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", refuse)
    first, second = drivers(tmp_path, 2)
    assert first.look() and not second.look()
    pass_time(3.0, second)
    assert second.look() and second.lease.term == 2


def test_a_process_that_is_paused_loses_the_lease_and_says_so(tmp_path: Path) -> None:
    code = f"""
        import sys
        from holdfast.errors import LeaseLost
        from holdfast.standby.address import open_lease
        with open_lease({tmp_path.as_uri()!r}, "1s") as lease:
            lease.acquire()
            print("held", flush=True)
            sys.stdin.readline()
            try:
                lease.require()
                print("still held")
            except LeaseLost as error:
                print(error)
    """
    first = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        first.send_signal(signal.SIGSTOP)
        with FileLease(tmp_path, 1.0) as second:
            assert second.acquire()
            first.send_signal(signal.SIGCONT)
            said = first.communicate("\n", timeout=60.0)[0]
            assert second.require()
    finally:
        first.kill()
        first.wait()
    assert f"it went to pid {os.getpid()} on" in said


def test_a_lease_that_is_released_while_a_thread_waits_for_it_is_not_taken(tmp_path: Path) -> None:
    first, second = FileLease(tmp_path, 60.0), FileLease(tmp_path, 60.0)
    assert first.acquire()
    waits, got = threading.Event(), []
    thread = threading.Thread(target=lambda: got.append(second.acquire(waiting=waits.set)))
    thread.start()
    assert waits.wait(60.0)
    second.release()
    thread.join(60.0)
    assert got == [False] and first.require()
    first.release()


def between(lease: FileLease, step: str, happens: Callable[[], object]) -> None:
    """Have something happen just before a step of a lease, once."""
    original = getattr(lease, step)

    def wrapped(*arguments: object) -> object:
        setattr(lease, step, original)
        happens()
        return original(*arguments)

    setattr(lease, step, wrapped)


TIMES = st.sampled_from([0.0, 0.25, 0.75, 1.0, 1.5, 2.25])  # sums of them are exact on any clock
MOVES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["_create", "_read", "_top", "_replace", "released"]),
        st.lists(st.tuples(TIMES, st.integers(0, 2)), max_size=3),
        TIMES,
    ),
    min_size=1,
    max_size=8,
)
"""Who acts; where it is paused; what happens then: time goes by, another acts; and how long it is until the next."""


@settings(max_examples=300, deadline=None)
@given(MOVES)
def test_two_drivers_never_count_on_the_lease_at_once(moves: list[Any]) -> None:
    """Drivers act in any order, and any of them is paused at any point of what it does, for any time, while the others
    act. Time goes on for all alike; each counts from another zero."""
    with tempfile.TemporaryDirectory() as directory:
        some = drivers(Path(directory), 3)

        def check() -> None:
            assert sum(driver.holds for driver in some) <= 1

        def act(driver: Driver) -> None:
            if driver.lease.state is LeaseState.FOLLOWING:
                driver.look()
            elif driver.lease.state in (LeaseState.HELD, LeaseState.UNSURE):
                driver.renew()
            check()

        def pause(who: int, others: list[tuple[float, int]]) -> None:
            for seconds, other in others:
                pass_time(seconds, *some)
                check()
                if other != who:
                    act(some[other])

        for driver in some:
            driver.look()
        for who, point, others, seconds in moves:
            if point == "released":
                if some[who].holds:
                    some[who].lease.release()
            else:
                between(some[who].lease, point, partial(pause, who, others))
            act(some[who])
            some[who].lease.__dict__.pop(point, None)
            pass_time(seconds, *some)
            check()
