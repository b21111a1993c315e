#!/usr/bin/env bash
# get-kokkos.sh [DESTDIR] -- prints the path of an unpacked Kokkos source tree.
# Debian 12 has no Kokkos package of its own; Kokkos 3.4.01 comes inside its trilinos source package (about 166 MB, 5 s).
# Meant for machines without a site Kokkos: prefer find_package(Kokkos), a module or Spack where there is one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); dest=${1:-$PWD/src}; mkdir -p "$dest"; dest=$(cd "$dest" && pwd)
out=$dest/kokkos-3.4.01
if [ ! -e "$out/.ok" ]; then
  DOWNLOAD_ONLY=1 "$here/get-source.sh" trilinos "$dest" bookworm >&2
  rm -rf "$out"; mkdir -p "$out"
  tar -xzf "$dest"/trilinos_13.2.0.orig.tar.gz -C "$out" --strip-components=3 --wildcards '*/packages/kokkos/*'
  touch "$out/.ok"
fi
echo "$out"
