#!/usr/bin/env bash
#SBATCH --job-name=spillway-demo
#SBATCH --ntasks=16
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=spillway-demo-%j.out
# The demo, or any other case, as one Slurm job.
#   sbatch jobscripts/slurm-demo.sh
#   sbatch --ntasks=32 --export=ALL,CASE=my.toml jobscripts/slurm-demo.sh
set -euo pipefail

BINARY=${BINARY:-build/release/src/spillway}    # the program; relative to the folder of submission
CASE=${CASE:-inputs/runs/demo.toml}             # what to run; its rank count must be --ntasks
OUTPUT=${OUTPUT:-results/local/demo-$SLURM_JOB_ID}
LAUNCHER=${LAUNCHER:-srun --mpi=pmix}           # or: mpirun
EXTRA=${EXTRA:-}                                # more options of `spillway run`, for example --set training.iterations=20

# One compute thread per rank; a rank's network thread shares its cores.
# srun takes over the job's cores per task only when told.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false}

echo "$LAUNCHER -n $SLURM_NTASKS $BINARY run $CASE --output $OUTPUT $EXTRA"
# shellcheck disable=SC2086  # LAUNCHER and EXTRA are lists of words
exec $LAUNCHER -n "$SLURM_NTASKS" "$BINARY" run "$CASE" --output "$OUTPUT" $EXTRA
