"""Which branches a place says that there are."""

from __future__ import annotations

from pathlib import Path

from holdfast.log import branches
from holdfast.log.branch_location import BranchLocation, Reference
from holdfast.log.branch_space import shared_once
from holdfast.log.branches import BranchRecord
from holdfast.testing.memory import MemoryLocation

RECORD = BranchRecord("early", "revenue", 3, "0123456789abcdef", 1700000000.0, 2)


def test_a_name_without_a_log_is_no_branch_of_a_location() -> None:
    location = MemoryLocation("memory://0")
    location.write(branches.path_of("early"), RECORD.to_bytes())
    assert branches.read_branches(location) == {}
    assert branches.leftovers(location, set()) == ["early"]
    location.write("branches/early/lineage/000000000000-000000000003-0123456789abcdef.jsonl", b"")
    assert branches.read_branches(location) == {"early": RECORD}


def test_a_name_without_a_log_is_no_branch_of_a_working_directory(tmp_path: Path) -> None:
    branches.write_local(tmp_path, RECORD)
    assert branches.read_local(tmp_path) == {}
    (tmp_path / "branches" / "early" / "lineage").mkdir()
    (tmp_path / "branches" / "early" / "lineage" / "log.jsonl").write_bytes(b"")
    assert branches.read_local(tmp_path) == {"early": RECORD}


def test_the_term_in_which_all_branches_were_known_is_kept(tmp_path: Path) -> None:
    assert branches.noted_term(tmp_path) == 0
    (tmp_path / "branches").mkdir()
    branches.note_term(tmp_path, 7)
    assert branches.noted_term(tmp_path) == 7 and branches.read_local(tmp_path) == {}
    (tmp_path / "branches" / "term.json").write_text("{")
    assert branches.noted_term(tmp_path) == 0
    branches.remove_term(tmp_path)
    assert branches.noted_term(tmp_path) == 0


def test_what_two_branches_share_is_held_by_neither_alone() -> None:
    """Removing one of them would not free it."""
    location = MemoryLocation("memory://0")
    layers = {path: Reference(f"layers/t/{path}", 10) for path in ("a", "b", "c")}
    BranchLocation(location, "first").refer({"a": layers["a"], "b": layers["b"]})
    BranchLocation(location, "second").refer({"b": layers["b"], "c": layers["c"]})
    location.write("branches/damaged/references.json", b"?")
    assert shared_once(location) == {"first": [layers["a"]], "second": [layers["c"]]}
