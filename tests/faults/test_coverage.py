"""The layer sits under everything: what the kernel sees of a flow, the layer sees."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.faulty import layer
from holdfast.testing.faulty.plan import KINDS

WATCHED = Path(__file__).with_name("watched.py")
SOURCE = Path(holdfast.__file__).parent

KIND_OF = {
    "read": "read", "pread64": "read", "readv": "read", "preadv": "read",
    "write": "write", "pwrite64": "write", "writev": "write", "sendfile": "write", "copy_file_range": "write",
    "fsync": "sync", "fdatasync": "sync", "sync_file_range": "sync", "msync": "sync",
    "truncate": "truncate", "ftruncate": "truncate", "fallocate": "truncate",
    "mmap": "map", "getdents64": "list", "flock": "lock",
    "stat": "stat", "lstat": "stat", "newfstatat": "stat", "statx": "stat", "access": "stat", "faccessat": "stat",
    "faccessat2": "stat", "readlink": "stat", "readlinkat": "stat", "statfs": "stat",
    "mkdir": "mkdir", "mkdirat": "mkdir", "unlink": "remove", "unlinkat": "remove", "rmdir": "remove",
    "rename": "rename", "renameat": "rename", "renameat2": "rename",
    "link": "link", "linkat": "link", "symlink": "link", "symlinkat": "link",
    "utimensat": "create", "chmod": "create", "fchmodat": "create", "chown": "create", "fchownat": "create",
}  # fmt: skip
"""Call of the kernel → kind."""

PASSED = {"close", "lseek", "fcntl", "ioctl", "fstat", "dup", "dup2", "dup3", "fadvise64", "getcwd", "chdir", "execve"}
"""Calls that no disk fails at, or (fstat) that follow an open that may fail."""


def plain(path: str, root: Path) -> str:
    """A path without what differs from run to run."""
    return re.sub(r"[0-9a-f]{6,}|\d+(?=\.tmp|\.#)|(?<=json\.)\d+", "#", os.path.relpath(path, root))


def seen_by_kernel(trace: Path, root: Path) -> set[tuple[str, str]]:
    found = set()
    for line in trace.read_text(errors="replace").splitlines():
        call = re.match(r"(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)", line)
        paths = [path for path in re.findall(r'[<"](/[^">]*)[>"]', line) if path.startswith(f"{root}/")]
        if not call or not paths:
            continue
        name, rest = call[1], call[2]
        if name in ("open", "openat", "creat"):
            kind = "create" if re.search(r"O_WRONLY|O_RDWR|O_CREAT", rest) else "open"
            if "O_DIRECTORY" in rest:
                kind = "list"  # that is how a listing begins
            found.add((kind, plain(paths[0] if name != "openat" else paths[-1], root)))
        elif name not in PASSED and not (name == "newfstatat" and '""' in rest):  # (so fstat is spelled, too)
            # Of two paths the last is the new one; a descriptor's comes first.
            found.add((KIND_OF[name], plain(paths[-1] if name.startswith(("rename", "link")) else paths[0], root)))
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace, which says what the kernel saw")
def test_the_layer_sees_every_call_that_the_kernel_sees(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-y", "-s", "400", "-e", "trace=%file,%desc", "-o", str(trace)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent), "PYTHONHASHSEED": "0"}
    watched = subprocess.run(
        [*command, sys.executable, str(WATCHED), str(tmp_path / "plain"), "plain"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if "ptrace" in watched.stderr or "Operation not permitted" in watched.stderr:
        pytest.skip(f"strace may not watch processes here: {watched.stderr[:200]}")
    assert watched.returncode == 0, watched.stderr[-3000:]
    told = subprocess.run(
        [sys.executable, str(WATCHED), str(tmp_path / "layer"), "layer"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    calls = json.loads(told.stdout)
    by_layer = {(kind, plain(path, tmp_path / "layer")) for kind, path in calls}
    by_kernel = {call for call in seen_by_kernel(trace, tmp_path / "plain") if not _is_of_the_test(*call)}
    # An open directory that is synced or removed from is opened, not listed.
    loose = {(kind, path) for kind, path in by_kernel if kind == "list" and ("open", path) in by_layer}
    missed = sorted(by_kernel - by_layer - loose)
    assert not missed, f"{len(missed)} of {len(by_kernel)} kinds of calls passed the layer by: {missed[:20]}"
    assert {kind for kind, _ in by_kernel} >= set(KINDS) - {"truncate", "link"} and len(by_kernel) > 100


def _is_of_the_test(kind: str, path: str) -> bool:
    """Whether the test itself did it: files arrive while the layer is paused."""
    place, _, name = path.partition("/")
    return (place in ("orders", "users") and (name.startswith(".") or kind in ("rename", "mkdir"))) or path == "out"


ELSEWHERE = {
    "dup2": "standard output", "getloadavg": "no file", "devnull": "no file",
}  # fmt: skip

TOUCHING = re.compile(
    r"\b(open|stat|link|unlink|remove|rename|replace|mkdir|rmdir|dir|trunc|sync|read|write|chmod|chown|utime|access"
    r"|scandir|mk|copy|send)", re.IGNORECASE,
)  # fmt: skip


def test_no_function_of_os_that_touches_files_is_used_without_being_covered() -> None:
    covered = {
        name for names in (*layer.PATHS.values(), *layer.PAIRS.values(), *layer.OPENED.values()) for name in names
    }
    covered |= {*layer.MOVING, *layer.ALONE, *layer.DERIVED}
    missed = []
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "faulty":
            continue  # what makes the faults
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "mmap", "io"):
                missed.append(f"{path.name}:{node.lineno}: from {node.module} import …: it would not be replaced")
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, name = node.func.value, node.func.attr
            if not isinstance(owner, ast.Name):
                continue
            unknown = name not in covered and name not in ELSEWHERE
            if owner.id == "os" and TOUCHING.match(name) and unknown:
                missed.append(f"{path.name}:{node.lineno}: os.{name}")
            if owner.id in ("mmap", "sqlite3") or (owner.id in ("np", "numpy") and name in ("memmap", "fromfile")):
                missed.append(f"{path.name}:{node.lineno}: {owner.id}.{name}")
            if owner.id == "pq" and name not in PARQUET:
                missed.append(f"{path.name}:{node.lineno}: pq.{name}")
            if owner.id == "pa" and name in ("create_memory_map", "MemoryMappedFile"):
                missed.append(f"{path.name}:{node.lineno}: pa.{name}")
    assert not missed, "\n".join(missed)


PARQUET = {"ParquetFile", "ParquetWriter", "read_schema", "read_metadata", "write_table", "read_table"}
"""All of them go through `ParquetFile` and `ParquetWriter`."""
