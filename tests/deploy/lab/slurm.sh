#!/usr/bin/env bash
# deploy/slurm on a controller and two nodes, which are namespaces of a Debian root: runs, the service, scancel, dask-jobqueue.
set -euo pipefail
target=slurm
here=$(dirname "$0")
# shellcheck source=tests/deploy/lab/common.sh
. "$here/common.sh"

root="$LAB/roots/node"
HOSTS=(ctl n1 n2)
USER_ID=2001
python=/opt/mgclust/bin/python

# inside HOST COMMAND...: as root; as HOST COMMAND...: as a user, in the folder that all nodes share.
inside() {
    local host=$1
    shift
    nsenter --target "$(cat "$work/$host.pid")" --mount --net --pid --uts --ipc -- "$@"
}
as() {
    local host=$1
    shift
    inside "$host" setpriv --reuid="$USER_ID" --regid="$USER_ID" --clear-groups --no-new-privs \
        env --chdir=/shared HOME=/shared PATH=/opt/mgclust/bin:/usr/bin:/bin MGCLUST_ENV=/opt/mgclust "$@"
}

configure() {
    make_node
    chroot "$root" id ann 2>/dev/null || chroot "$root" useradd --uid "$USER_ID" --home-dir /shared --shell /bin/bash ann
    mkdir -p "$root/shared" "$root/etc/slurm" "$work/shared"
    cp "$SOURCE"/deploy/slurm/* "$work/shared/"
    chown -R "$USER_ID:$USER_ID" "$work/shared"
    [[ -s "$root/etc/munge/munge.key" ]] || (umask 077 && head -c 128 /dev/urandom >"$root/etc/munge/munge.key")
    chroot "$root" chown -R munge: /etc/munge
    printf '127.0.0.1 localhost\n10.213.78.1 ctl\n10.213.78.11 n1\n10.213.78.12 n2\n' >"$root/etc/hosts"
    # CPUs and memory are said and not found out; no accounting, no control groups.
    cat >"$root/etc/slurm/slurm.conf" <<'END'
ClusterName=lab
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/lab/slurmctld.log
SlurmdLogFile=/var/log/lab/slurmd-%h.log
MpiDefault=none
NodeName=n[1-2] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    echo 'CgroupPlugin=disabled' >"$root/etc/slurm/cgroup.conf"
    mkdir -p "$root/var/log/lab"
}

start() {
    local host address=1
    ip netns add lab-ctl
    ip -n lab-ctl link add eth0 type bridge
    ip -n lab-ctl link set eth0 up
    ip -n lab-ctl address add 10.213.78.1/24 dev eth0
    ip -n lab-ctl link set lo up
    for host in n1 n2; do
        ip netns add "lab-$host"
        ip -n lab-ctl link add "to-$host" type veth peer name eth0 netns "lab-$host"
        ip -n lab-ctl link set "to-$host" master eth0 up
        ip -n "lab-$host" address add "10.213.78.1$address/24" dev eth0
        ip -n "lab-$host" link set eth0 up
        ip -n "lab-$host" link set lo up
        address=$((address + 1))
    done
    declare -f enter_root >"$work/init.sh"
    cat >>"$work/init.sh" <<'END'
set -e
host=$1 root=$2 shared=$3 logs=$4
enter_root "$root" "$shared" /shared "$logs" /var/log/lab
mount -t tmpfs tmpfs /var/spool
hostname "$host"
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid=munge --regid=munge --init-groups munged --foreground &
install -d -o slurm -g slurm /var/spool/slurmctld /var/spool/slurmd
until munge --no-input >/dev/null; do sleep 0.2; done
# This shell stays the first process: it reaps what becomes its child, which Slurm would wait for in vain.
if [ "$host" = ctl ]; then
    setpriv --reuid=slurm --regid=slurm --init-groups slurmctld -D -i &
else
    slurmd -D -N "$host" &
fi
wait "$!"
END
    chmod 0777 "$work/slurm-logs"
    for host in "${HOSTS[@]}"; do
        (
            exec nsenter --net="/run/netns/lab-$host" unshare --mount --uts --ipc --pid --fork --kill-child \
                bash "$work/init.sh" "$host" "$root" "$work/shared" "$work/slurm-logs"
        ) >"$logs/$host.log" 2>&1 </dev/null &
        echo $! >"$work/$host.unshare"
        within 20 pgrep -P "$(cat "$work/$host.unshare")"
        pgrep -P "$(cat "$work/$host.unshare")" >"$work/$host.pid"
    done
    within 90 two_idle
}

two_idle() { inside ctl sinfo --noheader --Node --format '%N %t' | tee "$work/sinfo.txt" && [[ "$(grep -c ' idle$' "$work/sinfo.txt")" -eq 2 ]]; }

stop() {
    set +e
    local host pid
    for host in n2 n1 ctl; do
        [[ -e "$work/$host.pid" ]] && for pid in $(cat "$work/$host.pid" "$work/$host.unshare"); do kill -KILL "$pid" 2>/dev/null; done
        rm -f "$work/$host.pid"
        ip netns delete "lab-$host" 2>/dev/null
    done
}

# Whether a job has ended, however it did; the job's log.
ended() { [[ -z "$(inside ctl squeue --noheader --jobs="$1" 2>/dev/null)" ]]; }
code_of() { inside ctl scontrol show job "$1" | grep -o 'ExitCode=[0-9]*:[0-9]*'; }
none_left() { [[ -z "$(find "$work/shared" -maxdepth 1 -name '.mgclust-*')" ]]; }

two_node_run() {
    local id
    as ctl "$python" -c 'import numpy as np; np.save("data.npy", np.random.default_rng(3).normal(size=(16000, 8)))'
    id=$(as ctl sbatch --parsable --nodes=2 mgclust.sbatch --cpu run density-peaks data.npy -o out --n-clusters 4)
    within 240 ended "$id"
    cat "$work/shared/mgclust-$id.log"
    code_of "$id" | grep -x 'ExitCode=0:0'
    grep '^4 workers at tls://' "$work/shared/mgclust-$id.log"
    as ctl "$python" -c '
import json
found = json.load(open("out/result.json"))
print(found["hardware"], found["scores"])
assert found["hardware"]["ranks"] == 4, found["hardware"]
'
    none_left
}

# As the same, so often that a fault which comes and goes is seen.
two_node_runs() {
    local _
    for _ in $(seq "$1"); do
        rm -rf "$work/shared/out"
        two_node_run
    done
}

workers_end() {
    local id
    id=$(as ctl sbatch --parsable --nodes=2 mgclust.sbatch --cpu serve --data /shared/alone)
    within 120 grep '^4 workers at tls://' "$work/shared/mgclust-$id.log"
    within 60 test -s "$work/shared/alone/token"
    inside n2 pkill -TERM -u "$USER_ID" -x dask
    within 90 ended "$id"
    cat "$work/shared/mgclust-$id.log"
    code_of "$id" | grep -x 'ExitCode=1:0'
    grep "^The workers of a node have ended, and so has the job: /shared/mgclust-$id-dask.log says why.$" "$work/shared/mgclust-$id.log"
    none_left
    within 60 two_idle
}

refusals() {
    local id
    id=$(as ctl sbatch --parsable mgclust.sbatch --cpu run no-such-method data.npy -o other)
    within 120 ended "$id"
    cat "$work/shared/mgclust-$id.log"
    code_of "$id" | grep -x 'ExitCode=2:0'
    id=$(as ctl sbatch --parsable mgclust.sbatch run density-peaks data.npy -o other)
    within 60 ended "$id"
    cat "$work/shared/mgclust-$id.log"
    code_of "$id" | grep -x 'ExitCode=2:0'
    grep -x 'Slurm gave this node no GPU: ask for some with --gpus-per-node=N, or pass --cpu.' "$work/shared/mgclust-$id.log"
    none_left
}

job() {
    as ctl env MGCLUST_URL=http://n1:8700 MGCLUST_TOKEN_FILE=/shared/service/token PYTHONWARNINGS=ignore "$python" - "$@" <"$here/job.py"
}

serve() {
    as ctl sbatch --parsable --nodes=1 --nodelist=n1 mgclust.sbatch --cpu serve --data /shared/service --host 0.0.0.0 >"$work/serve.id"
    within 120 test -s "$work/shared/service/token"
    within 60 inside ctl curl -sf http://n1:8700/healthz
    job wait "$(job submit density-peaks 3000 n_clusters=5 | tee "$work/id.txt")" 120 | tee "$work/density.txt"
    # What the node listens on beyond its loopback: the service, Slurm, and Dask, which takes TLS alone.
    inside n1 "$python" - <<'END'
import socket
import psutil

found = sorted({each.laddr.port for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.ip not in ("127.0.0.1", "::1")})
for port in found:
    if port in (8700, 6818):
        continue
    with socket.create_connection(("n1", port), 5) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n")
        plain.settimeout(5)
        try:
            answer = plain.recv(100)
        except (TimeoutError, ConnectionResetError):
            answer = b""
    assert not answer.startswith(b"HTTP"), (port, answer)
assert 8700 in found and len(found) > 2, found
print("ports beyond loopback:", found)
END
}

cancel_and_go_on() {
    local id
    id=$(cat "$work/serve.id")
    inside ctl scancel "$id"
    within 120 ended "$id"
    cat "$work/shared/mgclust-$id.log"
    within 30 none_left
    within 30 two_idle
    # The next batch job continues with the queue.
    as ctl sbatch --parsable --nodes=1 --nodelist=n1 mgclust.sbatch --cpu serve --data /shared/service --host 0.0.0.0 >"$work/serve.id"
    within 120 inside ctl curl -sf http://n1:8700/healthz
    job wait "$(cat "$work/id.txt")" 20 | diff - "$work/density.txt"
    inside ctl scancel "$(cat "$work/serve.id")"
    within 120 ended "$(cat "$work/serve.id")"
    within 30 none_left
}

jobqueue() {
    within 60 two_idle
    as ctl env PYTHONWARNINGS=ignore timeout 240 "$python" jobqueue.py data.npy certs --jobs 2 --cpu --cores 1 --memory 1GB \
        --interface eth0 | tee "$work/jobqueue.txt"
    grep 'clusters on 2 ranks' "$work/jobqueue.txt"
    within 60 two_idle
}

need mmdebstrap ip nsenter unshare pivot_root pgrep
begin
mkdir -p "$work/slurm-logs"
trap stop EXIT
stop
set -e
step 1200 'a Debian root with Slurm and mgclust' configure
step 150 'a controller and two nodes, both idle' start
step 300 'a run on two nodes, four workers' two_node_run
step 900 'ten more of them, each right' two_node_runs 10
step 300 'the workers of a node end: so does the job, with a sentence' workers_end
step 200 'a wrong command and a node without GPU: exit code 2, a sentence, nothing left' refusals
step 300 'the service in a job, a job of it, its ports' serve
step 420 'scancel: nothing left; the next job continues with the queue' cancel_and_go_on
step 330 'jobqueue.py: two workers by dask-jobqueue' jobqueue
