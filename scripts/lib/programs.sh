# Sourced by scripts that need programs which Debian has.

# install_programs WHO PROGRAM...: installs the missing ones, where that is allowed; says who needs them where it is not.
install_programs() {
    local who=$1 program packages=()
    shift
    for program in "$@"; do
        command -v "$program" >/dev/null || packages+=("$(package_of "$program")")
    done
    [ ${#packages[@]} -eq 0 ] || install_debian_packages "$who" "${packages[@]}"
}

# package_of PROGRAM: the package in which Debian has it.
package_of() {
    case $1 in
    ip) echo iproute2 ;;
    node) echo nodejs ;;
    *) echo "$1" ;;
    esac
}

# install_debian_packages WHO PACKAGE...
install_debian_packages() {
    local who=$1 as_root=''
    shift
    [ "$(id -u)" = 0 ] || as_root='sudo -n'
    if ! { command -v apt-get && $as_root true; } >/dev/null 2>&1; then
        echo "$who need programs that are missing: install $* (Debian packages)" >&2
        exit 1
    fi
    $as_root apt-get update --quiet=2
    $as_root apt-get install --quiet=2 --yes --no-install-recommends "$@"
}
