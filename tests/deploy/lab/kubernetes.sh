#!/usr/bin/env bash
# deploy/kubernetes against an API server with etcd, and the Dask operator. There is no kubelet: Docker runs what the deployments
# of the API server say, each with one container, a network of all, and volumes as a kubelet makes them (pods.py).
#
# Debian 12 has kube-apiserver as source alone: it is built once, with the Go of the newer Debian, in some ten minutes. That is version 1.20, which knows disruption budgets as policy/v1beta1; nothing else is changed.
set -euo pipefail
target=kubernetes
here=$(dirname "$0")
# shellcheck source=tests/deploy/lab/common.sh
. "$here/common.sh"
# shellcheck source=tests/deploy/lab/network.sh
. "$here/network.sh"
# shellcheck source=tests/deploy/lab/docker.sh
. "$here/docker.sh"

root="$LAB/roots/kubernetes"
SOURCES=bookworm
ADDRESS=10.213.79.1

# In the root, with all that runs there.
inside() {
    nsenter --target "$(cat "$work/init.pid")" --mount --net --pid --uts --ipc -- "$@"
}
kubectl() { inside kubectl --kubeconfig=/lab/kubeconfig "$@"; }

a_root() {
    make_root kubernetes golang-go,dpkg-dev,golang-github-modern-go-reflect2-dev,etcd-server,openssl,python3,python3-venv,kubectl,iproute2,procps
    copy_source "$root/src"
    [[ -x "$root/opt/operator/bin/pip" ]] || chroot "$root" python3 -m venv /opt/operator
    [[ -x "$root/opt/operator/bin/kopf" ]] || chroot "$root" /opt/operator/bin/pip install --quiet dask-kubernetes '/src[service]'
    chroot "$root" /opt/operator/bin/pip install --quiet --no-deps --force-reinstall /src
}

build_server() {
    local mirror
    [[ ! -x "$root/build/kube-apiserver" ]] || return 0
    mirror=$(debian_mirror)
    [[ -n "$mirror" ]] || mirror=$(awk '$1 == "deb" {print $2; exit}' "$root/etc/apt/sources.list")
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SOURCES main" >"$root/etc/apt/sources.list.d/source.list"
    rm -rf "$root/build" && mkdir "$root/build"
    chroot "$root" sh -euc 'apt-get update && cd /build && apt-get source kubernetes'
    cat >"$root/build/build.sh" <<'END'
set -euo pipefail
cd /build/kubernetes-*/
export GOPATH=/build/go GO111MODULE=off CGO_ENABLED=0 HOME=/build
mkdir -p "$GOPATH/src/k8s.io"
ln -sfn "$PWD" "$GOPATH/src/k8s.io/kubernetes"
# The copy in the source is older than this Go.
rm -rf vendor/github.com/modern-go/reflect2
cp -rL /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/
cd "$GOPATH/src/k8s.io/kubernetes"
go build -o /build/openapi-gen ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rl --include=*.go '+k8s:openapi-gen=true' staging/src/k8s.io pkg | grep -v /testdata/ | xargs -n1 dirname | sort -u |
    sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#' | paste -sd,)
/build/openapi-gen --input-dirs "$inputs" --output-package k8s.io/kubernetes/pkg/generated/openapi \
    --output-file-base zz_generated.openapi --go-header-file hack/boilerplate/boilerplate.generatego.txt \
    --report-filename /build/violations.txt --output-base "$GOPATH/src"
versioned=k8s.io/component-base/version
go build -trimpath -o /build/kube-apiserver \
    -ldflags "-s -w -X $versioned.gitVersion=v1.20.2 -X $versioned.gitMajor=1 -X $versioned.gitMinor=20" ./cmd/kube-apiserver
END
    unshare --mount --pid --fork --kill-child sh -euc '
        mount --make-rprivate / && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" bash /build/build.sh
    ' "$root"
    rm -rf "$root"/build/go/src "$root"/build/.cache
}

start_server() {
    mkdir -p "$work/shared"
    copy_source "$work/shared/src"
    declare -f enter_root >"$work/shared/init.sh"
    cat >>"$work/shared/init.sh" <<'END'
set -e
root=$1 shared=$2 address=$3
enter_root "$root" "$shared" /lab
ip link set lo up
ip address add "$address/32" dev lo
cd /lab
openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=lab -addext "subjectAltName=IP:$address" 2>/dev/null
openssl genrsa -out accounts.key 2048 2>/dev/null
openssl rand -hex 16 >token
echo "$(cat token),admin,admin,system:masters" >tokens.csv
cat >kubeconfig <<EOT
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://$address:6443", certificate-authority: /lab/server.pem}}]
users: [{name: admin, user: {token: $(cat token)}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
EOT
etcd --data-dir /run/etcd --log-level warn &
/build/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$address" --endpoint-reconciler-type=none \
    --service-cluster-ip-range=10.96.0.0/24 --tls-cert-file=server.pem --tls-private-key-file=server.key \
    --service-account-key-file=accounts.key --service-account-signing-key-file=accounts.key \
    --service-account-issuer=https://localhost --authorization-mode=RBAC --token-auth-file=tokens.csv \
    --disable-admission-plugins=ServiceAccount >apiserver.log 2>&1 &
wait
END
    (
        exec unshare --net --mount --uts --ipc --pid --fork --kill-child bash "$work/shared/init.sh" "$root" "$work/shared" "$ADDRESS"
    ) >"$logs/init.log" 2>&1 </dev/null &
    echo $! >"$work/unshare.pid"
    within 20 pgrep -P "$(cat "$work/unshare.pid")"
    pgrep -P "$(cat "$work/unshare.pid")" >"$work/init.pid"
    within 120 kubectl get --raw=/readyz
    kubectl version || true
}

stop() {
    set +e
    if [[ -e "$work/docker.pid" ]]; then
        # shellcheck disable=SC2046
        in_docker docker rm --force --volumes $(in_docker docker ps --all --quiet) >/dev/null 2>&1
        in_docker docker network rm pods >/dev/null 2>&1
        stop_docker
    fi
    if [[ -e "$work/unshare.pid" ]]; then
        kill -KILL "$(cat "$work/init.pid" 2>/dev/null)" "$(cat "$work/unshare.pid")" 2>/dev/null
        cp "$work/shared/apiserver.log" "$logs/" 2>/dev/null
        rm -f "$work/unshare.pid"
    fi
}

operator() {
    local package
    package=$(inside /opt/operator/bin/python -c 'import pathlib, dask_kubernetes; print(pathlib.Path(dask_kubernetes.__file__).parent)')
    kubectl apply --server-side -f "$package/operator/deployment/helm/dask-kubernetes-operator/crds"
    within 60 kubectl get daskclusters --all-namespaces
    inside env KUBECONFIG=/lab/kubeconfig HOME=/run /opt/operator/bin/kopf run -m dask_kubernetes.operator.controller \
        --all-namespaces >"$logs/operator.log" 2>&1 </dev/null &
    within 60 grep -q 'authentication has finished' "$logs/operator.log"
}

files=/lab/src/deploy/kubernetes

# As README.md says.
secrets() {
    inside sed -i 's#policy/v1$#policy/v1beta1#' "$files/limits.yaml"
    inside sh -euc 'cd "$0" && /opt/operator/bin/mgclust certs certs --host mgclust-scheduler' "$files"
    openssl rand -hex 24 >"$work/password"
    # Without the TLS that the lab's PostgreSQL does not have.
    sed "s/PASSWORD/$(cat "$work/password")/; s/?sslmode=verify-full//" "$SOURCE/deploy/kubernetes/database.url.example" \
        >"$work/shared/src/deploy/kubernetes/database.url"
    sed -i '/MGCLUST_SERVICE_SLOTS/a\  MGCLUST_SERVICE_CHECKPOINT_SECONDS: "1"' "$work/shared/src/deploy/kubernetes/settings.yaml"
    # The settings of OpenID Connect that are comments, with a secret.
    sed -i 's/^  # \(MGCLUST_SERVICE_OIDC_\)/  \1/' "$work/shared/src/deploy/kubernetes/settings.yaml"
    openssl rand -hex 24 >"$work/shared/src/deploy/kubernetes/openid.secret"
    kubectl apply -f "$files/namespace.yaml"
    inside env KUBECONFIG=/lab/kubeconfig "$files/secrets.sh"
}

dry_run() {
    kubectl apply --dry-run=server -k "$files" | tee "$work/dry.txt"
    [[ "$(grep -c 'server dry run' "$work/dry.txt")" -eq "$(wc -l <"$work/dry.txt")" && "$(wc -l <"$work/dry.txt")" -ge 16 ]]
    kubectl apply --dry-run=server -n mgclust -f "$files/web-outgoing.yaml"
}

apply() { kubectl apply -k "$files" | tee "$work/applied.txt"; }

again() {
    kubectl apply -k "$files" | tee "$work/again.txt"
    inside env KUBECONFIG=/lab/kubeconfig "$files/secrets.sh" | tee -a "$work/again.txt"
    [[ "$(wc -l <"$work/again.txt")" -ge 20 ]]
    if grep -v ' unchanged$' "$work/again.txt"; then
        kubectl apply -k "$files" --v=8 2>&1 | grep -A 3 -E 'PATCH http|"Request Body"|Request Body:'
        return 1
    fi
}

made() {
    kubectl -n mgclust get "$@" -o name
}

operator_works() {
    within 90 made service/mgclust-scheduler
    within 90 made deployment/mgclust-scheduler
    within 90 sh -c '[ "$('"nsenter --target $(cat "$work/init.pid") --all --"' kubectl --kubeconfig=/lab/kubeconfig -n mgclust get deployments -l dask.org/component=worker -o name | wc -l)" -eq 1 ]'
    kubectl -n mgclust get deployment mgclust-scheduler -o yaml >"$work/scheduler.yaml"
    grep -q 'secretName: mgclust-tls-scheduler' "$work/scheduler.yaml"
    kubectl -n mgclust get deployments,services,daskclusters,daskworkergroups
}

workers_are() { [[ "$(kubectl -n mgclust get deployments -l dask.org/component=worker -o name | wc -l)" -eq "$1" ]]; }

scale() {
    kubectl -n mgclust scale --replicas=3 daskworkergroup mgclust-default
    within 90 workers_are 3
}

job() {
    in_docker docker exec --interactive --env MGCLUST_URL=http://127.0.0.1:8700 --env MGCLUST_TOKEN_FILE=/data/token \
        mgclust-web python - "$@" <"$here/job.py"
}

image() {
    in_docker docker build --file /work/src/deploy/docker/Dockerfile --build-arg BASE=mgclust-lab/base \
        --build-arg EXTRAS=service,sso,postgres,s3,fmri --tag "$(sed -n 's/.*image: //p' "$work/scheduler.yaml" | head -n 1)" /work/src
}

postgres() {
    in_docker docker network create --internal pods
    install -m 0444 "$work/password" "$work/shared/password"
    in_docker docker run --detach --name postgres --network pods --network-alias postgres.example --env POSTGRES_USER=mgclust \
        --env POSTGRES_DB=mgclust --env POSTGRES_PASSWORD_FILE=/password --volume /work/password:/password:ro mgclust-lab/postgres:17
    within 60 in_docker docker exec postgres pg_isready -h 127.0.0.1 -U mgclust -d mgclust
}

probes() { in_docker sh "/work/pods/$1.probe"; }

pods() {
    local each
    kubectl -n mgclust get deployments,services,configmaps,secrets -o json >"$work/objects.json"
    python3 "$here/pods.py" "$work/objects.json" "$work/shared/pods" /work/pods | tee "$work/pods.txt"
    # Two of the three workers are enough.
    grep -v -- -worker- "$work/pods.txt" >"$work/started.txt"
    grep -- -worker- "$work/pods.txt" | head -n 2 >>"$work/started.txt"
    [[ "$(wc -l <"$work/started.txt")" -eq 5 ]]
    while read -r each; do
        in_docker sh "/work/pods/$each.run" </dev/null
    done <"$work/started.txt"
    while read -r each; do
        within 90 probes "$each" </dev/null
    done <"$work/started.txt"
}

a_job() {
    local id
    id=$(job submit density-peaks 4000 n_clusters=5)
    job wait "$id" 120
    job points "$id"
    job log "$id" | has_not 'warning'
    in_docker docker exec mgclust-runner mgclust info --scheduler tls://mgclust-scheduler:8786 | tee "$work/info.txt"
    [[ "$(grep -c '^worker ' "$work/info.txt")" -eq 2 ]]
    # Without a token of its own, at the socket in the volume.
    in_docker docker exec mgclust-runner mgclust jobs --json | grep "$id"
    landlock_as_here "$(in_docker docker logs mgclust-runner 2>&1)"
}

LONG=(affinity-propagation 1500 max_iter=12000 convergence_iter=12000)

has_checkpoint() { in_docker docker exec mgclust-runner sh -c "ls -d /checkpoints/$1/*/checkpoint-*"; }

kill_a_worker() {
    local id worker
    job wait "$(job submit "${LONG[@]}")" 280 | tee "$work/undisturbed.txt"
    id=$(job submit "${LONG[@]}")
    within 120 has_checkpoint "$id"
    # The job may use only some of the workers.
    # shellcheck disable=SC2046
    worker=$(in_docker docker stats --no-stream --format '{{.CPUPerc}} {{.Name}}' $(tail -n 2 "$work/started.txt") |
        sort -n | awk 'END {print $2}')
    in_docker docker kill "$worker"
    in_docker docker start "$worker"
    job wait "$id" 280 | tee "$work/killed.txt"
    job log "$id" | tee "$work/killed.log"
    # The attempt itself goes on with other workers; if it cannot, the next attempt does.
    sed -n '/was lost during the run\|attempt 2/,$p' "$work/killed.log" | grep -w resume
    diff <(awk '{print $2}' "$work/undisturbed.txt") <(awk '{print $2}' "$work/killed.txt")
    never has_checkpoint "$id"
    within 60 probes "$worker"
}

# The new pod comes before the old one goes, and takes its place at the socket in the volume.
update_web() {
    in_docker sh -c 'sed "s/--name mgclust-web/--name mgclust-web-new/" /work/pods/mgclust-web.run | sh'
    sed 's/mgclust-web/mgclust-web-new/' "$work/shared/pods/mgclust-web.probe" >"$work/shared/pods/mgclust-web-new.probe"
    within 90 probes mgclust-web-new
    in_docker docker stop mgclust-web
    within 30 in_docker docker exec mgclust-web-new mgclust jobs
}

need mmdebstrap ip iptables nsenter unshare pivot_root pgrep apt-get python3 openssl tar
begin
trap stop EXIT
step 900 'a Debian root with Go, etcd, kubectl and the operator' a_root
step 3000 'kube-apiserver from its source, once' build_server
step 180 'API server and etcd, without a network' start_server
step 180 'the Dask operator and its resources' operator
step 60 'certificates, namespace and secrets' secrets
step 60 'all objects, as a dry run of the server' dry_run
step 60 'all objects applied' apply
step 240 'the operator made scheduler, service and workers' operator_works
step 60 'a second apply: all unchanged' again
step 150 'scaled to three workers' scale
step 900 'base roots by mmdebstrap' docker_roots
step 90 'Docker in namespaces of its own' start_docker
step 300 'images of Debian and PostgreSQL' base_images
step 1500 'docker build of the image' image
step 120 'PostgreSQL' postgres
step 480 'the pods of all deployments, by Docker, and their probes' pods
step 300 'a job on two pods of workers' a_job
step 600 'a pod of workers killed: the job resumes, same labels' kill_a_worker
step 180 'web updated: the new pod answers at the socket, too' update_web
