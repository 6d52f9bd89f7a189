#!/usr/bin/env bash
# Docker with Compose in a Debian root with namespaces of its own: deploy/compose from nothing, and what may befall it.
# shellcheck disable=SC2016
set -euo pipefail
target=compose
here=$(dirname "$0")
# shellcheck source=tests/deploy/lab/common.sh
. "$here/common.sh"
# shellcheck source=tests/deploy/lab/network.sh
. "$here/network.sh"
# shellcheck source=tests/deploy/lab/docker.sh
. "$here/docker.sh"

project=/work/src/deploy/compose

dc() {
    in_docker sh -c 'cd "$0" && exec docker compose "$@"' "$project" "$@"
}
job() {
    dc exec -T --env MGCLUST_URL=http://127.0.0.1:8700 --env MGCLUST_TOKEN_FILE=/data/token web python - "$@" <"$here/job.py"
}

start() {
    start_docker
    in_docker docker compose version
}

stop() {
    set +e
    [[ -e "$work/docker.pid" ]] && dc down --volumes --timeout 5 >"$logs/down.log" 2>&1
    stop_docker
}

# As README.md says, for the CPU, with checkpoints every second.
configure() {
    in_docker sh -euc '
        cd "$0"
        cp .env.example .env && chmod 600 .env
        cp settings.env.example settings.env
        mkdir -p inputs
        (umask 077 && mkdir -p secrets)
        openssl rand -hex 24 > secrets/postgres_password
        echo "postgresql+psycopg://mgclust:$(cat secrets/postgres_password)@postgres/mgclust" > secrets/database
        openssl rand -hex 24 > secrets/openid
        touch secrets/stores
        chmod 0444 secrets/*
        sed -i "s/^COMPOSE_PROFILES=.*/COMPOSE_PROFILES=cpu/; s|^MGCLUST_BASE=.*|MGCLUST_BASE=mgclust-lab/base|
            s|^MGCLUST_POSTGRES=.*|MGCLUST_POSTGRES=mgclust-lab/postgres:17|; s/^MGCLUST_IMAGE=.*/MGCLUST_IMAGE=mgclust:lab/
            s/^MGCLUST_EXTRAS=.*/MGCLUST_EXTRAS=service,sso,postgres,s3,fmri/; s/_MEMORY=.*/_MEMORY=3g/" .env
        sed -i "s/^MGCLUST_SERVICE_CHECKPOINT_SECONDS=.*/MGCLUST_SERVICE_CHECKPOINT_SECONDS=1/" settings.env
    ' "$project"
    dc config --quiet
}

build() { dc build certs; }

certificates() { dc run --rm certs; }

all_healthy() {
    local states
    states=$(dc ps --all --format '{{.Service}} {{.Health}}' | sort)
    echo "$states"
    [[ "$(grep -c ' healthy$' <<<"$states")" -eq 5 && "$(wc -l <<<"$states")" -eq 5 ]]
}

up() {
    dc up -d
    within 120 all_healthy
}

healthz() {
    [[ "$(nsenter --target "$(cat "$work/docker.pid")" --net -- python3 -c '
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen("http://127.0.0.1:8700/healthz", timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print(error)
')" == "$1" ]]
}

a_job() {
    local id
    dc exec -T runner mgclust info --scheduler tls://scheduler:8786
    id=$(job submit density-peaks 4000 n_clusters=5)
    job wait "$id" 120 | tee "$work/density.txt"
    echo "$id" >"$work/density.id"
    dc exec -T runner sh -c 'test -z "$(ls -A /checkpoints)"'
}

# Data at the same path in web, runner and workers; the processes that read it are confined.
inputs() {
    local id
    in_docker sh -c 'awk "BEGIN {srand(1); for (i = 0; i < 3000; i++) print rand() + rand() + 6 * (i % 5) \",\" rand() + rand() + 6 * (i % 3)}" >"$0/inputs/rows.csv"' "$project"
    id=$(job remote density-peaks /inputs/rows.csv n_clusters=15)
    job wait "$id" 120
    job points "$id" | tee "$work/points.txt"
    grep -qx '[1-9][0-9]* points' "$work/points.txt"
    job log "$id" | has_not 'warning'
    dc exec -T web sh -c 'test -e "/data/jobs/$1"/*/result/report.html' sh "$id"
    landlock_as_here "$(dc logs --no-log-prefix runner)"
}

# Without a token of their own they meet the service at its socket in the data folder, also from another container.
commands_inside() {
    local each
    for each in web runner; do
        dc exec -T "$each" mgclust jobs --json | tee "$work/jobs.txt"
        grep -q "$(cat "$work/density.id")" "$work/jobs.txt"
    done
}

# So long that there is time to disturb it on a fast machine; its result is compared with that of a run nothing disturbs.
LONG=(affinity-propagation 1500 max_iter=12000 convergence_iter=12000)

undisturbed() {
    local id
    id=$(job submit "${LONG[@]}")
    job wait "$id" 280 | tee "$work/undisturbed.txt"
    job log "$id"
    job log "$id" | has_not 'no checkpoints'
}

same_labels() {
    diff <(awk '{print $2}' "$work/undisturbed.txt") <(awk '{print $2}' "$1")
}

has_checkpoint() {
    dc exec -T runner sh -c "ls -d /checkpoints/$1/*/checkpoint-*"
}

kill_a_worker() {
    local id
    id=$(job submit "${LONG[@]}")
    within 120 has_checkpoint "$id"
    dc exec -T workers-cpu python - <<'END'
import psutil

workers = [each for each in psutil.process_iter(["cmdline"]) if any("spawn_main" in word for word in each.info["cmdline"])]
# The job may use only some of the workers.
busy = max(workers, key=lambda each: each.cpu_percent(0.3))
print("killed", busy.pid, "of", [each.pid for each in workers])
busy.kill()
END
    job wait "$id" 280 | tee "$work/killed.txt"
    job log "$id" | tee "$work/killed.log"
    # The attempt itself goes on with other workers; if it cannot, the next attempt does.
    sed -n '/was lost during the run\|attempt 2/,$p' "$work/killed.log" | grep -w resume
    same_labels "$work/killed.txt"
    never has_checkpoint "$id"
}

stop_the_runner() {
    local id
    id=$(job submit "${LONG[@]}")
    within 120 has_checkpoint "$id"
    dc stop runner
    job wait "$id" 30 PENDING
    dc start runner
    job wait "$id" 280 | tee "$work/stopped.txt"
    sed -n '/attempt 2/,$p' <(job log "$id") | grep -w resume
    same_labels "$work/stopped.txt"
}

database_away() {
    local id
    within 10 healthz 200
    dc stop postgres
    within 30 healthz 503
    sleep 5
    dc start postgres
    within 60 healthz 200
    id=$(job submit density-peaks 4000 n_clusters=5)
    job wait "$id" 120 | tee "$work/after.txt"
    diff <(awk '{print $2}' "$work/density.txt") <(awk '{print $2}' "$work/after.txt")
}

no_secrets() {
    local password each
    for password in $(in_docker cat "$project/secrets/postgres_password" "$project/secrets/openid"); do
        no_secret "$password"
    done
}

no_secret() {
    local password=$1 each
    for each in $(dc ps --quiet); do
        in_docker docker inspect "$each" | has_not "$password" >/dev/null
        # All processes of the container, as root: more than their own account may see.
        in_docker docker exec --user 0 --privileged "$each" sh -c 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline || true' |
            tr '\0' '\n' | has_not "$password" >"$work/processes.txt"
        grep -q '^PATH=' "$work/processes.txt"
    done
    never grep -rq "$password" "$logs"
}

limits() {
    local each
    for each in $(dc ps --quiet); do
        in_docker docker inspect --format '{{.Name}} {{.HostConfig.Memory}} {{.HostConfig.PidsLimit}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapAdd}}' "$each"
    done | tee "$work/limits.txt"
    [[ "$(wc -l <"$work/limits.txt")" -eq 5 ]]
    awk '$2 <= 0 || $3 <= 0 {bad = 1} END {exit bad}' "$work/limits.txt"
}

outside() {
    local seen
    seen=$(ports "$INSIDE" 8700 8786 8787 5432 2375 2376)
    echo "seen from another host: ${seen:-none}"
    [[ -z "$seen" ]]
    # From a container in the cluster's network: the scheduler's port alone, and no worker's pages.
    seen=$(dc exec -T runner python - <<'END'
import socket
import subprocess

for host in ("scheduler", "workers-cpu"):
    for port in (8786, 8787):
        try:
            socket.create_connection((host, port), 2).close()
            print(host, port)
        except OSError:
            pass
END
    )
    echo "seen from the runner: $seen"
    [[ "$seen" == "scheduler 8786" ]]
    # Whatever the workers listen on beyond their loopback takes TLS alone.
    dc exec -T workers-cpu python - <<'END'
import socket
import ssl
import psutil

found = sorted({each.laddr.port for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.ip not in ("127.0.0.1", "::1", "127.0.0.11")})
assert found
for port in found:
    with socket.create_connection((socket.gethostname(), port), 5) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: worker\r\n\r\n")
        plain.settimeout(5)
        try:
            answer = plain.recv(100)
        except (TimeoutError, ConnectionResetError):
            answer = b""
    assert not answer.startswith(b"HTTP"), (port, answer)
print("ports beyond loopback, none of which speaks HTTP:", found)
END
}

# Whether a part can begin a connection to this machine, which is outside Docker's networks.
reaches() {
    dc exec -T "$1" python - "$OUTSIDE" "$2" <<'END'
import socket
import sys

socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
END
}

receives() { [[ -n "$(ports "$OUTSIDE" "$1")" ]]; }

# Only with the line of .env has web a way out, and then to the ports of another line; a webhook is received at such a port.
# Settings of OpenID Connect are accepted, and the image can read stores.
way_out() {
    local receiver id
    python3 - "$OUTSIDE" >"$work/received.txt" 2>&1 <<'END' &
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.headers["X-Mgclust-Signature"], self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(204)
        self.end_headers()


for port in (443, 8443, 9443):
    threading.Thread(target=HTTPServer((sys.argv[1], port), Receiver).serve_forever).start()
END
    receiver=$!
    # shellcheck disable=SC2064
    trap "kill $receiver" EXIT
    within 30 receives 443
    within 30 receives 8443
    within 30 receives 9443
    never reaches web 443
    in_docker sh -euc '
        cd "$0"
        sed -i "s/^MGCLUST_WEB_OUTGOING=.*/MGCLUST_WEB_OUTGOING=true/" .env
        sed -i "s/^# \(MGCLUST_SERVICE_\)/\1/" settings.env
        echo "MGCLUST_SERVICE_WEBHOOK_NETWORKS=$1" >>settings.env
        chown 10001 secrets/stores && chmod 0600 secrets/stores
    ' "$project" "$OUTSIDE"
    in_docker tee "$project/secrets/stores" >/dev/null <<END
[lab]
endpoint = "http://$OUTSIDE:8443"
bucket = "measurements"
key = "key"
secret = "secret"
END
    dc down
    dc up -d
    within 120 all_healthy
    in_docker "$project/limit-web.sh"
    reaches web 443
    never reaches web 8443
    in_docker sed -i "s/^MGCLUST_WEB_PORTS=.*/MGCLUST_WEB_PORTS=443,8443/" "$project/.env"
    in_docker "$project/limit-web.sh"
    in_docker iptables -S DOCKER-USER
    reaches web 443
    reaches web 8443
    never reaches web 9443
    never reaches runner 443
    dc exec -T web python -c 'import authlib, joserfc, botocore.auth'
    dc exec -T web mgclust webhook add "http://$OUTSIDE:8443/hook" >/dev/null
    id=$(job submit density-peaks 4000 n_clusters=5)
    job wait "$id" 120
    within 30 grep -F "$id" "$work/received.txt"
    grep '^t=[0-9]*,v1=[0-9a-f]\{64\} ' "$work/received.txt"
}

new_certificates() {
    local id before
    before=$(dc exec -T runner sha256sum /certs/ca.pem)
    dc stop scheduler workers-cpu runner
    dc rm -f scheduler workers-cpu runner
    dc run --rm --entrypoint sh certs -c 'rm -r /certs/*'
    dc run --rm certs
    dc up -d
    within 120 all_healthy
    [[ "$(dc exec -T runner sha256sum /certs/ca.pem)" != "$before" ]]
    id=$(job submit density-peaks 4000 n_clusters=5)
    job wait "$id" 120
}

dump() {
    dc exec -T postgres pg_dump -U mgclust -Fc mgclust >"$work/shared/mgclust.dump"
    in_docker docker run --rm --user 0 --entrypoint tar -v mgclust_data:/data:ro -v /work:/backup mgclust:lab \
        czf /backup/mgclust-data.tar.gz -C /data .
    ls -l "$work/shared/"
}

lose_and_restore() {
    local id
    id=$(cat "$work/density.id")
    dc down --volumes
    [[ -z "$(in_docker docker volume ls --quiet)" ]]
    dc run --rm certs
    dc up -d --wait postgres
    dc exec -T postgres pg_restore -U mgclust -d mgclust --clean --if-exists <"$work/shared/mgclust.dump"
    # Compose makes the volume, with its labels; nothing of the service runs yet.
    dc create web
    in_docker docker run --rm --user 0 --entrypoint tar -v mgclust_data:/data -v /work:/backup:ro mgclust:lab \
        xzpf /backup/mgclust-data.tar.gz -C /data
    dc up -d
    within 120 all_healthy
    job wait "$id" 20 | diff - "$work/density.txt"
    job wait "$(job submit density-peaks 4000 n_clusters=5)" 120
}

need mmdebstrap ip iptables nsenter unshare pivot_root python3 openssl tar
begin
trap stop EXIT
step 900 'base roots by mmdebstrap' docker_roots
step 90 'Docker with Compose in namespaces of its own' start
step 300 'images of Debian and PostgreSQL' base_images
step 60 'settings and secrets' configure
step 1500 'docker compose build' build
step 120 'certificates' certificates
step 240 'up, and all five parts healthy' up
step 240 'a job on two workers' a_job
step 240 'a file of /inputs, its points for the page, Landlock' inputs
step 60 'commands in the containers of web and runner' commands_inside
step 120 'no password in docker inspect, environments or command lines' no_secrets
step 60 'memory and process limits everywhere' limits
step 120 'ports seen from another host, and from the cluster' outside
step 300 'a way out for web, by one line: a webhook is received, other ports are closed' way_out
step 330 'a long job, undisturbed, with checkpoints' undisturbed
step 420 'a worker killed: the job resumes, same labels' kill_a_worker
step 420 'runner stopped mid-job: the next attempt resumes, same labels' stop_the_runner
step 240 'PostgreSQL down: /healthz 503 and back, then a job' database_away
step 300 'certificates renewed' new_certificates
step 120 'dump of database and data' dump
step 300 'all volumes lost, restored: the job and its result are there' lose_and_restore
