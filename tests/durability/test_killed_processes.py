"""Real processes, really killed: a flow that dies at any moment, again and again, is right in the end.

One flow (`app.py`) lives many lives on one log. Each ends with SIGKILL to its whole process group: at a moment that a
seed draws (while Spark starts, while the log is opened, in the middle of epochs, rounds and merges), or at a mark of
the code. Between two lives the dead flow's files may suffer: the local directory is lost, or one copy of the log, or a
bit flips in a local layer, or in one of a copy's. Then it is left alone, and must have delivered what a flow that was
never killed delivers; what it drew, and what an outside function answered, must have been drawn and asked once.

Most of a life is the start of a JVM, so that is made short: the run without crashes leaves an archive of the loaded
classes, which all the others map.
"""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.connectors.changelog import committed, delivered, lineage_of
from holdfast.coordinator.lineage import GENESIS, from_lines
from holdfast.testing import MARKS

APP = Path(__file__).with_name("app.py")
PATIENCE = 120.0
"""Seconds after which a process that says nothing is taken to hang."""

Row = tuple[Any, ...]


# -- input, and what must come of it ----------------------------------------------------------------------------------


def write_input(root: Path, batches: int, chance: random.Random) -> dict[str, Counter[Row]]:
    """All the input of a flow, and what its two delivered views must hold in the end, computed in plain Python."""
    (root / "orders").mkdir(parents=True)
    (root / "users").mkdir()
    users = [(user, chance.randrange(6)) for user in range(20)]
    for number in range(4):
        some = users[number * 5 : number * 5 + 5]
        table = pa.table({"user": [user for user, _ in some], "city": [city for _, city in some]})
        pq.write_table(table, root / "users" / f"{number}.parquet")
    there: list[Row] = []
    for number in range(batches):
        gone = [there.pop(chance.randrange(len(there))) for _ in range(min(len(there), chance.randrange(6)))]
        come = [(100 * number + each, chance.randrange(25), chance.randrange(-20, 100)) for each in range(8)]
        there += come
        change = [[*row, -1] for row in gone] + [[*row, 1] for row in come]
        (root / "orders" / f"{number:06d}.json").write_text(json.dumps(change))
    return {"cities": _cities(there, dict(users)), "top": _top(there), "drawn": Counter(row[:2] for row in there)}


def _cities(orders: Sequence[Row], city_of: dict[int, int]) -> Counter[Row]:
    amounts: dict[int, list[int]] = {}
    for _, user, amount in orders:
        if user in city_of:
            amounts.setdefault(city_of[user], []).append(amount)
    return Counter((city, sum(held), len(held), max(held)) for city, held in amounts.items())


def _top(orders: Sequence[Row]) -> Counter[Row]:
    totals: Counter[int] = Counter()
    for _, user, amount in orders:
        totals[user] += amount
    return Counter(sorted(totals.items(), key=lambda row: (-row[1], row[0]))[:5])


# -- what a flow delivered --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Delivered:
    """What a sink holds: the sum of its changes, the commits that it has, each with its lineage's digest and parent,
    and the last epoch that it was given."""

    rows: Counter[Row]
    commits: list[tuple[int, str, str]]
    last: int


def changelog(path: Path) -> Delivered:
    commits, rows = [], Counter[Row]()
    for epoch in committed(path):
        last = from_lines(lineage_of(path, epoch))[-1]
        assert last.epoch == epoch, f"the file of epoch {epoch} carries the lineage of epoch {last.epoch}"
        commits.append((epoch, last.digest, last.parent))
        table = pq.read_table(path / f"epoch-{epoch:012d}.parquet")
        assert set(table.column("_epoch").to_pylist()) <= {epoch}
        _add(rows, table.drop_columns(["_epoch"]).to_pydict().values())
    return Delivered(_positive(rows), commits, delivered(path))


def database(path: Path) -> Delivered:
    with sqlite3.connect(path) as opened:
        commits = opened.execute("SELECT epoch, digest, parent FROM commits ORDER BY epoch").fetchall()
        changes = opened.execute("SELECT user, total, diff FROM changes").fetchall()
    opened.close()
    rows = Counter[Row]()
    _add(rows, zip(*changes, strict=True))
    return Delivered(_positive(rows), commits, max((epoch for epoch, _, _ in commits), default=-1))


def _add(rows: Counter[Row], columns: Iterable[Sequence[int]]) -> None:
    """Add up changes, given as columns, of which the last is the diff."""
    for *row, diff in zip(*columns, strict=True):
        rows[tuple(row)] += diff


def _positive(rows: Counter[Row]) -> Counter[Row]:
    assert all(count >= 0 for count in rows.values()), "a row was retracted that had not been there"
    return +rows


def check_same(changes: Delivered, all_epochs: Delivered) -> None:
    """A changelog, which has files of the epochs that changed its view, and a sink that records every epoch."""
    assert set(changes.commits) <= set(all_epochs.commits) and len(changes.commits) == len(set(changes.commits))
    assert changes.last == all_epochs.last


def check_chain(commits: Sequence[tuple[int, str, str]]) -> None:
    """Every epoch is there once, and follows the one before."""
    assert [epoch for epoch, _, _ in commits] == list(range(len(commits)))
    parents = [GENESIS, *(digest for _, digest, _ in commits)]
    assert all(parent == before for (_, _, parent), before in zip(commits, parents, strict=False))


# -- processes --------------------------------------------------------------------------------------------------------


class Process:
    """The app, in a session of its own, with the lines that it prints."""

    def __init__(self, root: Path, *arguments: str, java: str = "", app: Path = APP, **environment: str) -> None:
        self._said = root.parent / f"{root.name}.stderr"
        self.started = time.monotonic()
        own = {
            "PYTHONPATH": os.pathsep.join([str(Path(holdfast.__file__).parents[1]), str(APP.parents[2])]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off {java}",
            "TZ": "UTC",
        }
        with open(self._said, "wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(app), str(root), *arguments],
                env={**os.environ, **own, **environment},
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        self.session = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            if line.split(" ")[0].strip() in ("open", "epoch", "idle", "held"):
                self._lines.put(line.strip())
        self._lines.put("")

    def line(self, timeout: float = PATIENCE) -> str | None:
        """The next line; empty when there will be none, None if none came in time."""
        try:
            return self._lines.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return None

    def kill(self) -> int:
        """Kill what is left of it. How it had ended: -9 if by a kill of its own."""
        with suppress(ProcessLookupError):  # it ended by itself, and the JVM with it
            os.killpg(self.session, signal.SIGKILL)
        return self._process.wait(PATIENCE)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def errors(self) -> str:
        return self._said.read_text(errors="replace")[-4000:]

    def left_behind(self) -> list[int]:
        """Processes of its session. (Spark's Python workers have process groups of their own.)"""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(session) == self.session and state != "Z":
                    found.append(int(entry.name))
        return found

    def assert_gone(self, patience: float = 20.0) -> None:
        deadline = time.monotonic() + patience
        while left := self.left_behind():
            assert time.monotonic() < deadline, f"processes {left} are left behind"
            time.sleep(0.02)


# -- lives ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """How a life ends, and what happens to the files after it."""

    mark: str | None = None
    """It dies at this mark of the code, if it comes there in time."""

    lines: int | None = None
    """It is killed when it has printed so many lines (None: in a part of the time that starting takes) …"""

    delay: float = 0.0
    """… and so many seconds (or: that part of the time) have gone."""

    before: str = "nothing"
    """What happened to its files before it."""


MANY = 30
"""So many lives die at every mark."""

LATE = ("merge", "round.before_compaction")
"""Marks that are reached when there are many layers, so not in every life. The first kills a worker, not the driver."""

REACHED = tuple(mark for mark in MARKS if not mark.startswith(("loop.", "branch", "promote.", "repair.", "snapshot.")))
"""The others are reached in loops, or where members were lost and the flow goes on without: not here."""

HARM = ("lose directory", "lose a", "lose b", "lose local", "flip local", "flip a", "flip b") + ("nothing",) * 5
"""What happens between lives: each as often as it is here."""


class Copies:
    """Which copies of the log are not whole. One at a time: more is not promised to be survived."""

    def __init__(self) -> None:
        self.lost = ""
        """Its files were removed. It is whole again when it has been waited for."""

        self.flipped = ""
        """A bit of it flipped, which may stay until it is removed."""

    def choose(self, harm: str, heal: Callable[[], None]) -> str:
        """What may happen where ``harm`` was to."""
        kind, _, copy = harm.partition(" ")
        if copy not in ("a", "b"):
            return harm
        if self.flipped not in ("", copy):
            copy = self.flipped
        if self.lost not in ("", copy):
            heal()
            self.lost = ""
        if kind == "flip":
            self.flipped = copy
        else:
            self.lost, self.flipped = copy, ""
        return f"{kind} {copy}"


def lives_of(count: int, chance: random.Random) -> list[Life]:
    if count < MANY:
        some = chance.sample(REACHED, 1)
        harms = chance.sample(("lose directory", "lose a", "lose b", "flip local"), 3)
        dead = [Life(None, chance.choice((1, 2, 3)), chance.random(), before=harm) for harm in harms]
        # The first run longer: what is lost should have been there.
        return [Life(None, 4), *dead, *(Life(mark, 4, before=_needed(mark)) for mark in some)][:count]
    at_marks = [Life(mark, 8, before=_needed(mark)) for mark in REACHED if not mark.startswith("recovery.")]
    in_recovery = [Life(mark, 8, before=_needed(mark)) for mark in REACHED if mark.startswith("recovery.")]
    some = count - len(at_marks) - len(in_recovery)
    harms = [*HARM] * (some // len(HARM) + 1)
    killed = [
        Life(None, chance.choice((None, 1, 1, 2, 2, 3)), chance.random(), before=harm)
        for harm in chance.sample(harms[:some], some)
    ]
    lives = [*killed, *at_marks]
    chance.shuffle(lives)
    # What many layers are needed for cannot happen in the first lives.
    lives.sort(key=lambda life: life.mark in LATE)
    third = len(lives) // 3
    # Crashes in recovery come one after the other: the second is in the recovery from the first.
    return lives[:third] + in_recovery + lives[third:]


def _needed(mark: str) -> str:
    return {"recovery.before_fetch": "lose local", "recovery.before_replay": "lose everywhere"}.get(mark, "nothing")


def suffer(root: Path, harm: str, chance: random.Random) -> None:
    """Do something to the files of a dead flow."""
    local = sorted((root / "local" / "traces").glob("*/*.arrow"))
    copied = sorted(path.name for path in (root / "a" / "layers").glob("*"))
    if harm in ("lose local", "lose everywhere"):
        shutil.rmtree(root / "local" / "traces", ignore_errors=True)
    if harm == "lose directory":
        shutil.rmtree(root / "local", ignore_errors=True)
    if harm in ("lose a", "lose b"):
        shutil.rmtree(root / harm.removeprefix("lose "), ignore_errors=True)
    if harm == "lose everywhere" and copied:
        for place in ("a", "b"):
            shutil.rmtree(root / place / "layers" / copied[-1], ignore_errors=True)
    if harm == "flip local" and local:
        _flip(chance.choice(local), chance)
    if harm in ("flip a", "flip b"):
        copies = sorted((root / harm.removeprefix("flip ") / "layers").glob("*/*.parquet"))
        if copies:
            _flip(chance.choice(copies), chance)


def _flip(path: Path, chance: random.Random) -> None:
    whole = bytearray(path.read_bytes())
    if whole:
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(whole)


def live(root: Path, life: Life, java: str, starting: float) -> tuple[bool, float | None, Process]:
    """Live a life: whether it died at a mark, how long it took to open, and the process, which is dead."""
    process = Process(root, java=java, **({"HOLDFAST_CRASH_AT": life.mark} if life.mark else {}))
    opened, at_mark = None, False
    if life.lines is None:
        time.sleep(life.delay * starting)
    else:
        for number in range(life.lines):
            line = process.line()
            assert line is not None, f"{life}: it hangs\n{process.errors()}"
            if number == 0 and line:
                opened = time.monotonic() - process.started
            if not line or line == "idle":
                at_mark = not line
                break
        else:
            time.sleep(life.delay * 0.5)
    ended = process.kill()
    assert ended == -signal.SIGKILL, f"{life}: it ended by itself, with {ended}\n{process.errors()}"
    return at_mark, opened, process


def heal(root: Path, java: str) -> Process:
    """A life that ends when both copies hold everything: only then may the other one be harmed."""
    process = Process(root, "heal", java=java)
    finished(process)
    return process


@pytest.mark.slow  # (in `make test`: tests/guarantees/test_crash_matrix.py, tests/cluster/test_flows.py)
@pytest.mark.parametrize("count", [2, 50])
def test_a_flow_that_is_killed_again_and_again_delivers_everything_once(tmp_path: Path, count: int) -> None:
    chance = random.Random(count)
    calm, root = tmp_path / "calm", tmp_path / "killed"
    expected = write_input(
        root, max(40, 3 * count), chance
    )  # more than the lives take: one without input reaches no mark
    for name in ("orders", "users"):
        shutil.copytree(root / name, calm / name)
    archive = tmp_path / "classes.jsa"
    began = time.monotonic()
    process = Process(calm, "finish", java=f"-XX:ArchiveClassesAtExit={archive}")
    held = finished(process)
    process.assert_gone(PATIENCE)
    check_held(calm, held, expected)
    print(f"without a crash: {time.monotonic() - began:.1f} s")

    java = f"-XX:SharedArchiveFile={archive}"
    processes, starting, times, reached, copies = [], 4.0, [], set(), Copies()
    try:
        for life in lives_of(count, chance):
            harm = copies.choose(life.before, lambda: processes.append(heal(root, java)))
            suffer(root, harm, chance)
            began = time.monotonic()
            at_mark, opened, process = live(root, life, java, starting)
            reached |= {life.mark} if at_mark else set()
            times.append(time.monotonic() - began)
            starting = opened or starting
            processes.append(process)
            epochs = delivered(root / "out") + 1
            print(f"{life} ({harm}): {times[-1]:.1f} s, open after {opened or 0:.1f} s, {epochs} epochs")
        began = time.monotonic()
        process = Process(root, "finish", java=java)
        processes.append(process)
        held = finished(process)
        print(f"{count} lives: {sum(times):.0f} s; the rest: {time.monotonic() - began:.1f} s")
        for process in processes:
            process.assert_gone()
    finally:
        archive.unlink(missing_ok=True)
        for process in processes:
            process.kill()

    check_held(root, held, expected)
    for sink in (changelog, "cities", "out"), (database, "top", "top.db"):
        read, view, place = sink
        assert read(root / place).rows == read(calm / place).rows == expected[view]
    for place in root, calm:
        check_chain(database(place / "top.db").commits)
        check_same(changelog(place / "out"), database(place / "top.db"))
    assert count < MANY or reached | set(LATE) == set(REACHED)


def check_held(root: Path, held: dict[str, list[list[Any]]], expected: dict[str, Counter[Row]]) -> None:
    """The views hold what they must; what was drawn was drawn once, and is what the sinks have."""
    rows = {name: Counter(map(tuple, rows)) for name, rows in held.items()}
    assert {name: rows[name] for name in ("cities", "top")} == {name: expected[name] for name in ("cities", "top")}
    assert Counter(row[:2] for row in rows["drawn"]) == expected["drawn"]
    for name in ("drawn", "drawn_spend"):
        assert _positive(added_up(root / name)) == rows[name], f"{name}: the sink has other values than the view"
    emitted = added_up(root / "drawn")
    ever = {row[0]: row for row in emitted}
    assert len(ever) == len(emitted), "a row was drawn twice"
    answers = set((root / "asked").read_text().splitlines())
    assert {row[4] for row in ever.values()} <= answers, "an answer was delivered that nobody gave"
    spent: dict[int, tuple[float, int, str]] = {}
    for _, user, chance, _, answer in rows["drawn"]:
        total, orders, least = spent.get(user, (0.0, 0, answer))
        spent[user] = (total + chance, orders + 1, min(least, answer))
    found = {row[0]: row[1:] for row in rows["drawn_spend"]}
    assert found.keys() == spent.keys()
    for user, (total, orders, least) in spent.items():
        assert found[user] == (pytest.approx(total, rel=1e-9), orders, least)


def added_up(path: Path) -> Counter[Row]:
    """All rows that a changelog ever had, with what is left of them."""
    total = Counter[Row]()
    for file in sorted(path.glob("*.parquet")):
        _add(total, pq.read_table(file).drop_columns(["_epoch"]).to_pydict().values())
    return total


def finished(process: Process) -> dict[str, list[list[Any]]]:
    """What a process that was left alone says the views hold."""
    while line := process.line():
        if line.startswith("held"):
            assert process.wait() == 0, process.errors()
            held: dict[str, list[list[Any]]] = json.loads(line.removeprefix("held"))
            return held
    process.kill()
    raise AssertionError(f"it did not finish:\n{process.errors()}")
