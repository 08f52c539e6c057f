"""The branches of a log: logs of their own that begin with the parent's layers as of an epoch, the root.

    <log>/branches/<name>/branch.json      the description of the branch: a `BranchRecord`
    <log>/branches/<name>/…                a log: working directory, log location, or both, like the parent's
    <log>/branches/term.json               {"term"}, in the working directory: see below

``<log>`` is the parent's working directory and each of its locations. A branch exists if any place has both its
``branch.json`` and its lineage. ``branch.json`` is written last and removed first: if no place has it, a crash left the
directory. A place with ``branch.json`` and no lineage only knows the name: the branch was not opened there since, so
that place does not know whether the branch still exists.

A working directory on another host is not told when a branch is removed. It is trusted only if no other driver has
driven the log since: ``term.json`` holds the term in which a driver on this host knew all branches.

A ``branch.json`` that exists and does not parse is damaged, and was not left by a crash: the files of its branch are
kept until the branch is removed by name.

Shared layers are hard links in the working directory (`log/linked_layers.py`), and in a location references, whose
layers the parent does not remove (`log/branch_location.py`). The history of the branch is the parent's up to the root;
later epochs of the branch have digests of their own.

An **approximate** branch is used by a flow with ``on_loss="continue"``, from the loss of members to the repair
(`runtime/approximation.py`). It is made, named, listed and removed like any other branch; but lost partitions are
missing from it, and it is in the working directories only, since nothing may wait for a location then. So it does not
outlive its driver.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.coordinator.folded import Folded
from holdfast.coordinator.lineage import Lineage
from holdfast.errors import LogDamaged
from holdfast.foundation.atomic_files import replace_file
from holdfast.log import header
from holdfast.log.branch_location import DIRECTORY, BranchLocation
from holdfast.log.branch_location import FILE as REFERENCES
from holdfast.log.location import Location
from holdfast.log.replica import Replica
from holdfast.log.snapshots import NAME
from holdfast.log.stash import read_stash
from holdfast.log.working_directory import LogDirectory

FILE = "branch.json"
_TERM = "term.json"


@dataclass(frozen=True)
class BranchRecord:
    """The description of a branch, which is in its ``branch.json``."""

    name: str
    flow: str
    """The name of the parent flow."""

    root: int
    """The last epoch that it has in common with its parent."""

    digest: str
    """The digest of that epoch."""

    created: float
    """The time at which it was made, in seconds since 1970."""

    released: int
    """The epoch up to which sources had been told, when the branch was made, that they may forget input."""

    term: int = 0
    """The term of the driver that made it; if the command line made it, the term of the last driver before."""

    approximate: bool = False
    """Whether the layers of lost members are missing from it; the next driver removes such a branch."""

    def to_bytes(self) -> bytes:
        said = asdict(self)
        if not self.approximate:
            del said["approximate"]
        return header.to_text(said).encode()

    @staticmethod
    def from_bytes(data: bytes, place: str, path: str) -> BranchRecord:
        said = header.from_text(data, place, path)
        try:
            return BranchRecord(**said)
        except TypeError as error:
            raise LogDamaged(f"{place}/{path}: it is no branch: {error}", path=path) from None


def why_not(name: str, known: Collection[str]) -> str | None:
    """The reason why no branch with this name can be made beside the ``known`` branches; None if it can."""
    if not NAME.fullmatch(name):
        return f"a branch's name is made of letters, digits, '.', '_' and '-', not {name!r}"
    if name.lower() == "main":
        return f"'{name}' is the flow itself; take another name"
    if name.lower() == _TERM:
        return f"'{name}' is a file of the log; take another name"
    alike = next((each for each in known if each.lower() == name.lower()), None)
    if alike is not None:
        return f"there is a branch '{alike}', and not every file system tells '{name}' from that; take another name"
    return None


def branch_flow(flow: str, name: str) -> str:
    """The flow name of a branch: ``<flow>/<name>``."""
    return f"{flow}/{name}"


def directory_of(log: Path, name: str) -> Path:
    """The working directory of a branch."""
    return log / DIRECTORY / name


def path_of(name: str) -> str:
    return f"{DIRECTORY}/{name}/{FILE}"


def read_branches(location: Location) -> dict[str, BranchRecord]:
    """The branches that a location has. A branch without lineage, or whose file does not parse, is left out."""
    found = {}
    for name in location.directories(DIRECTORY):
        with suppress(FileNotFoundError, LogDamaged):
            record = BranchRecord.from_bytes(location.read(path_of(name)), location.uri, path_of(name))
            if location.list(f"{DIRECTORY}/{name}/lineage"):
                found[name] = record
    return found


def read_local(log: Path) -> dict[str, BranchRecord]:
    """The branches that a working directory has. A branch without lineage, or whose file does not parse, is left
    out."""
    found = {}
    for path in sorted((log / DIRECTORY).glob(f"*/{FILE}")):
        with suppress(FileNotFoundError, LogDamaged):
            record = BranchRecord.from_bytes(path.read_bytes(), str(log), str(path))
            if (path.parent / "lineage" / "log.jsonl").exists():
                found[path.parent.name] = record
    return found


def newest(told: Iterable[Mapping[str, BranchRecord]]) -> dict[str, BranchRecord]:
    """The branches of several places. Of two branches of one name the later one exists: the other was removed while its
    place could not be reached. A branch with a higher term is later, whatever the clocks of hosts say."""
    found: dict[str, BranchRecord] = {}
    for name, record in (one for has in told for one in has.items()):
        if name not in found or (record.term, record.created) > (found[name].term, found[name].created):
            found[name] = record
    return found


def has_another(location: Location, record: BranchRecord) -> bool:
    """Whether a location has, under the name of this branch, the lineage of another branch, which an incomplete removal
    has left."""
    replica = Replica(BranchLocation(location, record.name))
    segments = replica.segments()
    with suppress(FileNotFoundError, LogDamaged):  # a damaged segment may belong to this branch
        around = [each for each in segments if each.first <= record.root <= each.last]
        return bool(segments) and not any(_has_root(replica.read_segment(each), record) for each in around)
    return False


def has_another_local(log: Path, record: BranchRecord) -> bool:
    """Whether a working directory has, under the name of this branch, the lineage of another branch."""
    lineage, _ = read_stash(directory_of(log, record.name) / "lineage" / "log.jsonl")
    return bool(lineage) and not _has_root(lineage, record)


def _has_root(lineage: Sequence[Lineage], record: BranchRecord) -> bool:
    """Whether a lineage may be that of this branch: it has the root's digest, or the root was folded."""
    return any(
        each.digest == record.digest
        if each.epoch == record.root
        else isinstance(each, Folded) and each.epoch > record.root
        for each in lineage
    )


def note_term(log: Path, term: int) -> None:
    """Note that the driver of this term knows all branches, and that its working directory has them."""
    replace_file(log / DIRECTORY / _TERM, header.to_text({"term": term}).encode())


def remove_term(log: Path) -> None:
    """Remove the noted term, when there are no branches any more."""
    (log / DIRECTORY / _TERM).unlink(missing_ok=True)


def noted_term(log: Path) -> int:
    """The term that was noted last; 0 if none was."""
    try:
        said = header.from_text((log / DIRECTORY / _TERM).read_bytes(), str(log), f"{DIRECTORY}/{_TERM}").get("term")
    except (FileNotFoundError, LogDamaged):
        return 0
    return said if isinstance(said, int) else 0


def leftovers(location: Location, known: Collection[str]) -> list[str]:
    """The directories of branches that are not ``known``, which a crash has left."""
    return [name for name in location.directories(DIRECTORY) if name not in known]


def damaged(location: Location, known: Collection[str]) -> dict[str, LogDamaged]:
    """The branches that are not ``known`` and whose ``branch.json`` in a location does not parse, with the errors."""
    found = {}
    for name in leftovers(location, known):
        try:
            BranchRecord.from_bytes(location.read(path_of(name)), location.uri, path_of(name))
        except FileNotFoundError:
            continue
        except LogDamaged as error:
            found[name] = error
    return found


def write_local(log: Path, record: BranchRecord) -> None:
    directory_of(log, record.name).mkdir(parents=True, exist_ok=True)
    replace_file(log / path_of(record.name), record.to_bytes(), sync=True)


def check_idle(log: Path, name: str) -> None:
    """Raise `LogBusy`, which names the branch, if a process runs this branch or a branch of it."""
    own = directory_of(log, name)
    if (own / header.FILE).exists():
        LogDirectory.open(own, exclusive=True).close()
    for each in sorted((own / DIRECTORY).glob("*/")):
        check_idle(own, each.name)


def remove_from(location: Location, name: str) -> None:
    """Remove all that a location has of a branch, ``branch.json`` first."""
    location.remove(path_of(name))
    if (directory := location.local()) is not None:
        shutil.rmtree(directory_of(directory, name), ignore_errors=True)
        return
    for path in _below(location, f"{DIRECTORY}/{name}"):
        location.remove(path)


def remove_local(log: Path, name: str) -> None:
    """Remove the working directory of a branch, ``branch.json`` first."""
    (log / path_of(name)).unlink(missing_ok=True)
    shutil.rmtree(directory_of(log, name), ignore_errors=True)


def _below(location: Location, directory: str) -> Iterator[str]:
    """All blobs below a directory, the references last: the parent keeps the shared layers until all else is gone."""
    for each in location.directories(directory):
        yield from _below(location, f"{directory}/{each}")
    names = [entry.name for entry in location.list(directory)]
    for name in sorted(names, key=lambda one: one == REFERENCES):
        yield f"{directory}/{name}"


def blobs(location: Location, name: str) -> int:
    """The bytes of a branch's own blobs in a location."""
    return sum(_sizes(location, f"{DIRECTORY}/{name}"))


def _sizes(location: Location, directory: str) -> Iterator[int]:
    for each in location.directories(directory):
        yield from _sizes(location, f"{directory}/{each}")
    yield from (entry.size for entry in location.list(directory))


def local_bytes(log: Path, name: str) -> int:
    """The bytes that removing the working directory of a branch would free."""
    return unshared_bytes(directory_of(log, name))


def unshared_bytes(directory: Path) -> int:
    """The bytes of the files below a directory that have no link elsewhere. (Layers without rows are links of each
    other.)"""
    found: dict[tuple[int, int], tuple[os.stat_result, int]] = {}
    for where, _, files in os.walk(directory):
        for file in files:
            with suppress(FileNotFoundError):
                about = os.lstat(os.path.join(where, file))
                one = (about.st_dev, about.st_ino)
                found[one] = (about, found[one][1] + 1 if one in found else 1)
    return sum(about.st_size for about, links in found.values() if links >= about.st_nlink)
