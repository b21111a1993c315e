#!/usr/bin/env bash
# lint.sh BUILD -- clang-tidy over every source file of src/, with the compile commands of the build folder BUILD.
# LINT_SECONDS (default 1200) is the time limit; running out of it is a failure.
set -euo pipefail
build=${1:?usage: lint.sh BUILD}; cd "$(dirname "$0")/.."
for needed in "$build/compile_commands.json" "$(command -v clang-tidy-14)"; do
  [ -e "$needed" ] || { echo "lint: cannot run: clang-tidy-14 or $build/compile_commands.json is missing" >&2; exit 3; }
done
mapfile -t files < <(git ls-files 'src/*.cpp')
[ ${#files[@]} -gt 0 ] || { echo "lint: no source file under src/" >&2; exit 3; }

# clang has no omp.h of its own here: GCC's folder is searched last, so that only what clang lacks comes from it.
checker=(clang-tidy-14 -p "$build" --quiet --extra-arg=-idirafter"$(g++ -print-file-name=include)"
         --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument)
printf '%s\0' "${files[@]}" |
  timeout "${LINT_SECONDS:-1200}" xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "${checker[@]}" 2> >(grep -v 'warnings\? generated' >&2) ||
  { echo "lint: clang-tidy found faults or ran out of its ${LINT_SECONDS:-1200} s" >&2; exit 1; }
echo "lint: ${#files[@]} files in order"
