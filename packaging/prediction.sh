#!/usr/bin/env bash
# prediction.sh SPILLWAY FILE -- three times: measures this machine on two ranks (spillway calibrate), then runs
# inputs/runs/bench.toml on two ranks on the wall clock with what was measured, in two layouts. FILE gets what the runs
# themselves print of their prediction. Needs two idle cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
spillway=${1:?usage: prediction.sh SPILLWAY FILE}; file=${2:?usage: prediction.sh SPILLWAY FILE}
folder=$(mktemp -d); trap 'rm -rf "$folder" "$file.new"' EXIT
machine=$folder/machine.toml

{
  echo "Seconds of an iteration by a machine file just measured, against those of wall-clock runs on two ranks."
  echo "Written by packaging/prediction.sh with $("$spillway" --version)."
  for repetition in 1 2 3; do
    rm -f "$machine"
    "$here/mpirun.sh" 2 "$spillway" calibrate --output "$machine" >"$folder/calibrate.txt"
    [ $repetition -gt 1 ] || sed -n 1,2p "$folder/calibrate.txt"
    for layout in "data_parallel=2 --set parallel.expert_parallel=2" pipeline_parallel=2; do
      # shellcheck disable=SC2086
      "$here/mpirun.sh" 2 "$spillway" run "$here/../inputs/runs/bench.toml" --set parallel.$layout --set machine="$machine" \
        --set training.iterations=5 --output "$folder/$repetition-$layout" >"$folder/run.txt"
      printf '\n%s, calibration %s:\n' "${layout//--set parallel./}" $repetition
      sed -n "/^prediction/p; /^FOM/p" "$folder/run.txt"
    done
  done
} >"$file.new"
mv "$file.new" "$file"
