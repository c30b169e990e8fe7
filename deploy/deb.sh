#!/bin/bash
# deb.sh BUILD [VERSION]: makes BUILD/deb/pinfold_VERSION_ARCH.deb from what was built, and prints its
# path.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
version=${2:-$("$build/pinfold-server" --version | cut -d ' ' -f 2)}
arch=$(dpkg --print-architecture)
mkdir -p "$build/deb"
work=$(mktemp -d "$build/deb/work.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
root=$work/pinfold
deb=$build/deb/pinfold_${version}_$arch.deb
umask 022

mkdir -p "$root/DEBIAN" "$work/debian"
DESTDIR=$root PREFIX=/usr SYSCONFDIR=/etc deploy/install.sh "$build"

# Debian 12 still looks for units here.
mkdir -p "$root/lib"
mv "$root/usr/lib/systemd" "$root/lib/systemd"

for program in bin/pinfold sbin/pinfold-server libexec/pinfold/pinfold-runner \
    libexec/pinfold/pinfold-runner-docker; do
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/$program"
done

# What Debian asks of every package.
doc=$root/usr/share/doc/pinfold
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    echo 'Upstream-Name: Pinfold'
    echo
    echo 'Files: *'
    echo "$(grep -m 1 '^Copyright' LICENSE | sed 's/^Copyright/Copyright:/')"
    echo 'License: Expat'
    sed -e 's/^$/./' -e 's/^/ /' LICENSE
} >"$doc/copyright"
{
    echo "pinfold ($version) stable; urgency=medium"
    echo
    echo '  * Built from the source tree by make deb.'
    echo
    echo " -- Pinfold <pinfold@users.noreply.invalid>  $(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$build/pinfold-server")}")"
} | gzip -9n >"$doc/changelog.gz"
gzip -9n "$root"/usr/share/man/man[18]/*
install -D -m 0644 deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/pinfold"

# Libraries: those that the programs are linked with, in the versions that have their symbols.
printf 'Source: pinfold\n\nPackage: pinfold\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O pinfold/usr/bin/pinfold pinfold/usr/sbin/pinfold-server \
    pinfold/usr/libexec/pinfold/pinfold-runner pinfold/usr/libexec/pinfold/pinfold-runner-docker 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[[ -n $depends ]] || { echo 'deb: dpkg-shlibdeps found no library' >&2; exit 1; }
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@DEPENDS@/$depends/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f 1)/" \
    deploy/debian/control >"$root/DEBIAN/control"
(cd "$root" && find etc -type f | LC_ALL=C sort | sed 's|^|/|') >"$root/DEBIAN/conffiles"
install -m 0755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN/"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z |
    xargs -0 md5sum) >"$root/DEBIAN/md5sums"

dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
echo "$deb"
