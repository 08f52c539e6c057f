# Sourced by the ensure-*.sh scripts. Defines:
#
#   install_package MANAGER:PACKAGE...   installs the first PACKAGE that this system's package manager has
#   privileged COMMAND...                runs COMMAND as root, if that takes no password
#
# All output goes to stderr: the scripts that source this print their answer on stdout.

privileged() {
  if [ "$(id -u)" = 0 ]; then
    "$@" >&2
  elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
    sudo -n "$@" >&2
  else
    return 1
  fi
}

package_manager() {
  for manager in apt-get dnf yum apk brew; do
    if command -v "$manager" >/dev/null 2>&1; then
      echo "$manager"
      return 0
    fi
  done
  return 1
}

install_package() {
  manager="$(package_manager)" || return 1
  if [ "$manager" = apt-get ]; then
    # A fresh machine has no package lists. If they cannot be had, what is cached may still do.
    privileged env DEBIAN_FRONTEND=noninteractive apt-get update -q || true
  fi
  for candidate in "$@"; do
    [ "${candidate%%:*}" = "$manager" ] || continue
    package="${candidate#*:}"
    echo "installing $package with $manager" >&2
    # $package may name several packages.
    # shellcheck disable=SC2086
    case "$manager" in
      apt-get) privileged env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $package && return 0 ;;
      dnf | yum) privileged "$manager" install -y -q $package && return 0 ;;
      apk) privileged apk add --quiet $package && return 0 ;;
      brew) brew install --quiet $package >&2 && return 0 ;;
    esac
  done
  return 1
}
