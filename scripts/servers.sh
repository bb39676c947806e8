#!/usr/bin/env bash
# Starts a NATS and a PostgreSQL server on this machine, to try several machines' hone with (docs/many-machines.md).
#
#   scripts/servers.sh start [FOLDER]     starts both, with their data in FOLDER (target/servers), and prints the flags for hone
#   scripts/servers.sh stop [FOLDER]      stops both; the data stay
#
# NATS_PORT and POSTGRES_PORT are their ports (4222 and 5432). Nobody else on the network reaches them; everybody on this machine
# does. Both come from PyPI, as for the tests.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
do=${1:-}
folder=$(realpath -m "${2:-$here/../target/servers}")
nats_port=${NATS_PORT:-4222}
postgres_port=${POSTGRES_PORT:-5432}

# without_root COMMAND...: runs it as nobody if this is root, as which PostgreSQL does not run.
without_root() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    else
        "$@"
    fi
}

# has_ended PID_FILE: whether the process in the file has ended.
has_ended() {
    ! kill -0 "$(head -n 1 "$1" 2>/dev/null)" 2>/dev/null
}

# started PORT NAME: waits until somebody listens at a port.
started() {
    for _ in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.05
    done
    echo "$2 does not listen on port $1: see $folder" >&2
    exit 1
}

start() {
    tools=$("$here/lib/install-test-tools.sh")
    programs=$(echo "$tools"/python/lib/*/site-packages/pgserver/pginstall/bin)
    mkdir -p "$folder/nats" "$folder/postgres"
    if has_ended "$folder/nats/pid"; then
        "$tools/python/bin/nats-server" --jetstream --addr 127.0.0.1 --port "$nats_port" --store_dir "$folder/nats/data" \
            --pid "$folder/nats/pid" --log "$folder/nats/log" >/dev/null 2>&1 &
    fi
    if has_ended "$folder/postgres/data/postmaster.pid"; then
        [ "$(id -u)" != 0 ] || chown 65534:65534 "$folder/postgres"
        chmod 700 "$folder/postgres"
        if [ ! -d "$folder/postgres/data" ]; then
            (cd "$folder/postgres" && without_root "$programs/initdb" --auth=trust --username=hone --encoding=UTF8 --locale=C \
                -D "$folder/postgres/data" >/dev/null)
        fi
        (cd "$folder/postgres" && without_root "$programs/postgres" -D "$folder/postgres/data" -p "$postgres_port" \
            -k "$folder/postgres" -c listen_addresses=127.0.0.1 >>"$folder/postgres/log" 2>&1 &)
    fi
    started "$nats_port" NATS
    started "$postgres_port" PostgreSQL
    "$programs/createdb" -h 127.0.0.1 -p "$postgres_port" -U hone hone 2>/dev/null || true
    echo "--bus nats://127.0.0.1:$nats_port --store postgres://hone@127.0.0.1:$postgres_port/hone"
}

stop() {
    for file in "$folder/nats/pid" "$folder/postgres/data/postmaster.pid"; do
        has_ended "$file" || kill -INT "$(head -n 1 "$file")"
    done
}

case $do in
start | stop) "$do" ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
    ;;
esac
