#!/bin/bash
# What the lab needs of the official image's start: a database by POSTGRES_USER, POSTGRES_DB and POSTGRES_PASSWORD_FILE.
set -euo pipefail
if [[ $(id -u) -eq 0 ]]; then
    install -d -o postgres -g postgres -m 0700 "$PGDATA"
    install -d -o postgres -g postgres -m 0775 /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --clear-groups --no-new-privs "$0" "$@"
fi
if [[ ! -s "$PGDATA/PG_VERSION" ]]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl -w start -o "-c listen_addresses="
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -w stop
fi
exec postgres -c listen_addresses='*'
