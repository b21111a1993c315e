#!/usr/bin/env bash
# bench.sh TESTS-BUILD-FOLDER RESULTS -- runs every bench_* program on its own and stores what it measured:
#   RESULTS/NAME.json    Google Benchmark's own format, with date, host and CPU
#   RESULTS/README.md    machine, versions and one table of all results
# A program whose name ends in _mpi4 is started on four ranks.
set -euo pipefail
build=${1:?usage: bench.sh TESTS-BUILD-FOLDER RESULTS}; results=${2:?usage: bench.sh TESTS-BUILD-FOLDER RESULTS}
here=$(cd "$(dirname "$0")" && pwd)
mapfile -t programs < <(find "$build" -maxdepth 2 -type f -name 'bench_*' -perm -u+x | sort)
[ ${#programs[@]} -gt 0 ] || { echo "bench: no bench_* program under $build" >&2; exit 3; }

mkdir -p "$results"
status=0
json=()
for program in "${programs[@]}"; do
  name=$(basename "$program"); name=${name#bench_}
  ranks=1; [[ $name != *_mpi4 ]] || ranks=4
  echo "== $name"
  if "$here/mpirun.sh" "$ranks" "$program" --benchmark_out="$results/$name.json" --benchmark_out_format=json; then
    json+=("$results/$name.json")
  else
    echo "bench: $name failed" >&2; status=1
  fi
done
python3 "$here/bench_table.py" "$build/.." "${json[@]}" >"$results/README.md"
echo; cat "$results/README.md"
exit $status
