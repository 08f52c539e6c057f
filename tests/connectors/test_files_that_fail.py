"""Source files that cannot be read now: an error of the file system says nothing about a file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.connectors.file_identity import Taken
from holdfast.errors import BadFile, DeclarationError
from holdfast.testing import Fault, Plan, faults
from holdfast.testing.faulty.plan import FOREVER, SHORT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for number in range(3):
        pq.write_table(pa.table({"n": list(range(5000))}), tmp_path / f"{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", ["open", "read", "stat", "list"])
def test_a_file_that_cannot_be_read_now_is_not_skipped(place: Path, kind: str) -> None:
    source = hf.files(place, schema="n long", on_bad_file="skip")
    with faults(Plan((Fault(kind, 1, "EIO", FOREVER),)), under=[place]), pytest.raises(BadFile) as raised:
        source.poll()
    assert raised.value.fields["errno"]
    offer = source.poll()
    assert offer is not None and "skipped" not in offer
    assert len(source.parts(offer)) == 3


def test_a_file_that_fails_while_an_epoch_reads_it_is_not_skipped(place: Path) -> None:
    source = hf.files(place, schema="n long", on_bad_file="skip")
    offer = source.poll()
    assert offer is not None
    part = source.parts(offer)[0]
    with faults(Plan((Fault("open", 1, "EMFILE", FOREVER),)), under=[place]), pytest.raises(BadFile) as raised:
        list(part.read(pa.schema([("n", pa.int64())])))
    assert not source.reject(offer, raised.value)
    assert source.poll() == offer


def test_short_reads_do_not_change_what_identifies_a_file(place: Path) -> None:
    path = str(place / "0.parquet")
    for identity in ("path", "content"):
        taken = Taken(identity)
        mark = taken.mark(path)
        with faults(Plan((Fault("read", 1, SHORT, FOREVER),)), under=[place]):
            assert taken.mark(path) == mark


def test_a_place_that_cannot_be_looked_at_now_is_not_said_to_be_missing(place: Path) -> None:
    with faults(Plan((Fault("stat", 1, "EIO", FOREVER),)), under=[place]), pytest.raises(DeclarationError) as raised:
        hf.files(place, schema="n long")
    assert "does not exist" not in str(raised.value) and "Input/output error" in str(raised.value)


@pytest.mark.parametrize("damage", ["no gzip", "truncated", "a wrong sum"])
def test_a_file_that_does_not_unpack_is_skipped_as_one_that_does_not_read(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(20_000)))
    broken = {"no gzip": b"not a gzip", "truncated": packed[:200], "a wrong sum": packed[:-8] + bytes(8)}
    (tmp_path / "a.json.gz").write_bytes(broken[damage])
    (tmp_path / "b.json").write_text('{"n": 1}\n')
    with pytest.raises(BadFile, match=r"does not unpack|cannot be read"):
        hf.files(tmp_path, format="json", schema="n long").poll()
    offer = hf.files(tmp_path, format="json", schema="n long", on_bad_file="skip").poll()
    assert offer is not None and [Path(row[0]).name for row in offer["files"]] == ["b.json"]


def test_what_a_feed_and_replicas_do_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"a feed of changes \(op=, envelope=\) has no recursive, keep"):
        hf.files(tmp_path, format="json", schema="n long", op="op", recursive=False, keep="rows")
    with pytest.raises(DeclarationError, match="replicas=True has no partitioned_by"):
        hf.files([tmp_path, tmp_path / "b"], schema="n long", replicas=True, partitioned_by="day")
