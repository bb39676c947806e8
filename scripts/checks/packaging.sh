#!/usr/bin/env bash
# Checks packaging/: the systemd unit with systemd's own check, and the second half of the Dockerfile without Docker. A folder gets
# what the image has (the binary and the system's libraries that it is linked to), and the server runs in it as the image runs it:
# as a user without rights, on all addresses, with a key. It answers a question with the built-in model.
#
# Needs root, for chroot and mount. HONE names another binary than the debug build.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "it needs root, for chroot and mount" >&2; exit 77; }
# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
build_program
install_programs "the check of the image" curl >&2
model=$(scripts/lib/fetch-test-models.sh)/SmolLM2-135M-Instruct.Q4_1.gguf
root=$(mktemp -d)
user=10001
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT

fail() { echo "error: $*" >&2; exit 1; }
setting() { grep -oE "\\b$1=[^ ]+" packaging/Dockerfile | head -1 | cut -d= -f2; }

if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/local/bin/hone|$hone|" packaging/hone.service >"$root/hone.service"
    cp packaging/hone.socket "$root"
    systemd-analyze verify "$root/hone.service" "$root/hone.socket"
    rm "$root"/hone.s*
fi

chmod 755 "$root"
mkdir -p "$root"/{proc,tmp,data,usr/local/bin}
chmod 1777 "$root/tmp"
chown "$user" "$root/data"
cp "$hone" "$root/usr/local/bin/hone"
for library in $(ldd "$hone" | grep -oE '/[^ ]+'); do
    install -D "$library" "$root$library"
done
cp "$model" "$root/model.gguf"
mount -t proc proc "$root/proc" || { echo "it needs a system where it may mount /proc" >&2; exit 77; }

home=$(setting HONE_HOME)
listen=$(setting HONE_SERVER_LISTEN)
[ "$home" = /data ] && [ "$listen" = 0.0.0.0:11435 ] || fail "the Dockerfile has other settings than this script: $home, $listen"
variables=(PATH=/usr/local/bin "HONE_HOME=$home")
# The command line of hone in the image.
inside() { command=(env -i "${variables[@]}" "$(command -v chroot)" --userspec="$user:$user" "$root" hone "$@"); }
run() { inside "$@" && "${command[@]}"; }

run pull /model.gguf --name built-in
variables+=("HONE_SERVER_LISTEN=$listen" HONE_ENGINE_MODEL=built-in)
if run serve 2>"$root/refused"; then
    fail 'it serves other machines without a key'
fi
grep -q 'add a key' "$root/refused" || fail "$(cat "$root/refused")"
key=$(run serve --new-key 2>"$root/hash")
variables+=("HONE_SERVER_KEY_HASHES=$(grep -oE '\["[0-9a-f]+"\]' "$root/hash")")
inside serve --no-grade
"${command[@]}" >"$root/log" 2>&1 &
server=$!
for _ in $(seq 100); do
    grep -q 'hone serves' "$root/log" && break
    sleep 0.1
done
ask() {
    curl --silent --show-error "http://localhost:11435/v1/chat/completions" -H 'Content-Type: application/json' "$@" \
        -d '{"messages": [{"role": "user", "content": "In which city is the Eiffel Tower?"}], "max_tokens": 16, "temperature": 0}'
}
ask | grep -q 'a valid API key is needed' || fail 'it answers without a key'
ask -H "Authorization: Bearer $key" | grep -q Paris || fail "it does not answer: $(cat "$root/log")"
kill "$server"
wait "$server" || fail 'it does not end as it should'
server=
echo 'the unit and the image are sound'
