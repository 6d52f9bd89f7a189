#!/usr/bin/env bash
# Make the secrets of the namespace "mgclust", or bring them up to date: from database.url, openid.secret and certs/ beside this file.
#
# Not by kustomize: it breaks their lines, and every `kubectl apply` would take them for changed.
set -euo pipefail
cd "$(dirname "$0")"

secret() {
    # A creation time of null would be a change at every apply, too.
    kubectl create secret generic "$@" --namespace=mgclust --dry-run=client -o yaml | sed '/creationTimestamp: null/d' |
        kubectl apply -f -
}

files=("--from-file=database=database.url")
# The secret of an OpenID Connect provider, if you have one.
[[ ! -e openid.secret ]] || files+=("--from-file=openid=openid.secret")
secret mgclust-database "${files[@]}"
for role in scheduler worker client; do
    secret "mgclust-tls-$role" --from-file="certs/$role/ca.pem" --from-file="certs/$role/cert.pem" \
        --from-file="certs/$role/key.pem"
done
