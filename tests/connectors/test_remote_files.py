"""Files on other filesystems: on an S3-compatible server that runs here, and in fsspec's memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from pyarrow import fs as arrow_fs
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.connectors import Files, files
from holdfast.connectors.fetched_files import FetchedFiles
from holdfast.connectors.file_offer import Offered, columns_of, files_of
from holdfast.errors import BadFile, DeclarationError, FileMoved
from s3_server import s3_server

SCHEMA = "id long, v string"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server("lake") as query:
        yield query


class Bucket:
    """A directory of the bucket."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.under = f"s3://lake/{secrets.token_hex(4)}"
        self._files, self._root = arrow_fs.FileSystem.from_uri(f"{self.under}?{query}")

    def address(self, path: str) -> str:
        return f"{self.under}/{path}?{self.query}"

    def put(self, path: str, data: bytes | str) -> None:
        with self._files.open_output_stream(f"{self._root}/{path}", compression=None) as stream:
            stream.write(data if isinstance(data, bytes) else data.encode())

    def remove(self, path: str) -> None:
        self._files.delete_file(f"{self._root}/{path}")


@pytest.fixture
def bucket(s3: str) -> Bucket:
    return Bucket(s3)


def _parquet(**columns: list[Any]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def _lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _names(source: Files) -> list[str]:
    offer = source.poll()
    return [] if offer is None else columns_of(offer).names


def _taken(source: Files) -> list[str]:
    names = _names(source)
    offer = source.poll()
    if offer is not None:
        source.advance(json.loads(json.dumps(offer)))
    return names


def test_parquet_json_and_csv_are_read_from_an_object_store(
    spark: SparkSession, tmp_path: Path, bucket: Bucket
) -> None:
    bucket.put("parquet/1.parquet", _parquet(id=[1, 2], v=["a", "b"]))
    bucket.put("json/day=2024-05-01/1.json.gz", gzip.compress(_lines({"id": 3, "v": "c"}, {"id": "x"}).encode()))
    bucket.put("csv/a b.csv", "id,v\n4,d\n")

    def keys() -> dict[str, str]:
        """Keys for tasks, in whose environment they are not. Without the setting, the client asks a host that is not
        there for a region, for many seconds."""
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        return {"access_key": "a-key-for-tests", "secret_key": "a-secret-for-tests"}

    def declared() -> hf.Flow:
        flow = hf.Flow("lake", log=tmp_path / "log", spark=spark, partitions=1)
        place = hf.location(bucket.address("parquet"), credentials=keys)
        flow.source("p", hf.files(place, schema=SCHEMA))
        flow.source(
            "j",
            hf.files(
                bucket.address("json/**/*.json.gz"), format="json", schema=f"{SCHEMA}, day date", partitioned_by="day",
                on_bad_rows="quarantine",
            ),
        )  # fmt: skip
        flow.source("c", hf.files(bucket.address("csv/"), format="csv", schema=SCHEMA, options={"header": "true"}))
        flow.view("bad", "SELECT record, file FROM j_quarantine")
        return flow.view(
            "v",
            "SELECT id, v, CAST(NULL AS date) AS day FROM p UNION ALL SELECT * FROM j UNION ALL SELECT *, NULL FROM c",
        )

    with declared() as flow:
        flow.step()
        rows = [(row.id, row.v, str(row.day)) for row in flow.read("v").orderBy("id").collect()]
        assert rows == [(1, "a", "None"), (2, "b", "None"), (3, "c", "2024-05-01"), (4, "d", "None")]
        path = f"{bucket.under}/json/day=2024-05-01/1.json.gz"
        assert [tuple(row) for row in flow.read("bad").collect()] == [('{"id": "x"}', path)]
    bucket.put("parquet/2.parquet", _parquet(id=[5], v=["e"]))
    bucket.put("csv/bad.csv", "id,v\none,f\n")
    with declared() as flow:
        with pytest.raises(BadFile, match=rf"'{bucket.under}/csv/bad\.csv', line 2: it does not read as csv"):
            flow.step()
        bucket.put("csv/bad.csv", "id,v\n601,f\n")  # as many bytes
        flow.step()
        assert [row.id for row in flow.read("v").orderBy("id").collect()] == [1, 2, 3, 4, 5, 601]
        # A view that comes later is filled from files of long ago.
        flow.view("all", "SELECT count(*) AS n FROM j JOIN p ON true JOIN c ON true")
        flow.step()
        assert [row.n for row in flow.read("all").collect()] == [1 * 3 * 2]


def test_copies_that_spark_read_are_gone_after_the_epoch(spark: SparkSession, tmp_path: Path, bucket: Bucket) -> None:
    bucket.put("in/1.json", _lines({"id": 1, "v": "a"}))
    with hf.Flow("copies", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        source = hf.files(bucket.address("in"), format="json", schema="infer", fetch_to=tmp_path / "fetched")
        flow.source("t", source).view("v", "SELECT v FROM t").step()
        assert [tuple(row) for row in flow.read("v").collect()] == [("a",)]
        assert [path for path in (tmp_path / "fetched").rglob("*") if path.is_file()] == []


def test_a_copy_of_a_file_that_was_replaced_within_a_second_is_fetched_again(
    spark: SparkSession, tmp_path: Path, bucket: Bucket
) -> None:
    """A bad file that is mended at once may have the size and time, in whole seconds, of the one that Spark read."""
    bucket.put("in/a.csv", "one")
    bucket.put("in/long.csv", "x" * 100_000)
    source = hf.files(bucket.address("in"), format="csv", schema="v string", identity="content")
    assert isinstance(source, Files)
    first = files_of(source.poll() or {})
    fetched = FetchedFiles("source", source._access, str(tmp_path))
    copies = [Path(each) for each in fetched.fetch(spark, first)]
    times = [copy.stat().st_ino for copy in copies]
    assert fetched.fetch(spark, first) == list(map(str, copies))
    assert [copy.stat().st_ino for copy in copies] == times, "what was fetched is kept"
    bucket.put("in/a.csv", "two")
    with pytest.raises(BadFile, match=r"in/a\.csv': it changed while it was fetched"):
        copies[0].unlink()
        fetched.fetch(spark, first)
    mended = Offered(first[0].file, xxhash.xxh3_128(b"two").digest())
    assert Path(fetched.fetch(spark, [mended])[0]).read_text() == "two"
    assert Path(fetched.fetch(spark, [Offered(mended.file, b"")])[0]).read_text() == "two"


def test_a_remote_file_that_is_replaced_changes_the_rows_that_differ(spark: SparkSession, tmp_path: Path) -> None:
    place, memory = f"memory://{secrets.token_hex(4)}/prices.json", fsspec.filesystem("memory")
    memory.pipe(place, _lines({"id": 1, "v": "a"}, {"id": 2, "v": "b"}).encode())
    with hf.Flow("replaced", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        flow.source("t", hf.replaced(place, format="json", schema=SCHEMA, every=0)).view("v", "SELECT * FROM t")
        flow.step()
        assert flow.step().idle
        memory.pipe(place, _lines({"id": 1, "v": "a"}, {"id": 2, "v": "c"}).encode())  # as long, and it has no time
        flow.step()
        assert sorted(map(tuple, flow.read("v").collect())) == [(1, "a"), (2, "c")]


def test_a_remote_directory_is_looked_through_as_a_local_one_is() -> None:
    place = f"memory://{secrets.token_hex(4)}"
    memory = fsspec.filesystem("memory")
    for name in ("in/1.json", "in/deep/2.json", "in/.hidden", "in/_tmp/3.json", "in/4.json.part", "in/5.csv"):
        memory.pipe(f"{place}/{name}", name.encode())
    source = files(f"{place}/in", format="json", schema=SCHEMA, on_missing="null")
    assert isinstance(source, Files)
    assert _taken(source) == ["1.json", "5.csv", "deep/2.json"]
    assert _names(source) == []
    for path, recursive, expected in (
        ("in/", False, ["1.json", "5.csv"]),
        ("in/*.json", True, ["1.json"]),
        ("in/**/*.json", True, ["1.json", "deep/2.json"]),
        ("in/?.csv", True, ["5.csv"]),
        ("in/deep/2.json", True, ["2.json"]),
    ):
        found = files(f"{place}/{path}", format="json", schema=SCHEMA, recursive=recursive, on_missing="null")
        assert isinstance(found, Files) and _names(found) == expected
    memory.mv(f"{place}/in/1.json", f"{place}/in/moved.json")
    with pytest.raises(FileMoved, match=r"/in/moved\.json': it was taken already, as '.*/in/1\.json'"):
        source.poll()


def test_files_of_two_filesystems_are_one_source(tmp_path: Path) -> None:
    place = f"memory://{secrets.token_hex(4)}"
    fsspec.filesystem("memory").pipe(f"{place}/in/1.json", b"{}")
    (tmp_path / "2.json").write_text("{}\n")
    source = files([f"{place}/in", tmp_path], format="json", schema=SCHEMA, on_missing="null")
    assert isinstance(source, Files)
    assert _taken(source) == [f"{place}/in/1.json", str(tmp_path / "2.json")]
    assert _names(source) == []


def test_content_says_which_file_it_is_wherever_it_is_moved(bucket: Bucket) -> None:
    bucket.put("in/1.parquet", _parquet(id=[1], v=["a"]))
    source = files(bucket.address("in"), schema=SCHEMA, identity="content")
    assert isinstance(source, Files)
    assert _taken(source) == ["1.parquet"]
    bucket.put("in/deep/1.parquet", _parquet(id=[1], v=["a"]))
    bucket.remove("in/1.parquet")
    bucket.put("in/2.parquet", _parquet(id=[2], v=["a"]))
    assert _names(source) == ["2.parquet"]


@pytest.mark.slow  # pyarrow's client tries for several seconds before it gives up
def test_a_filesystem_that_cannot_be_reached_is_no_bad_file(bucket: Bucket) -> None:
    with s3_server("brief") as query:
        brief = Bucket(query)
        brief.under = brief.under.replace("lake", "brief")
        brief._files, brief._root = arrow_fs.FileSystem.from_uri(f"{brief.under}?{query}")
        brief.put("in/1.parquet", _parquet(id=[1], v=["a"]))
        source = files(brief.address("in"), schema=SCHEMA, on_bad_file="skip")
        offer = source.poll()
        assert offer is not None
        [part] = pickle.loads(pickle.dumps(source.parts(offer)))
        schema = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
        assert [table.to_pydict() for table in part.read(schema)] == [{"c0": [1], "c1": ["a"]}]
        again = files(brief.address("in"), schema=SCHEMA, on_bad_file="skip")
    with pytest.raises(BadFile, match="cannot be read now") as caught:
        again.poll()
    assert caught.value.fields["errno"]
    with pytest.raises(BadFile, match="cannot be read now") as caught:
        next(part.read(schema))
    assert caught.value.fields["errno"]


def test_a_place_that_is_not_there_is_refused_at_the_call(bucket: Bucket) -> None:
    for address, message in (
        (f"s3://no-such-bucket/in?{bucket.query}", "there is no such bucket; create it, or correct the name"),
        ("memory://nowhere-at-all/in", "it does not exist; create the directory first"),
        ("s4://bucket/in", "no such kind of place is known; check the part before ://"),
    ):
        with pytest.raises(DeclarationError, match=message):
            files(address, schema=SCHEMA)


def test_credentials_are_in_no_offer_and_no_name(bucket: Bucket) -> None:
    bucket.put("in/1.parquet", _parquet(id=[1], v=["a"]))
    place = hf.location(
        bucket.address("in"), credentials=lambda: {"access_key": "K" * 9, "secret_key": "hush-hush-hush"}
    )
    source = files(place, schema=SCHEMA)
    offer = source.poll()
    assert offer is not None and columns_of(offer).under == f"{bucket.under}/in"
    assert "hush" not in json.dumps(offer) and bucket.query not in json.dumps(offer)
    secret = bucket.address("in").replace("s3://", "s3://" + "K" * 9 + ":hush-hush-hush@")
    offer = files(secret, schema=SCHEMA).poll()
    assert offer is not None and columns_of(offer).under == f"{bucket.under}/in"
