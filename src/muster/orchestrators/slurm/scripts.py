"""The two scripts of ours that run in nodes, as text. Nothing of them stays running.

Laws: `start` may be run at any time and any number of times: it starts what does not run and touches nothing that
does; a plan older than the node has seen is refused (exit 9); slurmd is started only once slurmctld listens, because
it sleeps a second after a refused connection.
"""

from __future__ import annotations

from typing import Final

REFUSED: Final = 9

START: Final = r"""#!/bin/bash
# start GENERATION NODE CONTROLLER SLURMD_CONF ROLE... : bring up this node's daemons.
set -u
generation=$1 node=$2 controller=$3 spec=$4; shift 4
roles=" $* "
C=/etc/cluster
stamp=/run/cluster-generation
exec 9<> <(:)
nap() { read -rt "$1" -u 9; }
fail() { echo "$*" >&2; exit 1; }

# one at a time on a node; an older plan is refused
exec 8>/run/cluster-lock
flock -w 20 8 || fail "another start is under way"
if [[ -r $stamp ]] && (( generation < $(<"$stamp") )); then echo "older plan" >&2; exit 9; fi
echo "$generation" > "$stamp"

runs() { # runs PIDFILE COMMAND
  local pid
  [[ -r $1 ]] && pid=$(<"$1") && [[ -r /proc/$pid/comm ]] && [[ $(<"/proc/$pid/comm") == "$2" ]]
}
mapfile -t hosts < $C/hosts
# whoever starts beside many others asks less often: the controller wants the processors
printf -v pause '0.%03d' $((${#hosts[@]} < 200 ? 8 + ${#hosts[@]} : 200))
knocked() { { exec 7<>"/dev/tcp/$1/$2"; } 2>/dev/null && exec 7>&-; }
await() { # await HOST PORT
  local end=$((SECONDS + 20))
  until knocked "$1" "$2"; do
    (( SECONDS < end )) || fail "$1 does not listen on port $2"
    nap "$pause"
  done
}
log() { echo "/var/log/slurm/$1.log"; }

if [[ ! -d /run/slurm ]]; then
  install -d -o munge -g munge /run/munge
  install -d -o slurm -g slurm /run/slurm /var/spool/slurmctld /var/log/slurm
  mkdir -p /run/sshd /var/spool/slurmd
fi

runs /run/munge/munged.pid munged ||
  setpriv --reuid=munge --regid=munge --clear-groups munged --force --key-file=$C/munge.key 8>&- 9>&- ||
  fail "munged did not start"

as_slurm() { setpriv --reuid=slurm --regid=slurm --clear-groups "$@" 8>&- 9>&- </dev/null; }
accounting() { # the database, then slurmdbd: both before slurmctld looks for them
  local data=/var/lib/slurmdb
  install -d -o slurm -g slurm /run/mysqld $data
  [[ -d $data/mysql ]] || as_slurm mariadb-install-db --no-defaults --datadir=$data --skip-test-db \
    --auth-root-authentication-method=socket --auth-root-socket-user=slurm >"$(log mariadb)" 2>&1 ||
    fail "the accounting database could not be made"
  if ! runs /run/mysqld/mariadbd.pid mariadbd; then
    rm -f /run/mysqld/mysqld.sock
    as_slurm mariadbd --no-defaults --datadir=$data --socket=/run/mysqld/mysqld.sock --skip-networking \
      --pid-file=/run/mysqld/mariadbd.pid --innodb-buffer-pool-size=32M >>"$(log mariadb)" 2>&1 &
    for ((i = 0; i < 600; i++)); do [[ -S /run/mysqld/mysqld.sock ]] && break; nap 0.03; done
  fi
  runs /run/slurm/slurmdbd.pid slurmdbd || slurmdbd 8>&- 9>&- || fail "slurmdbd did not start"
  await "$node" 6819
}

if [[ $roles == *" controller "* ]]; then
  digest=$(<$C/slurm.digest)
  [[ ! -e $C/slurm/slurmdbd.conf ]] || accounting
  # where accounting goes is read at the start only; and nodes named anew by a reconfigure would cost the others
  conf=$(<$C/slurm/slurm.conf); storage=${conf#*AccountingStorageType=}; storage=${storage%%$'\n'*}
  if [[ $conf == *$'\n'NodeName=* ]]; then conf=${conf#*$'\n'NodeName=}; storage+=" ${conf%%$'\n'*}"; fi
  before=$storage; [[ -r /run/slurm-storage ]] && before=$(</run/slurm-storage)
  end_controller() { # its state is kept, and jobs run on
    scontrol shutdown slurmctld
    for ((i = 0; i < 300; i++)); do runs /run/slurm/slurmctld.pid slurmctld || break; nap 0.05; done
  }
  if [[ $before != "$storage" ]] && runs /run/slurm/slurmctld.pid slurmctld; then end_controller; fi
  echo "$storage" > /run/slurm-storage
  if runs /run/slurm/slurmctld.pid slurmctld; then
    # some things are read at the start only
    [[ -r /run/slurm-digest && $(</run/slurm-digest) == "$digest" ]] || scontrol reconfigure || end_controller
  fi
  if ! runs /run/slurm/slurmctld.pid slurmctld; then
    again=; [[ -e /var/spool/slurmctld/node_state ]] && again=1
    slurmctld 8>&- 9>&- || fail "slurmctld did not start: $(tail -n 3 "$(log slurmctld)" 2>/dev/null)"
    await "$node" 6817
    # without this, dynamic nodes lose their GPUs after a restart of slurmctld
    [[ -z $again ]] || scontrol reconfigure
  fi
  echo "$digest" > /run/slurm-digest
fi

if [[ $roles == *" login "* && ! -d /home/ubuntu ]]; then # shared: one node makes it for all
  cp -rT /etc/skel /home/ubuntu && chown -R ubuntu:ubuntu /home/ubuntu
fi
runs /run/sshd.pid sshd || /usr/sbin/sshd -f $C/ssh/sshd_config 8>&- 9>&- || fail "sshd did not start"

# last, because it waits for the controller
if [[ $roles == *" worker "* ]]; then
  if ! runs /run/slurm/slurmd.pid slurmd; then
    await "$controller" 6817
    slurmd -Z -N "$node" --conf "$spec" 8>&- 9>&- ||
      fail "slurmd did not start: $(tail -n 3 "$(log slurmd)" 2>/dev/null)"
  fi
fi

# the tenant's own, once per content; a failure is told and does not stop the node
once() { # once NAME
  local script=$C/init/$1 mark=/run/cluster-init-$1
  [[ -r $script ]] || return 0
  cmp -s "$script" "$mark" && return 0
  "$script" 8>&- 9>&- </dev/null >"/var/log/$1.log" 2>&1 ||
    echo "$1 script failed with $?; see /var/log/$1.log on $node"
  cp "$script" "$mark"
}
once lifecycle
[[ $roles == *" login "* ]] && once login
[[ $roles == *" worker "* ]] && once nodeset
exit 0
"""

JOINED: Final = r"""#!/bin/bash
# joined SECONDS NODE... : wait until slurmctld counts these nodes as present; print all it knows and their states.
end=$((SECONDS + $1)); shift
exec 9<> <(:)
printf -v pause '0.%03d' $(($# < 150 ? 25 + 5 * $# : 775)) # while many start, asking takes from them
while :; do
  known=$(sinfo -h -N -o '%N %T' 2>&1)
  missing=0
  for node; do
    case $'\n'"$known"$'\n' in
      *$'\n'"$node "[!du]*) ;;
      *$'\n'"$node dra"*) ;;
      *) missing=1; break ;;
    esac
  done
  (( missing && SECONDS < end )) || break
  read -rt "$pause" -u 9
done
echo "$known"
"""
