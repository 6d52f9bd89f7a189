# shellcheck shell=bash
# Docker in a Debian root with namespaces of its own, and the images that a registry would give. After common.sh and network.sh.

: "${work:?}" "${logs:?}" "${here:?}"
docker_root="$LAB/roots/docker"
cgroup=mgclust-lab

in_docker() {
    # With its own end when the caller's deadline ends it, and no terminal.
    nsenter --target "$(cat "$work/docker.pid")" --mount --net --pid --uts --ipc -- "$@"
}

docker_roots() {
    make_root base ''
    make_root postgres postgresql-17
    make_root docker docker.io,docker-cli,docker-compose,docker-buildx,containerd,runc,iptables,iproute2,procps,util-linux
}

start_docker() {
    network_up
    mkdir -p "$work/shared" "$LAB/docker"
    copy_source "$work/shared/src"
    declare -f enter_root >"$work/dockerd.sh"
    cat >>"$work/dockerd.sh" <<'END'
set -e
root=$1 shared=$2 docker=$3 mtu=$4 cgroup=$5
enter_root "$root" "$shared" /work "$docker" /var/lib/docker /sys/fs/cgroup /sys/fs/cgroup
ulimit -n "$(ulimit -Hn)"
hostname mgclust-lab
exec dockerd --mtu "$mtu" --cgroup-parent "/$cgroup" --exec-opt native.cgroupdriver=cgroupfs --log-level warn
END
    # A namespace of processes, too: with its first process everything in it ends.
    (
        exec nsenter --net="/run/netns/$NETWORK" unshare --mount --uts --ipc --pid --fork --kill-child \
            bash "$work/dockerd.sh" "$docker_root" "$work/shared" "$LAB/docker" "$(cat "$LAB/mtu")" "$cgroup"
    ) >"$logs/dockerd.log" 2>&1 </dev/null &
    echo $! >"$work/docker.unshare"
    within 20 pgrep -P "$(cat "$work/docker.unshare")"
    pgrep -P "$(cat "$work/docker.unshare")" >"$work/docker.pid"
    within 60 in_docker docker version
}

# Containers are to be stopped before.
stop_docker() {
    set +e
    if [[ -e "$work/docker.pid" ]]; then
        kill -TERM "$(cat "$work/docker.pid")" 2>/dev/null
        for ((tries = 0; tries < 60; tries++)); do
            kill -0 "$(cat "$work/docker.unshare")" 2>/dev/null || break
            sleep 0.25
        done
        kill -KILL "$(cat "$work/docker.pid")" "$(cat "$work/docker.unshare")" 2>/dev/null
        rm -f "$work/docker.pid"
    fi
    network_down
    sleep 1
    find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null
}

# What a registry would give is made here.
base_images() {
    tar -C "$LAB/roots/base" --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . | in_docker docker import - mgclust-lab/base
    mkdir -p "$work/shared/postgres"
    tar -C "$LAB/roots/postgres" --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . >"$work/shared/postgres/root.tar"
    cp "$here/postgres.sh" "$work/shared/postgres/entrypoint"
    chmod 0755 "$work/shared/postgres/entrypoint"
    cat >"$work/shared/postgres/Dockerfile" <<'END'
FROM scratch
ADD root.tar /
COPY entrypoint /usr/local/bin/entrypoint
ENV PATH=/usr/lib/postgresql/17/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["/usr/local/bin/entrypoint"]
END
    in_docker docker build --quiet --tag mgclust-lab/postgres:17 /work/postgres
}
