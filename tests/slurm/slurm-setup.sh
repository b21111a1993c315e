#!/usr/bin/env bash
# slurm-setup.sh start|stop STATE -- a one-node Slurm for tests: as root, without systemd, without an accounting database.
# Everything lives in the folder STATE: configuration, its own munge key and socket, logs, pid files. `start` writes
# STATE/slurm.conf, to be exported as SLURM_CONF; `stop` ends the daemons that `start` began, by their pid files.
# The node claims CPUS (default 16) whatever the machine has, so that a 16-rank job fits anywhere.
set -euo pipefail
action=${1:?usage: slurm-setup.sh start|stop STATE}; state=${2:?usage: slurm-setup.sh start|stop STATE}
cpus=${CPUS:-16} memory_mib=${MEMORY_MIB:-16000}
export PATH=$PATH:/usr/sbin SLURM_CONF=$state/slurm.conf

free_port() {  # prints a TCP port nobody listens on
  local port
  for port in $(shuf -i 20000-29999 -n 50); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi
  done
  echo "slurm-setup.sh: no free port between 20000 and 29999" >&2; return 1
}

write_configuration() {
  local host; host=$(hostname -s)
  cat >"$SLURM_CONF" <<CONF
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge.socket,cred_expire=5
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.pid
StateSaveLocation=$state/state
SlurmdSpoolDir=$state/spool
SlurmctldLogFile=$state/log/slurmctld.log
SlurmdLogFile=$state/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
ReturnToService=2
MinJobAge=3600
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory_mib State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=60:00 State=UP
CONF
}

start() {
  mkdir -p "$state"/{state,spool,log,munge}
  chmod 755 "$state" "$state"/{state,spool,log}; chmod 700 "$state/munge"
  dd if=/dev/urandom of="$state/munge/key" bs=1024 count=1 status=none; chmod 400 "$state/munge/key"
  write_configuration
  munged --key-file="$state/munge/key" --socket="$state/munge.socket" --pid-file="$state/munged.pid" \
         --log-file="$state/munge/log" --seed-file="$state/munge/seed"
  slurmctld
  slurmd
  for _ in $(seq 80); do
    if sinfo -h -o %T 2>/dev/null | grep -q idle; then return 0; fi
    sleep 0.25
  done
  echo "slurm-setup.sh: the node did not become idle within 20 s:" >&2
  sinfo >&2 || true
  tail -n 5 "$state"/log/*.log >&2
  return 1
}

stop() {
  local daemon pid
  for daemon in slurmd slurmctld munged; do
    [ -s "$state/$daemon.pid" ] || continue
    pid=$(cat "$state/$daemon.pid")
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 40); do kill -0 "$pid" 2>/dev/null || break; sleep 0.25; done
  done
}

case $action in
  start | stop) "$action" ;;
  *) echo "slurm-setup.sh: unknown action $action" >&2; exit 2 ;;
esac
