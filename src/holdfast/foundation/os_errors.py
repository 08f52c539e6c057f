"""The likely fixes of errors that the operating system or a filesystem raises about a directory or a location."""

from __future__ import annotations

import errno

_DENIED = "permission denied; give this user the right to read and write there, or choose another directory"

_FIXES = {
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "the file system is read-only; choose a directory that can be written to",
    errno.ENOSPC: "the disk is full; make room and try again",
    errno.EDQUOT: "the disk quota is used up; make room and try again",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory, and a file was expected; remove it, or choose another place",
    errno.ELOOP: "it is a symbolic link, and a file of the log never is; find out who put it there, and remove it",
    errno.ENAMETOOLONG: "the path is too long; choose a directory with a shorter one",
    errno.ENOLCK: "the file system has no locks; choose a directory on a local disk",
}

# Filesystems over a network tell their errors by words only, without error numbers.
_SAID = {
    "NO_SUCH_BUCKET": "there is no such bucket; create it, or correct the name",
    "ACCESS_DENIED": "permission denied; give these credentials the right to read, write, list and delete there",
    "INVALID_ACCESS_KEY_ID": "the credentials are not known there; check the access key",
    "INVALID_CLIENT_TOKEN_ID": "the credentials are not known there; check the access key",
    "SIGNATURE_DOES_NOT_MATCH": "the credentials were refused; check the secret key",
    "NETWORK_CONNECTION": "the server cannot be reached; check the address, and that it runs",
    "Unrecognized filesystem type": "no such kind of place is known; check the part before ://",
    "Protocol not known": "no such kind of place is known; check the part before ://",
    "libjvm": "HDFS needs Java and the Hadoop libraries; set JAVA_HOME, HADOOP_HOME and CLASSPATH",
}


def fix(error: OSError) -> str:
    """Return the likely fix of an error of the operating system; its own words if no fix is known."""
    return _FIXES.get(error.errno or 0, error.strerror or str(error))


def said(error: Exception) -> str:
    """Return the likely fix of any error of a filesystem, together with its own words where these say more."""
    if isinstance(error, OSError) and error.errno in _FIXES:
        return fix(error)
    text = str(error) or type(error).__name__
    if isinstance(error, ImportError):
        return f"install the package that this kind of place needs ({text})"
    for sign, likely in _SAID.items():
        if sign in text:
            return f"{likely} ({text})"
    return text
