#!/usr/bin/env bash
# run.sh [BINARY] -- the job scripts against a real one-node Slurm, started for this test alone and stopped after it.
# Needs root, slurm-wlm and munge (packaging/setup.sh --ci); where it cannot run it says so and fails.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd); cd "$root"
binary=$(realpath -m "${1:-build/release/src/spillway}")
export PATH=$PATH:/usr/sbin
for needed in slurmctld slurmd munged sbatch srun; do
  command -v "$needed" >/dev/null || { echo "slurm test: cannot run: $needed is missing (packaging/setup.sh --ci)" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "slurm test: cannot run: starting Slurm's daemons needs root" >&2; exit 3; }
[ -x "$binary" ] || { echo "slurm test: cannot run: no program at $binary" >&2; exit 3; }

state=$(mktemp -d /tmp/spillway-slurm.XXXXXX)
finish() { tests/slurm/slurm-setup.sh stop "$state"; rm -rf "$state"; }
trap finish EXIT
tests/slurm/slurm-setup.sh start "$state"
export SLURM_CONF=$state/slurm.conf BINARY=$binary
# Few cores, many ranks: ranks that wait must give way, and none may be bound.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMP_PROC_BIND=false
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

passed=0 failed=0
verdict() {  # verdict NAME STATUS: counts a check
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok      $1"; else failed=$((failed + 1)); echo "FAILED  $1"; fi
}
check() { local name=$1 status=0; shift; "$@" || status=$?; verdict "$name" "$status"; }

submit() {  # submit NAME SBATCH-ARGUMENTS...: runs a job to its end, at most 5 minutes; shows its output if it fails
  local name=$1 status=0; shift
  timeout 300 sbatch --wait --output="$state/$name-%a.out" "$@" >/dev/null || status=$?
  if [ "$status" != 0 ]; then tail -n 30 "$state/$name"-*.out; fi
  return "$status"
}
complete() {  # complete OUTPUT-FOLDER JOB-OUTPUT: one line per policy, all VALID, and a result file
  [ -s "$1/result.json" ] && grep -qE '^(FOM|PROJECTED) .* status=VALID$' "$2" &&
    ! grep -E '^(FOM|PROJECTED) ' "$2" | grep -qv ' status=VALID$'
}

short='--set training.iterations=3 --set routing.preset=balanced'
OUTPUT=$state/demo EXTRA=$short check "slurm-demo.sh under srun" submit demo --export=ALL jobscripts/slurm-demo.sh
check "  its result and figures" complete "$state/demo" "$state/demo-4294967294.out"

OUTPUT=$state/mpirun LAUNCHER=mpirun EXTRA=$short check "slurm-demo.sh under mpirun" submit mpirun --export=ALL jobscripts/slurm-demo.sh
check "  its result and figures" complete "$state/mpirun" "$state/mpirun-4294967294.out"

# 1 stage, expert groups of 4: 4, 8 and 16 ranks. All layers on one stage need more memory than the demo's cap.
PIPELINE_PARALLEL=1 DATA_PARALLEL="4 8 16" OUTPUT=$state/weak EXTRA="$short --set memory.cap=1TiB" \
  check "slurm-weak-scaling.sh" submit weak --array=0-2 --ntasks=16 --export=ALL jobscripts/slurm-weak-scaling.sh
for element in 0 1 2; do
  ranks=$((4 << element))
  check "  result and figures of $ranks ranks" complete "$state/weak/$ranks" "$state/weak-$element.out"
done

# Without PMIx every task is a job of its own: that must be refused, not run four times.
refused() {
  local status=0
  timeout 120 srun --mpi=none -n 4 "$binary" run inputs/runs/demo.toml --output "$state/none" >"$state/none.out" 2>&1 || status=$?
  if [ "$status" != 3 ] || [ -e "$state/none" ]; then
    echo "srun --mpi=none: exit code $status instead of 3:"; tail -n 20 "$state/none.out"; return 1
  fi
}
check "srun without PMIx is refused with exit code 3" refused

echo "slurm test: $passed passed, $failed failed"
[ "$failed" = 0 ]
