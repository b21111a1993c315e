#!/usr/bin/env bash
#SBATCH --job-name=spillway-weak
#SBATCH --array=0-2
#SBATCH --ntasks=64
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --output=spillway-weak-%A_%a.out
# Weak scaling: every array element runs the case with another number of data-parallel ranks. The micro-batches of a
# rank stay the same, so the work per rank is fixed and the global batch grows with the ranks.
#   sbatch jobscripts/slurm-weak-scaling.sh
#   sbatch --array=0-4 --ntasks=512 --export=ALL,DATA_PARALLEL="8 16 32 64 128" jobscripts/slurm-weak-scaling.sh
# --array covers the entries of DATA_PARALLEL; --ntasks is the largest PIPELINE_PARALLEL x DATA_PARALLEL. Every element
# is given the largest allocation; to save it, submit one size at a time (--array=1 --ntasks=32).
set -euo pipefail

BINARY=${BINARY:-build/release/src/spillway}    # the program; relative to the folder of submission
CASE=${CASE:-inputs/runs/demo.toml}             # the case at its smallest size
OUTPUT=${OUTPUT:-results/local/weak-$SLURM_ARRAY_JOB_ID}  # one folder per rank count is made in it
PIPELINE_PARALLEL=${PIPELINE_PARALLEL:-4}       # stages of the case
DATA_PARALLEL=${DATA_PARALLEL:-4 8 16}          # one entry per array element; multiples of the case's expert_parallel
LAUNCHER=${LAUNCHER:-srun --mpi=pmix}           # or: mpirun
EXTRA=${EXTRA:-}                                # more options of `spillway run`

read -ra sizes <<<"$DATA_PARALLEL"
data_parallel=${sizes[$SLURM_ARRAY_TASK_ID]:?no entry $SLURM_ARRAY_TASK_ID in DATA_PARALLEL}
ranks=$((PIPELINE_PARALLEL * data_parallel))
if [ "$ranks" -gt "$SLURM_NTASKS" ]; then
  echo "$ranks ranks = PIPELINE_PARALLEL $PIPELINE_PARALLEL x data_parallel $data_parallel, but --ntasks=$SLURM_NTASKS" >&2
  exit 2
fi

# srun takes over the job's cores per task only when told.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false}

mkdir -p "$OUTPUT"
echo "$LAUNCHER -n $ranks $BINARY run $CASE, data_parallel $data_parallel, into $OUTPUT/$ranks"
# shellcheck disable=SC2086  # LAUNCHER and EXTRA are lists of words
exec $LAUNCHER -n "$ranks" "$BINARY" run "$CASE" --output "$OUTPUT/$ranks" \
  --set "parallel.pipeline_parallel=$PIPELINE_PARALLEL" --set "parallel.data_parallel=$data_parallel" $EXTRA
