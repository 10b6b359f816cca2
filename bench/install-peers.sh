#!/bin/sh
# Installs the peers that the benchmark compares with, from Debian's packages. Does nothing for those that are there.
set -eu

missing=""
command -v beanstalkd >/dev/null 2>&1 || missing="$missing beanstalkd"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "peers are missing, and only root may install them: apt-get install$missing" >&2
    echo "the benchmark goes on without them" >&2
    exit 0
fi
# Without this, Debian would start both as services; the benchmark starts its own, private ones.
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get install -y --no-install-recommends $missing ||
    { apt-get update && apt-get install -y --no-install-recommends $missing; } ||
    echo "could not install$missing; the benchmark goes on without" >&2
