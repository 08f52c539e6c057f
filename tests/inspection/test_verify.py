"""Verifying and repairing a log: whatever is damaged is found, exactly, and made good from the other places.

Each damage is done to a copy of a real log. `verify` must find it and nothing else, change nothing, and with `repair`
leave a log that is whole. That such a log is the right one is asked of the flow itself: it opens, and has its rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.errors import LogBusy, LogError, LogForeign
from holdfast.inspect.findings import AuditReport, Kind
from holdfast.inspect.open_log import read
from holdfast.inspect.verify import verify
from holdfast.log.working_directory import LogDirectory

from .conftest import EPOCHS, Shop, flip, layer, segment, truncate

Wrong = set[tuple[str, str, str]]
"""(place, kind, what): what a test expects to be found."""


def wrong(report: AuditReport, shop: Shop) -> Wrong:
    """What is wrong, or behind: place, kind, and the file or the epochs."""
    return {
        (str(Path(one.place).relative_to(shop.root)), str(one.kind), one.path or f"{one.first}-{one.last}")
        for one in report.findings
        if (one.kind.wrong or one.kind is Kind.BEHIND) and not one.repaired
    }


def inside(path: Path, place: Path) -> str:
    return str(path.relative_to(place))


def flip_a_durable_layer(shop: Shop) -> Wrong:
    path = layer(shop.a)
    flip(path)
    return {("a", "damaged", inside(path, shop.a)), ("a", "missing", "1-1")}


def truncate_a_durable_layer(shop: Shop) -> Wrong:
    path = layer(shop.b, epoch=EPOCHS - 1)
    truncate(path)
    return {("b", "damaged", inside(path, shop.b)), ("b", "missing", "3-3")}


def delete_a_durable_layer(shop: Shop) -> Wrong:
    layer(shop.a, epoch=2).unlink()
    return {("a", "missing", "2-2")}


def delete_the_newest_durable_layer(shop: Shop) -> Wrong:
    layer(shop.a, epoch=EPOCHS - 1).unlink()
    return {("a", "missing", "3-3")}


def delete_a_layer_from_both_locations(shop: Shop) -> Wrong:
    layer(shop.a).unlink()
    layer(shop.b).unlink()
    return {("a", "missing", "1-1"), ("b", "missing", "1-1")}


def damage_different_layers_everywhere(shop: Shop) -> Wrong:
    found: Wrong = set()
    for place, epoch, name in ((shop.a, 0, "a"), (shop.b, 1, "b"), (shop.work, 2, "work")):
        path = layer(place, epoch)
        flip(path)
        found |= {(name, "damaged", inside(path, place)), (name, "missing", f"{epoch}-{epoch}")}
    return found


def flip_a_local_layer(shop: Shop) -> Wrong:
    path = layer(shop.work)
    flip(path)
    return {("work", "damaged", inside(path, shop.work)), ("work", "missing", "1-1")}


def truncate_a_local_layer(shop: Shop) -> Wrong:
    path = layer(shop.work, 0)
    truncate(path)
    return {("work", "damaged", inside(path, shop.work)), ("work", "missing", "0-0")}


def delete_a_local_layer(shop: Shop) -> Wrong:
    layer(shop.work).unlink()
    return {("work", "missing", "1-1")}


def delete_all_local_layers(shop: Shop) -> Wrong:
    shutil.rmtree(shop.work / "traces")
    return {("work", "missing", "0-3")}


def delete_all_durable_layers(shop: Shop) -> Wrong:
    shutil.rmtree(shop.a / "layers")
    shutil.rmtree(shop.b / "layers")
    return {("a", "missing", "0-3"), ("b", "missing", "0-3")}


def delete_a_location(shop: Shop) -> Wrong:
    shutil.rmtree(shop.b)
    return {("b", "missing", "holdfast.json"), ("b", "missing", "collections.json"), ("b", "behind", "0-3")}


def flip_a_line_of_the_stash(shop: Shop) -> Wrong:
    flip(shop.work / "lineage" / "log.jsonl")
    return {("work", "damaged", "lineage/log.jsonl")}


def delete_a_line_of_the_stash(shop: Shop) -> Wrong:
    path = shop.work / "lineage" / "log.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    return {("work", "missing", "1-1")}


def delete_the_stash(shop: Shop) -> Wrong:
    (shop.work / "lineage" / "log.jsonl").unlink()
    return {("work", "missing", "0-3")}


def flip_a_segment(shop: Shop) -> Wrong:
    path = segment(shop.a, 1)
    flip(path)
    return {("a", "damaged", inside(path, shop.a))}


def truncate_a_segment(shop: Shop) -> Wrong:
    path = segment(shop.a, EPOCHS - 1)
    truncate(path)
    return {("a", "damaged", inside(path, shop.a))}


def delete_a_segment(shop: Shop) -> Wrong:
    segment(shop.b, EPOCHS - 1).unlink()
    return {("b", "missing", "3-3")}


def spoil_a_header(shop: Shop) -> Wrong:
    (shop.a / "holdfast.json").write_text("{")
    return {("a", "damaged", "holdfast.json")}


def spoil_the_collections(shop: Shop) -> Wrong:
    (shop.work / "collections.json").write_text("[]")
    return {("work", "damaged", "collections.json")}


DAMAGES: list[Callable[[Shop], Wrong]] = [
    flip_a_durable_layer,
    truncate_a_durable_layer,
    delete_a_durable_layer,
    delete_the_newest_durable_layer,
    delete_a_layer_from_both_locations,
    damage_different_layers_everywhere,
    flip_a_local_layer,
    truncate_a_local_layer,
    delete_a_local_layer,
    delete_all_local_layers,
    delete_all_durable_layers,
    delete_a_location,
    flip_a_line_of_the_stash,
    delete_a_line_of_the_stash,
    delete_the_stash,
    flip_a_segment,
    truncate_a_segment,
    delete_a_segment,
    spoil_a_header,
    spoil_the_collections,
]


def test_an_intact_log_has_no_findings_and_every_layer_is_checked(shop: Shop) -> None:
    report = verify(shop.places)
    assert report.ok and report.findings == [] and (report.flow, report.epoch) == ("shop", EPOCHS - 1)
    assert [(place.level, place.lineage) for place in report.places] == [
        ("local", EPOCHS - 1),
        ("replica", EPOCHS - 1),
        ("replica", EPOCHS - 1),
    ]
    for place in report.places:
        assert place.checked == place.layers > 0 and place.bytes > 0
        assert set(place.covered.values()) == {EPOCHS - 1} and not place.damaged and not place.missing


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_found_exactly_and_repaired_from_the_other_places(
    made: Shop, shop: Shop, damage: Callable[[Shop], Wrong]
) -> None:
    expected = damage(shop)
    before = shop.bytes()
    report = verify(shop.places)
    assert wrong(report, shop) == expected and not report.ok
    assert shop.bytes() == before, "looking changes nothing"

    repaired = verify(shop.places, repair=True)
    assert repaired.ok and wrong(repaired, shop) == set()
    assert sum(place.repaired for place in repaired.places) >= len(expected)
    again = verify(shop.places)
    assert again.ok and wrong(again, shop) == set()

    good = made.bytes()
    after = shop.bytes()
    kept = {path for path, data in before.items() if good.get(path) == data}
    assert all(after[path] == good[path] for path in kept), "what was intact is untouched"
    for place in shop.places:
        for view in ("spend", "top", "orders"):
            assert read(place, view).equals(read(made.work, view))


def test_a_copy_of_a_durable_layer_is_the_same_bytes(made: Shop, shop: Shop) -> None:
    shutil.rmtree(shop.b)
    assert verify(shop.places, repair=True).ok
    layers = {path: data for path, data in made.bytes().items() if path.startswith("b/layers/")}
    assert {path: data for path, data in shop.bytes().items() if path.startswith("b/layers/")} == layers


def test_a_fetched_local_layer_is_the_same_bytes(made: Shop, shop: Shop) -> None:
    path = layer(shop.work)
    path.unlink()
    assert verify(shop.places, repair=True).ok
    assert path.read_bytes() == layer(made.work).read_bytes()


def test_damaged_layers_are_kept_aside_for_people_to_look_at(shop: Shop) -> None:
    local, durable = layer(shop.work), layer(shop.a)
    flip(local)
    flip(durable)
    torn = local.read_bytes(), durable.read_bytes()
    report = verify(shop.places, repair=True)
    aside = [shop.work / "damaged" / local.parent.name / local.name, shop.a / "damaged" / durable.parent.name]
    assert aside[0].read_bytes() == torn[0] and (aside[1] / durable.name).read_bytes() == torn[1]
    assert {one.kind for one in report.findings if not one.repaired} == {Kind.LEFTOVER}


@pytest.mark.parametrize(
    "damage",
    [
        damage_different_layers_everywhere,
        delete_all_durable_layers,
        delete_all_local_layers,
        delete_a_line_of_the_stash,
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_repaired_flow_opens_with_its_rows_and_goes_on(
    made: Shop, shop: Shop, spark: Any, damage: Callable[[Shop], Wrong]
) -> None:
    damage(shop)
    assert verify(shop.places, repair=True).ok
    flow, orders = shop.flow(spark)
    with flow:
        for view in ("spend", "top"):
            rows = [tuple(row.values()) for row in read(made.work, view).to_pylist()]
            assert sorted(map(tuple, flow.read(view).collect())) == sorted(rows)
        assert flow.last_recovery is not None
        assert not flow.last_recovery.work[0] and not flow.last_recovery.epochs, "there was nothing left to bring back"
        orders.insert([(7, "u7", 70.0)])
        assert flow.step().epoch == EPOCHS
        flow.wait_safe(timeout=120)
        assert ("u7", 70.0) in [tuple(row) for row in flow.read("top").collect()]
    report = verify(shop.places)
    assert report.ok and report.epoch == EPOCHS


def test_a_running_flow_can_be_verified_and_nothing_seems_wrong(shop: Shop, spark: Any) -> None:
    flow, orders = shop.flow(spark)
    with flow:
        for number in range(6):
            orders.insert([(50 + number, "u1", 1.0)])
            flow.step()
            report = verify(shop.places)
            assert report.ok and report.running is not None, report.findings
        flow.wait_safe(timeout=120)
        # Each location tidies up behind the safe point meanwhile.
        assert verify(shop.places).ok
    after = verify(shop.places)
    assert after.ok and after.epoch == EPOCHS + 5 and after.running is None


def test_a_log_in_use_is_not_repaired(shop: Shop) -> None:
    flip(layer(shop.a))
    before = shop.bytes()
    held = LogDirectory.open(shop.work, "shop", exclusive=True)
    try:
        assert not verify(shop.places).ok, "looking is allowed"
        with pytest.raises(LogBusy, match="runs the flow; stop it before repairing"):
            verify(shop.places, repair=True)
    finally:
        held.close()
    assert shop.bytes() == before


def test_what_no_copy_holds_stays_wrong(shop: Shop) -> None:
    for place in shop.places:
        layer(place).unlink()
    report = verify(shop.places, repair=True)
    assert not report.ok
    assert wrong(report, shop) == {("work", "missing", "1-1"), ("a", "missing", "1-1"), ("b", "missing", "1-1")}


def test_lineage_that_no_copy_holds_is_not_papered_over(shop: Shop) -> None:
    segment(shop.a, 1).unlink()
    before = shop.bytes()
    report = verify([shop.a], repair=True)
    assert wrong(report, shop) == {("a", "missing", "1-1")} and not report.ok
    assert shop.bytes() == before
    segment(shop.b, EPOCHS - 1).unlink()
    assert wrong(verify([shop.b]), shop) == {("b", "missing", "3-3")}


def test_a_location_that_is_behind_is_not_wrong_and_repair_brings_it_up(shop: Shop) -> None:
    for path in (shop.b / "layers").rglob(f"{EPOCHS - 1:012d}-*"):
        path.unlink()
    segment(shop.b, EPOCHS - 1).unlink()
    report = verify(shop.places)
    assert report.ok and wrong(report, shop) == {("b", "behind", "3-3")}
    assert report.places[2].lineage == EPOCHS - 2 and set(report.places[2].covered.values()) == {EPOCHS - 2}
    assert verify(shop.places, repair=True).ok
    assert wrong(verify(shop.places), shop) == set()


def test_layers_of_an_abandoned_epoch_and_torn_files_are_harmless(shop: Shop) -> None:
    path = layer(shop.a)
    parts = path.name.split("-")
    parts[5] = "0" * 16
    shutil.copy(path, path.with_name("-".join(parts)))
    (path.parent / ".0123.tmp").write_bytes(b"torn")
    report = verify(shop.places)
    assert report.ok and [one.kind for one in report.findings] == [Kind.STALE, Kind.LEFTOVER]


def test_a_directory_of_other_things_is_refused_and_not_written_to(shop: Shop, tmp_path: Path) -> None:
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"")
    with pytest.raises(LogError, match=r"photos: it holds other things \(cat.jpg\) and no log"):
        verify([*shop.places, other], repair=True)
    assert [path.name for path in other.iterdir()] == ["cat.jpg"]


def test_places_of_two_flows_are_refused(shop: Shop) -> None:
    (shop.b / "holdfast.json").write_text(json.dumps({"format": 2, "flow": "bakery"}))
    with pytest.raises(LogForeign, match="belongs to flow 'bakery'"):
        verify(shop.places)


def test_progress_reaches_all_bytes(shop: Shop) -> None:
    told: list[tuple[int, int]] = []
    report = verify(shop.places, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (told[-1][1],) * 2 == (sum(place.bytes for place in report.places),) * 2
    assert told == sorted(told)


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_what_is_wrong_and_its_status_says_whether_anything_is(shop: Shop) -> None:
    code, out, _ = invoke("verify", *shop.places)
    assert code == 0 and "all is well" in out
    path = layer(shop.a)
    flip(path)
    code, out, _ = invoke("verify", *shop.places)
    assert code == 1 and f"{path}: its bytes have checksum" in out and "2 findings wrong; --repair" in out
    code, out, _ = invoke("verify", "--repair", *shop.places)
    assert code == 0 and "all is well; 2 findings repaired" in out
    assert invoke("verify", *shop.places)[0] == 0


def test_the_command_gives_one_json_object(shop: Shop) -> None:
    path = layer(shop.a)
    flip(path)
    code, out, _ = invoke("verify", "--json", *shop.places)
    found = json.loads(out)
    assert code == 1 and found["ok"] is False and found["epoch"] == EPOCHS - 1
    assert found["places"][1]["damaged"] == [inside(path, shop.a)]
    assert found["places"][1]["missing"] == [{"trace": path.parent.name, "first": 1, "last": 1}]
    assert [finding["kind"] for finding in found["findings"]] == ["damaged", "missing"]


def test_wrong_calls_are_told(shop: Shop, tmp_path: Path) -> None:
    assert invoke("verify")[0] == 2
    assert invoke("verify", "--fix", shop.a)[0] == 2
    code, out, problem = invoke("verify", tmp_path / "nowhere")
    assert code == 1 and "nowhere" in problem and out == "" and "Traceback" not in problem
    held = LogDirectory.open(shop.work, "shop", exclusive=True)
    try:
        code, out, problem = invoke("verify", "--repair", *shop.places)
    finally:
        held.close()
    assert code == 1 and "stop it before repairing" in problem and out == ""
