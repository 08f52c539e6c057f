"""The second local copy of the lineage."""

from __future__ import annotations

from pathlib import Path

from holdfast.coordinator.lineage import GENESIS, Lineage
from holdfast.log.begun_epochs import Begun, read_begun


def lineage(epoch: int, seed: int = 0) -> Lineage:
    return Lineage(epoch, GENESIS, {"s": {"first": epoch}}, clock=epoch, seed=seed)


def test_what_was_begun_is_read_back_without_what_was_abandoned(tmp_path: Path) -> None:
    begun = Begun(tmp_path / "begun.jsonl", [lineage(3)])
    begun.add(lineage(4))
    begun.abandon(lineage(4))
    begun.add(lineage(4, seed=1))
    begun.close()
    assert read_begun(tmp_path / "begun.jsonl") == [lineage(3), lineage(4, seed=1)]


def test_answers_that_come_later_count(tmp_path: Path) -> None:
    begun = Begun(tmp_path / "begun.jsonl", [])
    begun.add(lineage(0))
    begun.add(lineage(0).answered({"op": {"q": "1"}}))
    begun.close()
    assert read_begun(tmp_path / "begun.jsonl")[0].answers == {"op": {"q": "1"}}


def test_a_damaged_or_torn_line_takes_only_itself_away(tmp_path: Path) -> None:
    path = tmp_path / "begun.jsonl"
    Begun(path, [lineage(0), lineage(1), lineage(2)]).close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b'"epoch":1', b'"epoch":7') + lines[2] + lines[2][:30])
    assert [each.epoch for each in read_begun(path)] == [0, 2]
    assert read_begun(tmp_path / "nothing") == []


def test_it_does_not_grow_with_epochs_that_locations_have(tmp_path: Path) -> None:
    path = tmp_path / "begun.jsonl"
    begun = Begun(path, [])
    sizes = []
    for epoch in range(3000):
        begun.add(lineage(epoch))
        if begun.grown(needed=2):
            begun.shorten([lineage(epoch)])
        sizes.append(path.stat().st_size)
    begun.close()
    assert max(sizes) < 300 * 250
    assert read_begun(path)[-1].epoch == 2999
