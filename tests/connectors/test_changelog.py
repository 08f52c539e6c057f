"""A changelog and what can happen to its files: errors that prove nothing, power cuts, consumers that delete, two views
or two drivers in one directory, storage that is away for long."""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connectors import changelog, changelog_compaction, changelog_files, changelog_verification
from holdfast.connectors.changelog import Changelog, committed, delivered
from holdfast.connectors.changelog_files import DataFile, data_files, listed
from holdfast.connectors.changelog_progress import CHUNK
from holdfast.connectors.sink import LostEpochs
from holdfast.errors import DeclarationError, Fenced, SinkError
from holdfast.plan.nodes import Field
from logged import logged

changelog_module = sys.modules["holdfast.connectors.changelog"]  # the package has a function of that name
FIELDS = (Field("user", "string"), Field("total", "double"))


def change(*rows: tuple[str, float, int]) -> pa.Table:
    kinds = {"user": pa.string(), "total": pa.float64(), "_diff": pa.int64()}
    return pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in rows], schema=pa.schema(kinds))


def opened(path: Path, view: str = "top") -> Changelog:
    sink = changelog(path)
    sink.open(view, FIELDS)
    return sink


def given(path: Path, epochs: int) -> Changelog:
    """A changelog with these epochs, each with a row."""
    sink = opened(path)
    for epoch in range(epochs):
        sink.commit(epoch, change(("ada", float(epoch), 1)), b"lineage of %d\n" % epoch)
    return sink


def whole(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


# -- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_a_changelog_that_cannot_be_read_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, suffix: str
) -> None:
    given(tmp_path, 5)
    before = whole(tmp_path)
    failing(monkeypatch, suffix, number)
    with pytest.raises(SinkError, match=rf"(?i)view 'top': cannot read .*{os.strerror(number)}") as caught:
        changelog(tmp_path).open("top", FIELDS)
    assert caught.value.fields["path"] == str(tmp_path)
    monkeypatch.undo()
    assert whole(tmp_path) == before
    assert changelog(tmp_path).open("top", FIELDS) == 4


def failing(monkeypatch: pytest.MonkeyPatch, suffix: str, number: int) -> None:
    """Have files of a kind fail to open, whoever opens them in whatever way."""

    def refuse(path: Any) -> None:
        if isinstance(path, str | os.PathLike) and str(path).endswith(suffix):
            raise OSError(number, os.strerror(number), str(path))

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any, *arguments: Any, **named: Any) -> Any:
            refuse(path)
            return function(path, *arguments, **named)

        return checked

    for module, name in ((builtins, "open"), (io, "open"), (pq, "read_schema"), (pq, "ParquetFile")):
        monkeypatch.setattr(module, name, before(getattr(module, name)))


@pytest.mark.parametrize("tear", ["emptied", "cut", "zeroed"])
def test_a_file_torn_in_the_middle_is_found_and_restored(tmp_path: Path, tear: str) -> None:
    given(tmp_path, 5)
    torn(tmp_path / "epoch-000000000002.parquet", tear)
    sink = changelog(tmp_path)
    assert sink.open("top", FIELDS) == 4, "the epoch was delivered, and is not delivered again as another"
    assert sink.lost() == (LostEpochs(2, 2, 0, str(tmp_path / "epoch-000000000002.parquet")),)
    restored = change(("ada", 2.0, 1)).append_column("_epoch", pa.array([2]))
    sink.restore(sink.lost()[0], restored, b"lineage of 2\n")
    assert sink.lost() == ()
    assert pq.read_table(tmp_path).column("total").to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(os.listdir(tmp_path / "_damaged")) == 1
    again = changelog(tmp_path)
    assert (again.open("top", FIELDS), again.lost()) == (4, ())


@pytest.mark.parametrize("tear", ["emptied", "cut", "zeroed"])
def test_a_torn_tail_is_delivered_again_and_kept_aside(tmp_path: Path, tear: str) -> None:
    given(tmp_path, 3)
    torn(tmp_path / "epoch-000000000002.parquet", tear)
    (tmp_path / "_progress" / "000000000002.json").write_bytes(b"")
    sink = changelog(tmp_path)
    assert sink.open("top", FIELDS) == 1
    sink.commit(2, change(("ada", 2.0, 1)), b"lineage of 2\n")
    assert pq.read_table(tmp_path).column("total").to_pylist() == [0.0, 1.0, 2.0]
    assert len(os.listdir(tmp_path / "_damaged")) == 2


# -- files that are not among the last --------------------------------------------------------------------------------


def aged(path: Path, epochs: int) -> None:
    """As if an hour had passed between any two epochs."""
    for epoch in range(epochs):
        os.utime(path / f"epoch-{epoch:012d}.parquet", (3600 * epoch, 3600 * epoch))


def file(path: Path, epoch: int) -> Path:
    return path / f"epoch-{epoch:012d}.parquet"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of data files that are read whole, as they are."""
    found: list[str] = []
    inner = changelog_files.is_torn

    def noted(path: Path, whole: bool) -> bool:
        if whole:
            found.append(path.name)
        return inner(path, whole)

    for module in (changelog_module, changelog_verification):
        monkeypatch.setattr(module, "is_torn", noted)
    return found


def test_zeroed_pages_of_a_file_of_long_ago_are_found_at_opening(tmp_path: Path) -> None:
    given(tmp_path, 6)
    torn(file(tmp_path, 1), "zeroed")
    aged(tmp_path, 6)
    sink = opened(tmp_path)
    assert sink.lost() == (LostEpochs(1, 1, 0, str(file(tmp_path, 1))),)
    sink.restore(sink.lost()[0], change(("ada", 1.0, 1)).append_column("_epoch", pa.array([1])), b"lineage of 1\n")
    assert pq.read_table(tmp_path).column("total").to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_file_that_was_verified_is_not_read_at_opening(tmp_path: Path, reads: list[str]) -> None:
    sink = given(tmp_path, 6)
    aged(tmp_path, 6)
    opened(tmp_path)
    assert len(reads) == 6
    sink.maintain()
    assert sink.lost() == ()
    reads.clear()
    opened(tmp_path)
    assert reads == [file(tmp_path, 5).name], "the last one may not be on disk yet"
    sink.maintain()
    assert reads == [file(tmp_path, 5).name], "and nothing is left to verify"


def test_opening_reads_no_more_than_it_may_and_the_rest_is_verified_beside_epochs(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(tmp_path, 8)
    torn(file(tmp_path, 3), "zeroed")
    aged(tmp_path, 8)
    size = file(tmp_path, 5).stat().st_size
    monkeypatch.setattr(changelog_verification, "AT_OPENING", 2 * size + size // 2)
    monkeypatch.setattr(changelog_verification, "IN_A_PASS", 2 * size - size // 2)
    sink = opened(tmp_path)
    assert sorted(reads) == [file(tmp_path, epoch).name for epoch in (5, 6, 7)], "the newest first"
    assert sink.lost() == ()
    reads.clear()
    sink.maintain()
    assert reads == [file(tmp_path, 0).name, file(tmp_path, 1).name]
    sink.maintain()
    assert sink.lost() == (LostEpochs(3, 3, 0, str(file(tmp_path, 3))),)
    sink.maintain()
    assert len(sink.lost()) == 1
    sink.restore(sink.lost()[0], change(("ada", 3.0, 1)).append_column("_epoch", pa.array([3])), b"lineage of 3\n")
    reads.clear()
    sink.maintain()
    assert reads == [], "what was written just now is among the last again"
    aged(tmp_path, 8)
    for _ in range(3):
        sink.maintain()
    assert reads == [file(tmp_path, epoch).name for epoch in range(3, 7)] and sink.lost() == ()


def test_what_was_restored_is_verified_again(tmp_path: Path, reads: list[str]) -> None:
    sink = given(tmp_path, 6)
    aged(tmp_path, 6)
    sink.maintain()
    torn(file(tmp_path, 2), "zeroed")
    again = opened(tmp_path)
    again.restore(again.lost()[0], change(("ada", 2.0, 1)).append_column("_epoch", pa.array([2])), b"lineage of 2\n")
    reads.clear()
    opened(tmp_path)
    assert sorted(reads) == [file(tmp_path, epoch).name for epoch in range(2, 6)]


@pytest.mark.parametrize("record", [b"", b"{", b'{"upto": 4}', b'{"sum": "0", "upto": 4}', b"[]", b"4"])
def test_a_torn_record_of_what_was_verified_says_nothing(tmp_path: Path, reads: list[str], record: bytes) -> None:
    sink = given(tmp_path, 4)
    aged(tmp_path, 4)
    sink.maintain()
    (tmp_path / "_progress" / "verified.json").write_bytes(record)
    reads.clear()
    opened(tmp_path)
    assert len(reads) == 4


def test_files_that_a_consumer_removes_meanwhile_are_no_damage(tmp_path: Path) -> None:
    sink = given(tmp_path, 6)
    aged(tmp_path, 6)
    listing = listed(tmp_path)
    for epoch in (0, 1, 3):
        file(tmp_path, epoch).unlink()
    assert sink._verification.go_on(listing) is None
    assert sink._verification.upto == 4


def torn(path: Path, how: str) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    parts = {
        "emptied": b"",
        "cut": data[: len(data) // 2],
        "zeroed": b"PAR1" + bytes(len(data) - length - 4) + data[-length:],
    }
    path.write_bytes(parts[how])


# -- commits that break off -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["link", "rename"])
def test_a_commit_that_breaks_off_is_whole_or_not_there_after_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    sink = given(tmp_path, 1)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, broken)
    with pytest.raises(KeyboardInterrupt):
        sink.commit(1, change(("ada", 1.0, 1)), b"lineage of 1\n")
    monkeypatch.undo()
    again = changelog(tmp_path)
    has = again.open("top", FIELDS)
    assert has == (0 if step == "link" else 1)
    assert pq.read_table(tmp_path).num_rows == 1 + has, "an epoch that was delivered is there to be seen"


def test_a_commit_that_raised_after_it_was_made_says_so_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = given(tmp_path, 1)
    link = os.link

    def late(*arguments: Any) -> None:
        link(*arguments)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(SinkError, match="Input/output error"):
        sink.commit(1, change(("ada", 1.0, 1)), b"lineage of 1\n")
    monkeypatch.undo()
    assert sink.taken() == 1
    assert pq.read_table(tmp_path).num_rows == 2


def test_another_drivers_unfinished_commit_is_not_taken_away(tmp_path: Path) -> None:
    given(tmp_path, 1)
    hidden = tmp_path / ".epoch-000000000001.parquet.0123456789abcdef.tmp"
    hidden.write_bytes(b"PAR1")
    opened(tmp_path)
    assert hidden.exists(), "it is young: its driver may be about to commit it"
    os.utime(hidden, (0, 0))
    opened(tmp_path)
    assert not hidden.exists()


def test_hidden_names_differ_between_processes_with_the_same_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    write = pq.write_table

    def watched(table: pa.Table, where: Any, **options: Any) -> None:
        seen.append(os.path.basename(where))
        write(table, where, **options)

    monkeypatch.setattr(pq, "write_table", watched)
    for name in ("one", "two"):  # two containers: both are process 1
        given(tmp_path / name, 1)
    assert len(set(seen)) == 2


# -- two views, two drivers -------------------------------------------------------------------------------------------


def test_two_views_that_opened_an_empty_directory_do_not_share_it(tmp_path: Path) -> None:
    top, bottom = opened(tmp_path, "top"), opened(tmp_path, "bottom")
    top.commit(0, change(("ada", 1.0, 1)), b"lineage of 0\n")
    with pytest.raises(SinkError, match="holds the changelog of view 'top'"):
        bottom.commit(0, change(("bob", 9.0, 1)), b"lineage of 0\n")
    with pytest.raises(SinkError, match="holds the changelog of view 'top'"):
        opened(tmp_path, "bottom")
    assert pq.read_table(tmp_path).column("user").to_pylist() == ["ada"]


def test_a_view_without_rows_owns_its_directory_too(tmp_path: Path) -> None:
    opened(tmp_path, "top").commit(0, change(), b"lineage of 0\n")
    with pytest.raises(SinkError, match="holds the changelog of view 'top'"):
        opened(tmp_path, "bottom")


@pytest.mark.parametrize("rows", [(), (("ada", 1.0, 1),)])
def test_of_two_drivers_one_gets_an_epoch_also_one_without_rows(tmp_path: Path, rows: tuple[Any, ...]) -> None:
    given(tmp_path, 1)
    first, second = opened(tmp_path), opened(tmp_path)
    first.commit(1, change(), b"first's lineage of 1\n")
    with pytest.raises(Fenced):
        second.commit(1, change(*rows), b"second's lineage of 1\n")
    assert committed(tmp_path) == [0]


def test_a_driver_that_slept_past_what_was_tidied_is_refused(tmp_path: Path) -> None:
    stale = given(tmp_path, 1)
    first = opened(tmp_path)
    for epoch in range(1, 5):
        first.release_lineage(epoch)
        first.commit(epoch, change(), b"first's lineage of %d\n" % epoch)
    assert len(os.listdir(tmp_path / "_progress")) == 1
    with pytest.raises(Fenced):
        stale.commit(1, change(("eve", 1.0, 1)), b"stale lineage of 1\n")
    assert committed(tmp_path) == [0]


# -- consumers --------------------------------------------------------------------------------------------------------


def test_a_consumer_that_deletes_what_it_has_read_gets_nothing_twice(tmp_path: Path) -> None:
    given(tmp_path, 3)
    for epoch in committed(tmp_path):
        (tmp_path / f"epoch-{epoch:012d}.parquet").unlink()
    sink = changelog(tmp_path)
    assert sink.open("top", FIELDS) == 2
    assert sink.lineage().endswith(b"lineage of 2\n")
    sink.commit(3, change(("bob", 1.0, 1)), b"lineage of 3\n")
    assert committed(tmp_path) == [3]


def test_a_changelog_of_the_format_before_goes_on(tmp_path: Path) -> None:
    sink = given(tmp_path, 3)
    for name in os.listdir(tmp_path / "_progress"):
        (tmp_path / "_progress" / name).unlink()
    (tmp_path / "_progress").rmdir()
    sink = changelog(tmp_path)
    assert sink.open("top", FIELDS) == 2
    assert sink.lineage().endswith(b"lineage of 2\n")
    sink.commit(3, change(("bob", 1.0, 1)), b"lineage of 3\n")
    assert committed(tmp_path) == [0, 1, 2, 3]


# -- growth -----------------------------------------------------------------------------------------------------------


def test_quiet_epochs_leave_nothing_behind(tmp_path: Path) -> None:
    sink = given(tmp_path, 1)
    for epoch in range(1, 200):
        sink.release_lineage(epoch - 10)
        sink.commit(epoch, change(), b"lineage of %d\n" % epoch)
    assert committed(tmp_path) == [0]
    assert len(os.listdir(tmp_path / "_progress")) <= 11
    assert delivered(tmp_path) == 199


def test_lineage_is_kept_in_few_files_while_it_is_durable_nowhere_else(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    count = 3 * CHUNK + 10
    for epoch in range(count):
        sink.commit(epoch, change(), b"lineage of %d\n" % epoch)
    assert len(os.listdir(tmp_path / "_progress")) <= CHUNK + 5
    again = changelog(tmp_path)
    assert again.open("top", FIELDS) == count - 1
    assert again.lineage() == b"".join(b"lineage of %d\n" % epoch for epoch in range(count))
    assert sum(path.stat().st_size for path in (tmp_path / "_progress").iterdir()) < 400 * count
    again.release_lineage(count - 1)
    again.commit(count, change(), b"lineage of %d\n" % count)
    assert len(os.listdir(tmp_path / "_progress")) == 1


# -- compaction -------------------------------------------------------------------------------------------------------


def compacting(path: Path, epochs: int, factor: int = 4, first: int = 0) -> Changelog:
    """A changelog that puts files together, given these epochs."""
    sink = changelog(path, compact=factor)
    sink.open("top", FIELDS)
    for epoch in range(first, epochs):
        sink.release_lineage(epoch)
        sink.commit(epoch, change(("ada", float(epoch), 1)), b"lineage of %d\n" % epoch)
    return sink


def totals(path: Path) -> list[float]:
    tables = [pq.read_table(file) for file in data_files(path)]
    return pa.concat_tables(tables).sort_by("_epoch").column("total").to_pylist()


def test_old_files_are_put_together_and_no_row_is_lost(tmp_path: Path) -> None:
    compacting(tmp_path, 100)
    files = listed(tmp_path)
    assert len(files) <= 4 + 3 * 4, "a few per level, and the newest"
    assert files[0].last - files[0].first + 1 == 64
    assert [(each.first, each.last) for each in files[-4:]] == [(epoch, epoch) for epoch in range(96, 100)]
    assert totals(tmp_path) == [float(epoch) for epoch in range(100)]
    assert pq.read_table(tmp_path).sort_by("_epoch").column("_epoch").to_pylist() == list(range(100))
    assert changelog(tmp_path).open("top", FIELDS) == 99


def test_where_a_range_is_too_large_the_smaller_ones_in_it_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog_compaction, "LARGEST", 4)
    files: list[DataFile] = []
    for epoch in range(40):
        files.append(DataFile(epoch, epoch))
        for target, parts in changelog_compaction.plan(files, 4, epoch, lambda each: each.last - each.first + 1):
            files = sorted([*(each for each in files if each not in parts), target])
    assert files == [DataFile(first, first + 3) for first in range(0, 40, 4)]


def test_a_compaction_that_breaks_off_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 30):
        path = tmp_path / str(step)
        compacting(path, 7)
        left = step

        def broken(function: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
                return function(*arguments, **named)

            return counted

        for name in ("link", "unlink", "fsync", "rename"):
            monkeypatch.setattr(os, name, broken(getattr(os, name)))
        try:
            compacting(path, 8, first=7)
        except KeyboardInterrupt:
            pass
        finally:
            monkeypatch.undo()
        assert totals(path) == [float(epoch) for epoch in range(len(totals(path)))], f"a consumer, after step {step}"
        again = changelog(path)
        has = again.open("top", FIELDS)
        assert has in (6, 7) and pq.read_table(path).num_rows == has + 1, f"opened again, after step {step}"


def test_a_compaction_that_fails_does_not_refuse_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compacting(tmp_path, 7)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with logged("files were not put together, and will be: .*No space left"):
        compacting(tmp_path, 8, first=7)
    monkeypatch.undo()
    assert delivered(tmp_path) == 7 and len(listed(tmp_path)) == 8
    compacting(tmp_path, 12, first=8)
    assert listed(tmp_path)[0].last == 3
    assert totals(tmp_path) == [float(epoch) for epoch in range(12)]


def test_lineage_that_is_durable_nowhere_else_is_not_put_together(tmp_path: Path) -> None:
    sink = changelog(tmp_path, compact=2)
    sink.open("top", FIELDS)
    for epoch in range(9):
        sink.commit(epoch, change(("ada", float(epoch), 1)), b"lineage of %d\n" % epoch)
    assert len(listed(tmp_path)) == 9


@pytest.mark.parametrize("wrong", [0, 1, "4", True, 2.0])
def test_a_wrong_number_of_files_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(DeclarationError, match="compact must be a number of files from 2 on"):
        changelog(tmp_path, compact=wrong)
