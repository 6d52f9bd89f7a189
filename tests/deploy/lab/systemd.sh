#!/usr/bin/env bash
# deploy/systemd in a Debian root that systemd-nspawn boots: the unit checked, a job in its sandbox, restarts, kill -9, backup.
set -euo pipefail
target=systemd
here=$(dirname "$0")
# shellcheck source=tests/deploy/lab/common.sh
. "$here/common.sh"

root="$LAB/roots/node"
machine=mgclust-lab

leader() {
    pgrep -P "$(cat "$work/nspawn.pid")" -x systemd
}
inside() {
    nsenter --target "$(leader)" --mount --net --pid --uts --ipc -- "$@"
}
job() {
    inside env MGCLUST_URL=http://127.0.0.1:8700 MGCLUST_TOKEN_FILE=/var/lib/mgclust/token PYTHONWARNINGS=ignore \
        /opt/mgclust/bin/python - "$@" <"$here/job.py"
}

# As README.md says, with a setting as a file that systemd hands over.
install_unit() {
    make_node
    chroot "$root" systemctl disable slurmctld slurmd munge 2>/dev/null || true
    chroot "$root" id mgclust 2>/dev/null ||
        chroot "$root" useradd --system --home-dir /var/lib/mgclust --shell /usr/sbin/nologin mgclust
    rm -rf "$root/var/lib/mgclust" "$root/var/cache/mgclust" "$root/etc/mgclust" "$root/backup"
    install -D -m 0644 "$SOURCE/deploy/systemd/mgclust.service" "$root/etc/systemd/system/mgclust.service"
    mkdir -p "$root/etc/mgclust" "$root/etc/systemd/system/mgclust.service.d" "$root/backup"
    printf 'MGCLUST_SERVICE_CPU=true\nMGCLUST_SERVICE_CHECKPOINT_SECONDS=1\n' >"$root/etc/mgclust/mgclust.env"
    (umask 077 && echo 'sqlite:////var/lib/mgclust/service.db' >"$root/etc/mgclust/database")
    cat >"$root/etc/systemd/system/mgclust.service.d/database.conf" <<'END'
[Service]
LoadCredential=database:/etc/mgclust/database
Environment=MGCLUST_SERVICE_DATABASE_FILE=%d/database
END
    chroot "$root" systemctl enable mgclust
}

verify() {
    # By the root's own version; what it says of other units is not ours.
    chroot "$root" systemd-analyze verify /etc/systemd/system/mgclust.service 2>&1 | tee "$work/verify.txt"
    never grep -q 'mgclust' "$work/verify.txt"
}

security() {
    # Above 2.5 of 10 the unit has lost some of its sandbox.
    chroot "$root" systemd-analyze security --offline=true --threshold=25 /etc/systemd/system/mgclust.service | tail -n 3
}

boot() {
    # Its own filter of system calls, which a machine without a container does not have, would hide Landlock in older versions.
    systemd-nspawn --quiet --directory="$root" --machine="$machine" --private-network --register=no --keep-unit \
        --system-call-filter='landlock_create_ruleset landlock_add_rule landlock_restrict_self' --boot >"$logs/console.log" 2>&1 </dev/null &
    echo $! >"$work/nspawn.pid"
    within 30 leader
    within 90 active
    within 30 token
}

active() { [[ "$(inside systemctl is-active mgclust)" == active ]]; }
token() { inside test -s /var/lib/mgclust/token; }
healthz() { inside curl -sf --max-time 5 http://127.0.0.1:8700/healthz; }

shut_down() {
    set +e
    if [[ -e "$work/nspawn.pid" ]]; then
        leader >/dev/null && inside systemctl poweroff --force
        for ((tries = 0; tries < 60; tries++)); do
            kill -0 "$(cat "$work/nspawn.pid")" 2>/dev/null || break
            sleep 0.5
        done
        kill -KILL "$(leader)" "$(cat "$work/nspawn.pid")" 2>/dev/null
        rm -f "$work/nspawn.pid"
    fi
}

# So long that there is time to disturb it on a fast machine.
LONG=(affinity-propagation 1500 max_iter=6000 convergence_iter=6000)

a_job() {
    within 30 healthz
    job wait "$(job submit density-peaks 3000 n_clusters=5 | tee "$work/id.txt")" 120 | tee "$work/density.txt"
    job wait "$(job submit "${LONG[@]}" | tee "$work/long.id")" 280 | tee "$work/undisturbed.txt"
    job log "$(cat "$work/long.id")" | has_not 'no checkpoints'
    job points "$(cat "$work/id.txt")"
    # What a job compiles is kept for its user.
    inside sh -c 'find /var/lib/mgclust/cache/users -name "*.nbc" | head -n 3' | tee "$work/compiled.txt"
    grep -q . "$work/compiled.txt"
    landlock_as_here "$(inside journalctl --no-pager --unit mgclust)"
    # At its socket, without a URL.
    inside setpriv --reuid=mgclust --regid=mgclust --clear-groups env MGCLUST_SERVICE_DATA=/var/lib/mgclust HOME=/var/lib/mgclust \
        /opt/mgclust/bin/mgclust jobs --json | grep "$(cat "$work/id.txt")"
}

sandbox() {
    local main
    main=$(inside systemctl show --property MainPID --value mgclust)
    grep -E '^(Uid|NoNewPrivs|Seccomp|CapEff|CapBnd):' "/proc/$(outer "$main")/status" | tee "$work/status.txt"
    grep -q '^NoNewPrivs:[[:space:]]*1' "$work/status.txt"
    grep -q '^Seccomp:[[:space:]]*2' "$work/status.txt"
    grep -q '^CapBnd:[[:space:]]*0*$' "$work/status.txt"
    # The credential is for the service alone; its environment has the path and not the content.
    tr '\0' '\n' <"/proc/$(outer "$main")/environ" | tee "$work/environ.txt"
    grep -q '^MGCLUST_SERVICE_DATABASE_FILE=' "$work/environ.txt" || inside systemctl cat mgclust | grep -q DATABASE_FILE
    has_not 'sqlite:' <"$work/environ.txt"
    [[ "$(inside stat -c '%a %U' /var/lib/mgclust)" == "700 mgclust" ]]
    inside ss --listening --numeric --tcp --no-header | tee "$work/ports.txt"
    awk '$4 !~ /^(127\.0\.0\.1|\[::1\]):/ {bad = 1} END {exit bad}' "$work/ports.txt"
}

# The number that a process of the machine has out here.
outer() {
    grep -l "^NSpid:.*[[:space:]]$1\$" /proc/[0-9]*/status 2>/dev/null |
        while read -r file; do
            [[ "$(readlink "${file%/status}/ns/pid")" == "$(readlink "/proc/$(leader)/ns/pid")" ]] || continue
            basename "${file%/status}"
        done | head -n 1
}

has_checkpoint() { inside sh -c "ls -d /var/lib/mgclust/jobs/$1/checkpoint/*/checkpoint-*"; }

same_labels() { diff <(awk '{print $2}' "$work/undisturbed.txt") <(awk '{print $2}' "$1"); }

resumed() {
    job log "$1" | tee "$work/log.txt"
    sed -n '/attempt 2/,$p' "$work/log.txt" | grep -w resume
}

restart_mid_job() {
    local id
    id=$(job submit "${LONG[@]}")
    within 120 has_checkpoint "$id"
    inside systemctl restart mgclust
    within 60 healthz
    job wait "$id" 280 | tee "$work/restarted.txt"
    resumed "$id"
    same_labels "$work/restarted.txt"
}

kill_all() {
    local id
    id=$(job submit "${LONG[@]}")
    within 120 has_checkpoint "$id"
    inside systemctl kill --kill-whom=all --signal=KILL mgclust
    within 60 healthz
    job wait "$id" 280 | tee "$work/killed.txt"
    resumed "$id"
    same_labels "$work/killed.txt"
    [[ "$(inside systemctl show --property NRestarts --value mgclust)" -ge 1 ]]
}

# As README.md says.
backup_and_restore() {
    local id
    id=$(cat "$work/id.txt")
    inside sqlite3 /var/lib/mgclust/service.db ".backup '/backup/service.db'"
    inside rsync -a --exclude 'service.db*' --exclude runner.lock /var/lib/mgclust/ /backup/
    inside systemctl stop mgclust
    inside sh -c 'rm -rf /var/lib/mgclust/* && cp -a /backup/. /var/lib/mgclust/ && chown -R mgclust: /var/lib/mgclust'
    inside systemctl start mgclust
    within 60 healthz
    job wait "$id" 20 | diff - "$work/density.txt"
    job wait "$(job submit density-peaks 3000 n_clusters=5)" 120
}

need mmdebstrap systemd-nspawn nsenter pgrep
begin
trap shut_down EXIT
step 1200 'a Debian root with systemd and mgclust, the unit installed' install_unit
step 60 'systemd-analyze verify' verify
step 60 'systemd-analyze security, at most 2.5' security
step 180 'booted in systemd-nspawn, the service active' boot
step 420 'jobs in the sandbox, with checkpoints' a_job
step 60 'privileges, credential and ports of the service' sandbox
step 420 'restarted mid-job: the next attempt resumes, same labels' restart_mid_job
step 420 'kill -9 of all its processes: the same' kill_all
step 300 'backup, all lost, restored' backup_and_restore
