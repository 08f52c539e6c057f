"""A history that grows while it is read: only what was appended is read, and whatever else happens is noticed."""

from __future__ import annotations

from pathlib import Path

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.log.growing_history import GrowingHistory
from holdfast.log.stash import LineageLog, read_lineage


class Written:
    """A stash that a flow writes, and how often it was read as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = LineageLog(path, [])
        self.reads = 0

    def epoch(self, seed: int = 0) -> None:
        history = self.log.history
        parent = history[-1].digest if history else GENESIS
        self.log.append(Lineage(history.last + 1, parent, {}, 1, seed, 1), history.append)

    def growing(self) -> GrowingHistory:
        def read() -> History:
            self.reads += 1
            return History(read_lineage(self.path))

        return GrowingHistory(self.path, read)


def test_what_was_appended_is_added_and_nothing_else_is_read(tmp_path: Path) -> None:
    written = Written(tmp_path / "log.jsonl")
    growing = written.growing()
    assert growing.read()[0].last == -1
    for epoch in range(20):
        written.epoch()
        if epoch % 3 == 0:
            history, goes_on = growing.read()
            assert goes_on and list(history) == list(written.log.history)
    assert growing.read()[1] and written.reads == 1


def test_a_line_that_is_not_all_there_is_no_epoch_yet(tmp_path: Path) -> None:
    written = Written(tmp_path / "log.jsonl")
    written.epoch()
    growing = written.growing()
    assert growing.read()[0].last == 0
    line = (Lineage(1, written.log.history[-1].digest, {}, 1, 5, 1).to_json() + "\n").encode()
    with open(written.path, "ab") as file:
        file.write(line[:30])
        file.flush()
        assert growing.read()[0].last == 0
        file.write(line[30:])
    assert growing.read()[0].last == 1 and written.reads == 1


def test_a_stash_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    written = Written(tmp_path / "log.jsonl")
    for _ in range(5):
        written.epoch()
    growing = written.growing()
    growing.read()
    written.log.close()
    written.log = LineageLog(written.path, written.log.history[:3])
    written.epoch(seed=9)
    history, goes_on = growing.read()
    assert not goes_on and list(history) == list(written.log.history) and written.reads == 2


def test_epochs_that_do_not_follow_make_it_read_all(tmp_path: Path) -> None:
    written = Written(tmp_path / "log.jsonl")
    written.epoch()
    growing = written.growing()
    growing.read()
    with open(written.path, "ab") as file:
        file.write((Lineage(1, "f" * 16, {}, 1, 5, 1).to_json() + "\n").encode())
    try:
        growing.read()
    except Exception as error:
        assert "does not follow" in str(error)
    assert written.reads == 2
