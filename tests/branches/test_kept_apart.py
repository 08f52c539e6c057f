"""Branches under names that a log cannot have, with a description that is damaged, or without a working directory."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.inspect.branching import create_branch
from holdfast.inspect.compare_logs import compare_branches
from holdfast.log.branches import read_local, write_local
from holdfast.log.location import LocalLocation
from holdfast.testing import Unreliable


def opened(spark: SparkSession, log: Path | list[Path], epochs: int = 0, **settings: Any) -> hf.Flow:
    """A flow, after so many epochs more."""
    flow = hf.Flow("small", log=log, spark=spark, partitions=1, **settings)
    orders = flow.input("orders", "user string, amount long")
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    for n in range(epochs):
        orders.insert([("ada", n + 1)])
        flow.step()
        flow.wait_safe()
    return flow


def branch(*call: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["branch", *map(str, call)], terminal_width=400)
    return result.exit_code, result.stdout, result.stderr


def listed(*logs: Path) -> list[dict[str, Any]]:
    code, out, _ = branch(*logs, "--json")
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)["branches"]
    return found


def test_a_name_that_a_log_cannot_keep_apart_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    names = ["term.json", "Main", "../up", "Early"]
    with opened(spark, tmp_path / "log", 1) as flow:
        flow.branch("early").close()
        for name in names:
            with pytest.raises(hf.DeclarationError, match=r"take another name|is made of letters"):
                flow.branch(name)
        assert [each.name for each in flow.branches()] == ["early"]
    for name in names:
        code, _, said = branch(tmp_path / "log", "--create", name)
        assert code == 1 and ("take another name" in said or "is made of letters" in said)
    assert [each["name"] for each in listed(tmp_path / "log")] == ["early"]
    with opened(spark, tmp_path / "log", 1) as flow, flow.branch("early") as early:
        assert early.replay() == 1, "the log opens as ever"


def test_what_a_flow_went_on_with_does_not_outlive_its_driver(spark: SparkSession, tmp_path: Path) -> None:
    """The log's location is the working directory, too: what was removed from the one was found in the other."""
    log = tmp_path / "log"
    with opened(spark, log, 2) as flow:
        flow.branch("lost").close()
    write_local(log, replace(read_local(log)["lost"], approximate=True))
    with opened(spark, log, 1) as flow:
        assert flow.branches() == () and not (log / "branches" / "lost").exists()
        flow.branch("lost").close()
    assert [each["name"] for each in listed(log)] == ["lost"]


def test_a_branch_whose_description_is_damaged_is_left_alone_until_it_is_removed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    with opened(spark, log, 2) as flow:
        flow.branch("early", at=0).close()
    said = log / "branches" / "early" / "branch.json"
    whole = said.read_bytes()
    said.write_bytes(b"?" + whole[1:])
    with caplog.at_level(logging.WARNING, logger="holdfast.recovery"), opened(spark, log, 1) as flow:
        assert flow.branches() == ()
        assert any("branch 'early' is damaged, and is left alone" in each.getMessage() for each in caplog.records)
        with pytest.raises(hf.LogDamaged, match=r"branch\.json does not read"):
            flow.branch("early")
    assert listed(log) == []
    code, _, problem = branch(log, "--create", "early")
    assert code == 1 and "does not read" in problem
    verified = CliRunner().invoke(app, ["verify", str(log), "--json"])
    assert verified.exit_code == 1 and "branches/early/branch.json" in verified.stdout
    said.write_bytes(whole)
    with opened(spark, log) as flow, flow.branch("early") as early:
        assert early.replay() == 2, "all that it has is there"
    said.write_bytes(b"")
    assert branch(log, "--remove", "early")[0] == 0 and not said.parent.exists()
    with opened(spark, log) as flow:
        flow.branch("early").close()
    said.write_bytes(b"")
    with opened(spark, log) as flow:
        flow.remove_branch("early")
        assert not said.parent.exists()


def test_a_removal_that_the_working_directory_refuses_is_an_error_of_the_log_and_can_be_tried_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(spark, tmp_path / "log", 1) as flow:
        flow.branch("early").close()
        unlink = Path.unlink

        def refuses(path: Path, missing_ok: bool = False) -> None:
            if path.name == "branch.json":
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            unlink(path, missing_ok)

        with monkeypatch.context() as patched, pytest.raises(hf.LogError, match=r"branches/early/branch\.json"):
            patched.setattr(Path, "unlink", refuses)
            flow.remove_branch("early")
        assert [each.name for each in flow.branches()] == ["early"], "its input stays"
        flow.remove_branch("early")
        assert flow.branches() == () and not (tmp_path / "log" / "branches" / "early").exists()


def test_a_comparison_says_which_of_the_two_lines_lacks_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with opened(spark, log, 2) as flow:
        with flow.branch("early", at=1) as early:
            early.open()
        flow.view("spend", "SELECT user, sum(amount * 2) AS total FROM orders GROUP BY user").step()
    (found,) = compare_branches(log, "main", "early", "spend", at=1)
    assert found.equal
    for path in [*(log / "branches").glob("**/*.arrow"), log / "branches" / "early" / "references.json"]:
        path.unlink()
    for lines in (("main", "early"), ("early", "main")):
        with pytest.raises(hf.HoldfastError) as caught:
            list(compare_branches(log, *lines, "spend", at=1))
        assert "layers are missing" in str(caught.value) and "edited" not in str(caught.value), lines


def test_a_branch_is_not_removed_while_a_branch_of_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    flow = opened(spark, log, 2)
    first = flow.branch("first", at=0)
    second = first.branch("second", at=0)
    assert second.open().root == 0
    first.close()
    flow.close()
    with opened(spark, log) as flow:
        with pytest.raises(hf.LogBusy, match=r"branches/first/branches/second: a flow of this very process has it"):
            flow.remove_branch("first")
        with flow.branch("first") as first:
            assert first.replay() == 1, "it is all there"
    code, _, said = branch(log, "--remove", "first")
    assert code == 1 and "branches/first/branches/second" in said and listed(log)
    second.close()
    with opened(spark, log) as flow:
        first = flow.branch("first")
        second = first.branch("second").open()
        flow.remove_branch("first")
        assert not (log / "branches" / "first").exists()
        for each in (first, second):
            with pytest.raises(hf.DeclarationError, match="is closed: the branch was removed"):
                each.step()


def test_the_command_line_removes_a_branch_that_this_working_directory_does_not_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    local, copies = tmp_path / "local", tmp_path / "copies"
    with opened(spark, copies, 1, local=local) as flow:
        flow.branch("early").close()
    shutil.rmtree(local / "branches")
    assert [each["name"] for each in listed(local, copies)] == ["early"]
    assert branch(local, copies, "--remove", "early")[0] == 0
    assert listed(local, copies) == [] and not (copies / "branches" / "early").exists()


def test_a_branch_that_the_command_line_could_not_make_everywhere_is_not_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    local, places = tmp_path / "local", [tmp_path / "first", tmp_path / "second"]
    opened(spark, places, 2, local=local).close()
    second = Unreliable(LocalLocation(places[1]), only="write", fail_before=1.0)
    with pytest.raises(hf.StoreError):
        create_branch([local, places[0], second], "early")
    assert listed(local, *places) == []
    assert not [path for each in (local, *places) for path in each.glob("branches/*")]
    assert create_branch([local, *places], "early").root == 1
    assert [each["name"] for each in listed(local, *places)] == ["early"]


def test_the_command_line_makes_a_branch_only_where_a_location_has_all_of_its_root(
    spark: SparkSession, tmp_path: Path
) -> None:
    local, copies = tmp_path / "local", tmp_path / "copies"
    opened(spark, copies, 2, local=local).close()
    shutil.rmtree(copies / "layers")
    code, _, said = branch(local, copies, "--create", "early")
    assert code == 1 and "epoch 1 is not safe" in said and not (local / "branches").exists()
    with opened(spark, copies, 1, local=local) as flow:
        flow.wait_safe()
    assert branch(local, copies, "--create", "early")[0] == 0
    with opened(spark, copies, 30, local=local, retain=0) as flow:
        held = flow.branches()[0].bytes
    code, _, said = branch(local, copies, "--create", "late", "--at", "5")
    assert code == 1 and "would have kept it" in said
    there = listed(local, copies)
    assert [each["name"] for each in there] == ["early"]
    assert there[0]["bytes"] >= 0.5 * held > 0, "what only the branch keeps in the location counts"


def test_a_working_directory_that_another_driver_overtook_says_nothing_of_branches(
    spark: SparkSession, tmp_path: Path
) -> None:
    local, other, copies = tmp_path / "local", tmp_path / "other", tmp_path / "copies"
    with opened(spark, copies, 1, local=local) as flow:
        flow.branch("early").close()
    with opened(spark, copies, 1, local=other) as flow:
        flow.remove_branch("early")
    assert (local / "branches" / "early").exists() and listed(local, copies) == []
    code, _, said = branch(local, copies, "--create", "late")
    assert code == 1 and "somebody drove the flow elsewhere since" in said
