#!/usr/bin/env bash
# mpirun.sh RANKS COMMAND... -- starts COMMAND on RANKS ranks of this machine, which may have fewer cores than that.
# For demonstrations and tests: on a cluster use srun or mpirun with the site's own settings (see jobscripts/).
# MPIRUN names another launcher than the mpirun on PATH.
set -euo pipefail
ranks=${1:?usage: mpirun.sh RANKS COMMAND...}; shift
launcher=${MPIRUN:-mpirun}
command -v "$launcher" >/dev/null || { echo "mpirun.sh: $launcher not found: run packaging/setup.sh" >&2; exit 3; }

# Ranks may share cores, so nothing is bound.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false}
case $("$launcher" --version 2>&1) in
  *"Open MPI"* | *OpenRTE* | *prte*)
    options=(--oversubscribe --bind-to none)
    # A rank that waits must give its core away: 16 ranks on 2 cores are 200 times slower otherwise.
    [ "$ranks" -le "$(nproc)" ] || export OMPI_MCA_mpi_yield_when_idle=1
    [ "$(id -u)" != 0 ] || options+=(--allow-run-as-root)
    ;;
  *HYDRA* | *MPICH* | *Intel*) options=() ;;  # oversubscribe without being asked
  *) echo "mpirun.sh: $launcher is neither Open MPI nor MPICH; start the program with it directly" >&2; exit 3 ;;
esac
exec "$launcher" ${options[@]+"${options[@]}"} -n "$ranks" "$@"
