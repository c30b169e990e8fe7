#!/bin/bash
# Installs those of the named Debian packages that are missing; does nothing when none is.
set -euo pipefail

missing=()
for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $EUID -ne 0 ]]; then
    echo "deps: these packages are missing and only root can install them: ${missing[*]}" >&2
    exit 1
fi
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null
