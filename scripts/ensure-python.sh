#!/bin/sh
# Prints a Python (3.11 or newer) that can make virtual environments; installs one if there is none and it can.
# $PYTHON, if set, is tried first.
set -u
. "$(dirname "$0")/install-package.sh"

suitable='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

find_python() {
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
    if "$candidate" -c "$suitable" >/dev/null 2>&1; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

find_python && exit 0

install_package \
  "apt-get:python3 python3-venv" "apt-get:python3.11 python3.11-venv" dnf:python3.12 dnf:python3 yum:python3.12 yum:python3.11 \
  apk:python3 brew:python@3.12
find_python && exit 0

cat >&2 <<END
Holdfast needs Python 3.11 or newer with the venv module. None was found on the PATH, and it could not be installed from
here (that takes root, or sudo without a password). Install one, for instance
  Debian, Ubuntu   sudo apt-get install python3 python3-venv
  Fedora, RHEL     sudo dnf install python3.12
  macOS            brew install python@3.12
or set PYTHON to one, and run the command again.
END
exit 1
