#!/bin/sh
# Prints the home of a Java that Spark runs on (17 or newer); installs one if there is none and it can.
# In this order: $JAVA_HOME, java on the PATH, the usual places, the system's package manager.
set -u
. "$(dirname "$0")/install-package.sh"

least=17

# Prints the java.home of the java command $1 if it is new enough.
suitable() {
  [ -x "$1" ] || return 1
  settings="$("$1" -XshowSettings:properties -version 2>&1)" || return 1
  version="$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')"
  case "$version" in
    '' | *[!0-9]*) return 1 ;; # "1.8" and the like
  esac
  [ "$version" -ge "$least" ] || return 1
  printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

find_java() {
  if [ -n "${JAVA_HOME:-}" ] && suitable "$JAVA_HOME/bin/java"; then return 0; fi
  on_path="$(command -v java)" && suitable "$on_path" && return 0
  for home in /usr/lib/jvm/* /usr/java/* /opt/java/* /Library/Java/JavaVirtualMachines/*/Contents/Home \
    /opt/homebrew/opt/openjdk* /usr/local/opt/openjdk*; do
    suitable "$home/bin/java" && return 0
  done
  return 1
}

find_java && exit 0

install_package \
  apt-get:openjdk-21-jre-headless apt-get:openjdk-17-jre-headless apt-get:default-jre-headless \
  dnf:java-21-openjdk-headless dnf:java-17-openjdk-headless \
  yum:java-21-openjdk-headless yum:java-17-openjdk-headless yum:java-17-amazon-corretto-headless \
  apk:openjdk21-jre-headless apk:openjdk17-jre-headless \
  brew:openjdk@21 brew:openjdk@17
find_java && exit 0

cat >&2 <<END
Spark needs Java $least or newer. None was found in JAVA_HOME (${JAVA_HOME:-not set}), on the PATH or in the usual places,
and it could not be installed from here (that takes root, or sudo without a password).
Install a Java runtime, for instance
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora, RHEL     sudo dnf install java-21-openjdk-headless
  Alpine           sudo apk add openjdk17-jre-headless
  macOS            brew install openjdk@17
or set JAVA_HOME to one, and run the command again.
END
exit 1
