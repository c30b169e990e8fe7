#!/bin/bash
# env.sh [--state DIR]: prints the line that a shell evaluates to reach the server as administrator.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=deploy/lib.sh
source deploy/lib.sh

parse_options "$@"
[[ -r $STATE/url ]] || die "nothing runs with $STATE; make up starts it"
[[ -r $STATE/admin.token ]] || die "$STATE/admin.token is not readable for you"
url=$(<"$STATE/url")
token=$(<"$STATE/admin.token")
# A shell will evaluate this: print nothing but what these two may look like.
[[ $url =~ ^http://127\.0\.0\.1:[0-9]+$ ]] || die "$STATE/url does not hold an address"
[[ $token =~ ^pf_[a-z0-9]+$ ]] || die "$STATE/admin.token does not hold a token"
build=$PWD/build
echo "export PINFOLD_URL=$url PINFOLD_TOKEN=$token"
# Once, however often this is evaluated.
[[ $PATH == "$build":* ]] || printf 'export PATH=%q:"$PATH"\n' "$build"
