"""Status and rows, from any of the places of a log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli import app
from holdfast.errors import EpochUnavailable, LogDamaged, LogForeign
from holdfast.inspect.describe import describe
from holdfast.inspect.open_log import read
from holdfast.log.working_directory import LogDirectory

from .conftest import EPOCHS, Shop, flip, layer, segment


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_every_place_gives_the_same_rows_as_of_every_epoch(made: Shop) -> None:
    for view in ("orders", "spend", "top"):
        for at in (None, *range(EPOCHS)):
            rows = read(made.work, view, at)
            assert rows.num_rows and read(made.a, view, at).equals(rows)
            assert read(made.b, view, at).equals(rows)


def test_a_location_is_read_without_its_working_directory_by_the_command(made: Shop) -> None:
    code, out, _ = invoke("read", made.b, "top", "--format", "json")
    assert code == 0 and [json.loads(line) for line in out.splitlines()] == read(made.work, "top").to_pylist()


def test_a_remote_address_without_a_log_is_told() -> None:
    fsspec.filesystem("memory").pipe("/nothing/here", b"")
    assert "there is no holdfast.json" in invoke("status", "memory://nothing")[2]


def test_a_remote_copy_gives_the_same_rows_and_can_be_verified(made: Shop) -> None:
    files = fsspec.filesystem("memory")
    for path in made.a.rglob("*"):
        if path.is_file():
            files.pipe(f"/shop/{path.relative_to(made.a)}", path.read_bytes())
    assert read("memory://shop", "spend").equals(read(made.work, "spend"))
    found = json.loads(invoke("status", made.work, "memory://shop", "--json")[1])
    assert found["safe"] == EPOCHS - 1 and found["levels"][1]["level"] == "memory://shop"
    assert invoke("verify", made.work, "memory://shop")[0] == 0


def test_a_damaged_copy_is_passed_over_for_an_intact_one(made: Shop, shop: Shop) -> None:
    rows = read(made.work, "spend")
    flip(layer(shop.a, 1))
    flip(layer(shop.b, 2))
    with pytest.raises(LogDamaged, match="checksum"):
        read(shop.a, "spend")
    assert read(shop.a, "spend", others=[shop.b]).equals(rows), "each has what the other lacks"
    code, out, _ = invoke("read", shop.a, "spend", "--from", shop.b, "--format", "json")
    assert code == 0 and len(out.splitlines()) == rows.num_rows


def test_what_a_working_directory_lost_is_read_from_a_location(made: Shop, shop: Shop) -> None:
    rows = read(made.work, "spend")
    flip(layer(shop.work, 1))
    with pytest.raises(LogDamaged):
        read(shop.work, "spend")
    assert read(shop.work, "spend", others=[shop.b]).equals(rows)
    shutil.rmtree(shop.work / "traces")
    assert read(shop.work, "spend", others=[shop.b]).equals(rows)


def test_damaged_lineage_is_made_up_for_by_another_place(made: Shop, shop: Shop) -> None:
    flip(shop.work / "lineage" / "log.jsonl")
    with pytest.raises(LogDamaged, match=r"log\.jsonl|the lineage of epoch"):
        read(shop.work, "spend")
    assert read(shop.work, "spend", others=[shop.a]).equals(read(made.work, "spend"))


def test_a_location_that_is_behind_is_read_as_of_what_it_has(made: Shop, shop: Shop) -> None:
    for path in (shop.b / "layers").rglob(f"{EPOCHS - 1:012d}-*"):
        path.unlink()
    # Its lineage is ahead of its layers, as in the middle of a round.
    assert read(shop.b, "spend").equals(read(made.work, "spend", EPOCHS - 2))
    with pytest.raises(EpochUnavailable, match=r"cannot be read from .*/b: there are the layers of epochs 0 to 2"):
        read(shop.b, "spend", EPOCHS - 1)
    assert read(shop.b, "spend", others=[shop.a]).equals(read(made.work, "spend"))


def test_status_says_how_far_each_level_is_and_what_is_at_risk(shop: Shop) -> None:
    for epoch in (EPOCHS - 2, EPOCHS - 1):
        for path in (shop.b / "layers").rglob(f"{epoch:012d}-*"):
            path.unlink()
        segment(shop.b, epoch).unlink()
    found = describe(shop.places, min_replicas=2)
    assert [(level["level"], level["epoch"], level["behind"]) for level in found["levels"]] == [
        ("local", 3, 0),
        (str(shop.a), 3, 0),
        (str(shop.b), 1, 2),
    ]
    assert found["safe"] == 1 and found["at_risk"]["epochs"] == 2 and found["at_risk"]["bytes"] > 0
    assert found["collections"]["top"]["levels"] == {"local": 3, str(shop.a): 3, str(shop.b): 1}
    assert found["claim"]["term"] == 1 and found["claim"]["pid"] > 0
    code, out, _ = invoke("status", *shop.places, "--min-replicas", 2)
    assert code == 0 and "2 epochs" in out and "in term 1, by process" in out
    assert describe(shop.places)["at_risk"] == {"epochs": 0, "bytes": 0}, "one location is enough"


def test_status_of_one_place_says_what_it_knows(shop: Shop) -> None:
    local, replica = describe(shop.work), describe(shop.b)
    assert local["epoch"] == replica["epoch"] == EPOCHS - 1
    assert local["safe"] is None and local["at_risk"] is None and local["claim"] is None
    assert replica["safe"] == EPOCHS - 1 and replica["running"] is None
    assert replica["collections"]["spend"]["earliest"] == 0 and replica["bytes"] > 0
    assert "not known; give the log locations" in invoke("status", shop.work)[1]


def test_status_tells_who_runs_the_flow(shop: Shop) -> None:
    held = LogDirectory.open(shop.work, "shop", exclusive=True)
    try:
        assert describe(shop.places)["running"] is not None
    finally:
        held.close()


def test_a_directory_that_is_both_is_two_levels(shop: Shop) -> None:
    shutil.copytree(shop.work, shop.a, dirs_exist_ok=True)
    found = describe(shop.a)
    assert [level["level"] for level in found["levels"]] == ["local", str(shop.a)]
    assert found["safe"] == EPOCHS - 1 and found["at_risk"]["epochs"] == 0
    assert invoke("verify", shop.a)[0] == 0


def test_collections_that_do_not_make_sense_are_taken_from_another_place(made: Shop, shop: Shop) -> None:
    path = shop.work / "collections.json"
    path.write_text(path.read_text().replace('"fields"', '"fielfs"'))
    with pytest.raises(LogDamaged, match="does not describe"):
        read(shop.work, "spend")
    assert read(shop.work, "spend", others=[shop.a]).equals(read(made.work, "spend"))


def test_mistakes_are_told(shop: Shop) -> None:
    assert invoke("status")[0] == 2
    code, _, problem = invoke("status", *shop.places, "--min-replicas", 3)
    assert code == 2 and "there are 2 log locations" in problem
    (shop.b / "holdfast.json").write_text(json.dumps({"format": 2, "flow": "bakery"}))
    with pytest.raises(LogForeign, match="bakery"):
        describe(shop.places)


def test_looking_at_a_location_needs_no_spark(made: Shop) -> None:
    code = (
        "import sys; from holdfast.cli import app\n"
        f"for call in (['read', {str(made.b)!r}, 'top'], ['status', {str(made.b)!r}], ['verify', {str(made.b)!r}]):\n"
        "    try: app(call)\n"
        "    except SystemExit as end: assert not end.code\n"
        "assert 'pyspark' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parent.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120, env=environment)
