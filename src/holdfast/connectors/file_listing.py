"""Listing of a source's files, and the check that a file is still the file that was offered.

Files and directories whose names start with ``.`` or ``_``, or end like the name of a half-written file, are passed
over (``_temporary``): a program that writes into a source's directory must make each file appear complete, by renaming
it, as Spark, Hadoop and most loaders do. Links to files are followed; links to directories are not, since a file must
not be found under two names.

A `FileTree` is polled again and again. A directory whose time of change is the same still has the same files, so it is
not listed again: a poll costs one ``stat`` per directory, however many files there are. A time of change is trusted
only if it was at least two seconds old at the listing (file systems count in ticks), and everything is listed every
thirty seconds all the same. If that finds a new file in a directory whose time has not changed, the file system does
not keep such times, and from then on everything is listed at each poll. A `RemoteTree` (`connectors.remote_files`) is
listed whole each time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.connectors.file_access import LOCAL, File, FileAccess
from holdfast.connectors.file_patterns import split_pattern
from holdfast.connectors.remote_files import (
    RemoteDirectory,
    is_file_uri,
    is_remote,
    located,
    remote_directory,
    split_query,
)
from holdfast.errors import BadFile, DeclarationError
from holdfast.log.location import Location

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload", ".swp", "~", "._COPYING_")
_TICK = 2.0
_LOOK_AGAIN = 30.0


def root(path: str | os.PathLike[str]) -> str:
    """A declared local path as an absolute path. Raises `DeclarationError` if nothing is there."""
    text = os.fspath(path)
    absolute = os.path.abspath(os.path.expanduser(text))
    try:
        os.stat(absolute)
    except (FileNotFoundError, NotADirectoryError):
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]", text):
            raise DeclarationError(
                f"files {text!r}: did you mean {text.replace(':/', '://', 1)!r}?", path=text
            ) from None
        parent = Path(absolute).parent
        there = "" if os.path.exists(parent) else f" (neither does {parent})"
        raise DeclarationError(
            f"files {text!r}: {absolute} does not exist{there}; create the directory first, it may be empty",
            path=absolute,
        ) from None
    except OSError as error:
        raise DeclarationError(
            f"files {text!r}: {absolute} cannot be looked at now: {error.strerror}", path=absolute, errno=error.errno
        ) from error
    if not os.access(absolute, os.R_OK):
        raise DeclarationError(f"files {text!r}: {absolute} cannot be read by this user", path=absolute)
    return absolute


Known = Callable[[str, Callable[[], File]], bool]
"""Whether a path is known. The function describes the file that is there now; call it only if the path does not
decide."""


@dataclass
class _Directory:
    """A directory as it was when it was listed."""

    changed: int
    settled: bool
    """Whether its time of change was old enough at the listing to be trusted."""

    directories: list[str] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)
    """Path → file, for the files that are not known."""


class FileTree:
    """The files at or under a path."""

    def __init__(
        self,
        path: str,
        clock: Callable[[], float] = time.time,
        *,
        pattern: re.Pattern[str] | None = None,
        recursive: bool = True,
    ) -> None:
        """``pattern`` must match the part of a file's path that follows ``path``."""
        self.path = path
        self._pattern = pattern
        self._recursive = recursive
        self._clock = clock
        self._listed: dict[str, _Directory] = {}
        self._next = 0.0
        self._timeless = False
        """Whether the file system does not keep times of change of directories."""

        self.listings = 0
        """How many directories were listed so far."""

    def unknown(self, known: Known) -> list[File]:
        """The files that are not ``known``, as they were when their directory was listed last. Raises `BadFile` if they
        cannot be listed."""
        now = self._clock()
        thorough = self._timeless or not self._next - _LOOK_AGAIN <= now < self._next
        if thorough:
            self._next = now + _LOOK_AGAIN
        try:
            if not os.path.isdir(self.path):
                file = LOCAL.described(self.path)
                return [] if known(self.path, lambda: file) else [file]
            found = self._walk(self.path, known, thorough)
            return [file for file in found if self._wants(file.path)]
        except FileNotFoundError:
            text = f"files {self.path!r}: it was there when the source was declared, and is gone"
            raise BadFile(text, path=self.path) from None
        except OSError as error:
            raise unreadable(os.fsdecode(error.filename or self.path), error) from error

    def _wants(self, path: str) -> bool:
        return self._pattern is None or self._pattern.fullmatch(os.path.relpath(path, self.path)) is not None

    def _walk(self, path: str, known: Known, thorough: bool) -> Iterator[File]:
        directory = self._directory(path, known, thorough)
        yield from directory.files.values()
        for each in directory.directories if self._recursive else ():
            try:
                yield from self._walk(each, known, thorough)
            except FileNotFoundError:
                self._listed.pop(each, None)  # the directory was removed since the listing, with its files

    def _directory(self, path: str, known: Known, thorough: bool) -> _Directory:
        changed = os.stat(path).st_mtime_ns
        before = self._listed.get(path)
        same = before is not None and before.settled and before.changed == changed
        if before is not None and same and not thorough:
            before.files = {each: file for each, file in before.files.items() if not known(each, _fixed(file))}
            return before
        # The time is read before the listing: a file that comes in between makes it later.
        listed = _Directory(changed, self._clock() - changed / 1e9 > _TICK)
        self.listings += 1
        for entry in _entries(path):
            if entry.is_dir(follow_symlinks=False):
                listed.directories.append(entry.path)
            elif not known(entry.path, _describing(entry.path)) and entry.is_file():
                try:
                    listed.files[entry.path] = LOCAL.described(entry.path)
                except FileNotFoundError:
                    continue  # removed since the listing, and never offered
        if before is not None and same and listed.files.keys() - before.files.keys():
            self._timeless = True
        self._listed[path] = listed
        return listed


def _fixed(file: File) -> Callable[[], File]:
    return lambda: file


def _describing(path: str) -> Callable[[], File]:
    return lambda: LOCAL.described(path)


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        raise BadFile(f"files {path!r}: it cannot be read by this user", path=path) from None
    for entry in listed:
        if is_finished(entry.name):
            yield entry


def is_finished(name: str) -> bool:
    """Whether a name is not that of a hidden or half-written file or directory."""
    return not name.startswith((".", "_")) and not name.endswith(_UNFINISHED)


class RemoteTree:
    """The files at or under an address of another filesystem."""

    def __init__(
        self, directory: RemoteDirectory, *, pattern: re.Pattern[str] | None = None, recursive: bool = True
    ) -> None:
        """``pattern`` must match the part of a file's path that follows the address."""
        self.path = directory.path
        self.directory = directory
        self._pattern = pattern
        self._recursive = recursive

    def unknown(self, known: Known) -> list[File]:
        """The files that are not ``known``. Raises `BadFile` if they cannot be listed."""
        try:
            found = [File(*each) for each in self.directory.listed(self._recursive or self._pattern is not None)]
        except OSError as error:
            raise unreadable(self.path, error) from error
        wanted = [file for file in found if file.path == self.path or self._wants(file.path[len(self.path) + 1 :])]
        return [file for file in wanted if not known(file.path, _fixed(file))]

    def _wants(self, behind: str) -> bool:
        finished = all(map(is_finished, behind.split("/")))
        return finished and (self._pattern is None or self._pattern.fullmatch(behind) is not None)


Tree = FileTree | RemoteTree


def declared_tree(path: str | os.PathLike[str] | Location, recursive: bool) -> Tree:
    """The files that a declared path stands for. Raises `DeclarationError` if there is no such place."""
    if isinstance(path, str) and is_file_uri(path):
        path = located(path)
    if isinstance(path, Location):
        local = path.local()
        if local is None:
            return _remote_tree(remote_directory(path), None, recursive)
        path = local
    if is_remote(path):
        plain, query = split_query(os.fspath(path))
        under, pattern = split_pattern(plain)
        return _remote_tree(remote_directory(under + query), pattern, recursive)
    under, pattern = split_pattern(os.fspath(path))
    return FileTree(root(under), pattern=pattern, recursive=recursive)


def _remote_tree(directory: RemoteDirectory, pattern: re.Pattern[str] | None, recursive: bool) -> RemoteTree:
    directory.check()
    return RemoteTree(directory, pattern=pattern, recursive=recursive)


def access_to(trees: Sequence[Tree]) -> FileAccess:
    """The access to the files of these trees."""
    return FileAccess([tree.directory for tree in trees if isinstance(tree, RemoteTree)])


def unreadable(path: str, error: OSError) -> BadFile:
    """The error for a file or directory that cannot be read now. That says nothing about its content, so a file with
    such an error (it has the field ``errno``) is never skipped as a bad file."""
    return BadFile(
        f"file {path!r}: it cannot be read now: {error.strerror or error}; nothing of it counts until it can",
        path=path,
        errno=error.errno,
    )


def all_of(tree: Tree) -> list[File]:
    """All files of a tree."""
    again = FileTree(tree.path) if isinstance(tree, FileTree) else RemoteTree(tree.directory)
    return again.unknown(lambda path, look: False)


def check_unchanged(file: File, access: FileAccess = LOCAL) -> None:
    """Raise `BadFile` if ``file`` was removed or changed since it was offered: its rows would not be those of the
    offer."""
    try:
        now = access.described(file.path)
    except FileNotFoundError:
        raise BadFile(
            f"file {file.path!r}: it was removed after it was offered to an epoch; put it back, as it was",
            path=file.path,
        ) from None
    except OSError as error:
        raise unreadable(file.path, error) from error
    if now != file:
        raise BadFile(
            f"file {file.path!r}: it changed after it was offered (then {file.size} bytes, now {now.size}); "
            "files of a source must be put in place complete and never be written to again",
            path=file.path,
        )
