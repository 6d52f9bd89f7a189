# shellcheck shell=bash
# What all targets share: steps with deadlines and logs, roots made by mmdebstrap, and the machine's own configuration.

SKIPPED=77
work="$LAB/${target:?}"
logs="$work/logs"

skip() {
    echo "skipped: $*" >&2
    exit "$SKIPPED"
}

need() {
    local each
    for each in "$@"; do
        command -v "$each" >/dev/null || skip "$target needs $each, which is not installed"
    done
}

# step SECONDS WHAT FUNCTION [ARG...]: run it within so many seconds, note the time, keep its output; end the run if it fails.
step() {
    local limit=$1 what=$2 began=$SECONDS number code=0 pid log
    shift 2
    number=$(($(wc -l <"$work/steps.tsv") + 1))
    log="$logs/$(printf '%02d' "$number")-${what//[^a-zA-Z0-9]/-}.log"
    printf '%-7s%-76s' "$(date +%H:%M:%S)  " "  $what" >&2
    set -m
    (
        set -euo pipefail
        "$@"
    ) </dev/null >"$log" 2>&1 &
    pid=$!
    set +m
    while kill -0 "$pid" 2>/dev/null; do
        if ((SECONDS - began > limit)); then
            kill -TERM -- "-$pid" 2>/dev/null || true
            sleep 2
            kill -KILL -- "-$pid" 2>/dev/null || true
            echo "not done within $limit s" >>"$log"
        fi
        sleep 0.2
    done
    wait "$pid" || code=$?
    printf '%s\t%s\t%s\n' "$what" "$((SECONDS - began))" "$([[ $code -eq 0 ]] && echo ok || echo failed)" >>"$work/steps.tsv"
    if [[ $code -ne 0 ]]; then
        printf '%5s s  FAILED\n' "$((SECONDS - began))" >&2
        tail -n 40 "$log" | sed 's/^/    /' >&2
        echo "failed: $what; the log is $log" >&2
        exit 1
    fi
    printf '%5s s  ok\n' "$((SECONDS - began))" >&2
}

# within SECONDS COMMAND...: repeat it until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS > end)); then
            echo "did not come to pass in time: $*"
            return 1
        fi
        sleep 0.5
    done
}

# never COMMAND...: fail if it succeeds; `! COMMAND` would not end a step.
never() {
    if "$@"; then
        echo "should not have succeeded: $*"
        return 1
    fi
}

# has_not TEXT: fail if it is in the standard input, which is shown.
has_not() {
    local input
    input=$(cat)
    echo "$input"
    never grep -qaF -e "$1" <<<"$input"
}

# landlock_as_here TEXT: fail unless the service says that Landlock confines what reads data, where this kernel has it.
landlock_as_here() {
    local version
    version=$(python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))')
    echo "Landlock of this kernel: $version"
    [[ "$version" -lt 1 ]] || grep -F "confined by Landlock $version" <<<"$1"
}

# The mirror of this machine's package lists that has Debian itself.
debian_mirror() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
        grep -m1 -E '/debian/?$' || true
}

# make_root NAME PACKAGES: a Debian root in $LAB/roots/NAME, once.
make_root() {
    local root="$LAB/roots/$1" packages=$2 mirror
    [[ -e "$root.done" ]] && return
    rm -rf "$root" && mkdir -p "$LAB/roots"
    mirror=$(debian_mirror)
    mmdebstrap --variant=minbase --include="ca-certificates${packages:+,$packages}" "$RELEASE" "$root" ${mirror:+"$mirror"}
    own_configuration "$root"
    touch "$root.done"
}

# enter_root ROOT [FOLDER PLACE]...: in namespaces of its own, a process takes ROOT as its root, with these folders at these places.
# What it runs is written to a file: declare -f enter_root.
enter_root() {
    local root=$1
    shift
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    while (($#)); do
        mkdir -p "$root$2"
        mount --rbind "$1" "$root$2"
        shift 2
    done
    mkdir -p "$root/run/old"
    cd "$root"
    pivot_root . run/old
    umount -l /run/old
}

# Certificates, resolver and pip's index as they are on this machine.
own_configuration() {
    local root=$1 index
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
    fi
    install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    index=${PIP_INDEX_URL:-$(pip config get global.index-url 2>/dev/null || true)}
    {
        echo '[global]'
        echo 'cert = /etc/ssl/certs/ca-certificates.crt'
        echo 'timeout = 120'
        [[ -z "$index" ]] || echo "index-url = $index"
    } >"$root/etc/pip.conf"
}

# The working tree as it is: what git knows and is still there, and new files that it does not ignore.
copy_source() {
    rm -rf "$1" && mkdir -p "$1"
    git -C "$SOURCE" ls-files -z --cached --others --exclude-standard -- mgclust deploy pyproject.toml README.md LICENSE |
        (cd "$SOURCE" && { xargs -0 --no-run-if-empty ls -d 2>/dev/null || true; } | tar -c -T -) | tar -x -C "$1"
}

# make_node: a root with systemd, Slurm, and mgclust in /opt/mgclust.
make_node() {
    make_root node systemd,systemd-sysv,dbus,python3,python3-venv,iproute2,slurm-wlm,munge,rsync,sqlite3,curl,procps,util-linux
    local root="$LAB/roots/node"
    copy_source "$root/src"
    if [[ ! -e "$root/opt/mgclust/bin/pip" ]]; then
        chroot "$root" python3 -m venv /opt/mgclust
    fi
    # What it needs is installed once, the working tree anew at each run.
    chroot "$root" /opt/mgclust/bin/pip install --quiet '/src[service,postgres]' 'dask-jobqueue>=0.9'
    chroot "$root" /opt/mgclust/bin/pip install --quiet --no-deps --force-reinstall /src
}

begin() {
    [[ $(id -u) -eq 0 ]] || skip "$target needs root"
    rm -rf "$work" && mkdir -p "$logs"
    : >"$work/steps.tsv"
}
