# Sourced by checks that need programs which Debian has.

# install_programs WHO PROGRAM...: installs the missing ones, where that is allowed; says who needs them where it is not.
install_programs() {
    local who=$1 program as_root='' packages=()
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null || packages+=("${program/%node/nodejs}")
    done
    if [ ${#packages[@]} -eq 0 ]; then
        return
    fi
    [ "$(id -u)" = 0 ] || as_root='sudo -n'
    if ! { command -v apt-get && $as_root true; } >/dev/null 2>&1; then
        echo "$who need programs that are missing: install ${packages[*]} (so they are called in Debian)" >&2
        exit 1
    fi
    $as_root apt-get update --quiet=2
    $as_root apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}"
}
