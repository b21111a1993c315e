#!/usr/bin/env bash
# setup.sh [--ci] -- installs or finds everything the project is built from; says what it installs before it does so,
# and nothing when all is there.
#   Debian, as root: missing packages through apt. Elsewhere: a list of what was found and what to load, exit code 3.
#   A site's own MPI, BLAS and libraries are used where CMake finds them; Kokkos likewise (CMAKE_PREFIX_PATH,
#   Kokkos_ROOT, a module), else it is built into deps/kokkos in about 20 s.
#   --ci  also what only .ci/run needs: clang-format, clang-tidy, Slurm, matplotlib
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

build_packages=(g++ cmake ninja-build make git pkg-config ca-certificates libdnnl-dev libopenblas-dev libcli11-dev
  libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-jsonschema dpkg-dev)
mpi_packages=(openmpi-bin libopenmpi-dev)
ci_packages=(clang-format-14 clang-tidy-14 slurm-wlm munge python3-matplotlib)

tools=(g++ cmake ninja make git pkg-config python3)
wanted=("${build_packages[@]}")
case ${1:-} in
  "") ;;
  --ci) wanted+=("${ci_packages[@]}"); tools+=(clang-format-14 clang-tidy-14 slurmctld munged) ;;
  *) echo "usage: setup.sh [--ci]" >&2; exit 2 ;;
esac
export PATH=$PATH:/usr/sbin
have() { command -v "$1" >/dev/null; }
if ! { have mpicxx && have mpirun; }; then wanted+=("${mpi_packages[@]}"); fi

missing_packages() {  # prints the wanted packages that are not installed
  local package
  have dpkg-query || { printf '%s\n' "${wanted[@]}"; return; }
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

probe() {  # prints "found ..." and "missing ..." lines for libraries and tools, wherever they come from
  local folder tool
  for tool in "${tools[@]}"; do
    if have "$tool"; then echo "found $tool: $(command -v "$tool")"; else echo "missing $tool: load it or ask the site"; fi
  done
  if ! { have cmake && have ninja; }; then echo "missing libraries: not looked for, as cmake or ninja is missing"; return; fi
  folder=$(mktemp -d)
  cmake -G Ninja -S "$root/packaging/probe" -B "$folder" 2>&1 | grep -E '^(found|missing) |CMake Error' || true
  rm -rf "$folder"
}

kokkos_found() {
  compgen -G "$root/deps/kokkos/lib*/cmake/Kokkos/KokkosConfig.cmake" >/dev/null || probe | grep -q '^found Kokkos'
}

install_packages() {
  local try
  echo "setup: installing Debian packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  for try in 1 2 3; do
    if apt-get -qq update && apt-get -qq -y --no-install-recommends install "$@" >/dev/null; then return 0; fi
    echo "setup: apt-get failed (attempt $try of 3)" >&2
    sleep $((5 * try))
  done
  return 1
}

build_kokkos() {
  local work=$root/deps/kokkos-build
  echo "setup: no Kokkos found; fetching Kokkos 3.4.01 (about 166 MB, removed afterwards) and building it into deps/kokkos"
  rm -rf "$work" "$root/deps/kokkos"; mkdir -p "$work"
  local source
  if source=$("$root/packaging/get-kokkos.sh" "$work/source" 2>"$work/log") &&
     JOBS=${JOBS:-$(nproc)} "$root/packaging/build-kokkos.sh" "$source" "$root/deps/kokkos" "$work/build" >>"$work/log" 2>&1; then
    rm -rf "$work"
  else
    tail -n 20 "$work/log" >&2
    rm -rf "$root/deps/kokkos"
    echo "setup: Kokkos could not be built (whole log: deps/kokkos-build/log). Load a module or set Kokkos_ROOT." >&2
    exit 3
  fi
}

explain() {  # what a user without root or apt has to do
  echo "setup: nothing can be installed here ($1)."
  echo "Load these, for example with 'module load' or Spack, or name their place in CMAKE_PREFIX_PATH, and run again:"
  grep '^missing' <<<"$2" | sed 's/^missing /  /'
  echo "Found:"
  grep '^found' <<<"$2" | sed 's/^found /  /'
  if have apt-get; then echo "Or, as root: apt-get install $3"; fi
  exit 3
}

mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && have apt-get; then
    install_packages "${missing[@]}" || explain "apt-get failed" "$(probe)" "${missing[*]}"
  else
    # Not by package manager, perhaps, but there: a site's own libraries.
    found=$(probe)
    reason="not root"; have apt-get || reason="no apt"
    if grep -v '^missing Kokkos' <<<"$found" | grep -q '^missing\|^CMake Error'; then
      explain "$reason" "$found" "${missing[*]}"
    fi
  fi
fi
kokkos_found || build_kokkos
