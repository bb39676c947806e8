#!/bin/sh
# Installs hone from the archives of a release: sh install.sh --help explains the options.
#
# It says what it will do, gets SHA256SUMS, its signature and the archive for this system, checks the signature with minisign and the
# archive with its SHA-256, starts the program once, and only then puts it where an older one may be. If anything fails, everything
# is as it was before.
set -eu

# Filled in by scripts/release.sh.
release=''
address=''
public_key=''

help() {
    cat <<HELP
Installs hone from the archives of a release, for you alone: nothing needs root.

  sh install.sh [OPTION...]

  --from FOLDER|ADDRESS   where the files of the release are (${address:-has to be given})
  --to FOLDER             where the program goes (~/.local/bin)
  --version VERSION       which version (${release:-the one that is there})
  --key KEY               minisign's public key that the release must be signed with (${public_key:-has to be given})
  --unsigned              installs without checking the signature
  --help                  explains this

It says what it will do before it does it. To remove hone, delete the program.
HELP
}

say() { printf '%s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$1" >&2
    [ $# -lt 2 ] || printf '%s\n' "$2" >&2
    exit "${3:-1}"
}
has() { command -v "$1" >/dev/null 2>&1; }

read_options() {
    from=$address to=${HOME:+$HOME/.local/bin} version=$release key=$public_key signed=true
    while [ $# -gt 0 ]; do
        case $1 in
        --from | --to | --version | --key)
            [ -n "${2:-}" ] || fail "$1 needs a value" "--help explains the options" 2
            ;;
        esac
        case $1 in
        --from) from=$2 && shift ;;
        --to) to=$2 && shift ;;
        --version) version=${2#v} && shift ;;
        --key) key=$2 && shift ;;
        --unsigned) signed=false ;;
        -h | --help) help && exit ;;
        *) fail "unknown option: $1" "--help explains the options" 2 ;;
        esac
        shift
    done
    [ -n "$from" ] || fail "it is not known where the release is" "pass its folder or its address: --from FOLDER|ADDRESS" 2
    [ -n "$to" ] || fail "there is no home folder" "pass the folder for the program: --to FOLDER" 2
    [ "$version" = "$release" ] || [ "$from" != "$address" ] || follow_version
    from=${from%/} to=${to%/}
    case $to in /*) ;; *) to=$PWD/$to ;; esac
}

# Another version is at the same address, with its number in place of this one's.
follow_version() {
    case $address in *"$release"*) from=${address%"$release"*}$version${address##*"$release"} ;; esac
}

# Sets target to what the archive for this machine is called after.
detect() {
    system=$(uname -s) processor=$(uname -m)
    # A shell that macOS translates says that the processor is another.
    [ "$system" != Darwin ] || [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" != 1 ] || processor=arm64
    case $system/$processor in
    Linux/x86_64 | Linux/amd64) target=x86_64-unknown-linux-gnu ;;
    Linux/aarch64 | Linux/arm64) target=aarch64-unknown-linux-gnu ;;
    Darwin/arm64) target=aarch64-apple-darwin ;;
    *) fail "hone has no archive for $system on $processor" "build it from its source; on Windows, unpack the .zip file" ;;
    esac
}

check_programs() {
    has tar || fail "tar is not installed" "install it with your system's package manager"
    has sha256sum || has shasum || has openssl || fail "nothing here computes SHA-256" "install sha256sum, shasum or openssl"
    case $from in
    http://* | https://*) has curl || has wget || fail "neither curl nor wget is installed" "install one of them to download $from" ;;
    *) [ -d "$from" ] || fail "$from is neither a folder nor an address" "addresses begin with http:// or https://" ;;
    esac
    $signed || return 0
    [ -n "$key" ] || fail "it is not known which key has signed the release" \
        "pass minisign's public key: --key KEY. To install without checking who made the archive, pass --unsigned"
    has minisign || fail "minisign is not installed, and the signature cannot be checked without it" \
        "install minisign with your system's package manager. To install without checking who made the archive, pass --unsigned"
}

# Before anything is downloaded: whether the program can be put there.
check_folder() {
    [ ! -d "$to/hone" ] || fail "$to/hone is a folder" "choose another folder for the program: --to FOLDER"
    existing=$to
    while [ ! -e "$existing" ]; do existing=$(dirname "$existing"); done
    [ -d "$existing" ] || fail "$existing is not a folder" "choose another folder for the program: --to FOLDER"
    [ -w "$existing" ] || fail "you may not write to $existing" "choose another folder for the program: --to FOLDER"
}

say_plan() {
    say "This installs hone${version:+ $version}:"
    say "  from        $from/hone-${version:-VERSION}-$target.tar.gz"
    if [ -e "$to/hone" ]; then say "  to          $to/hone, replacing what is there"; else say "  to          $to/hone"; fi
    if $signed; then
        say "  signature   SHA256SUMS has to be signed with the key $key"
    else
        say "  signature   NOT CHECKED, as --unsigned was passed: nothing proves who made the archive"
    fi
}

# fetch FILE: copies a file of the release to $work. Whether it did; if not, $work/why says why.
fetch() {
    case $from in
    http://* | https://*) ;;
    *)
        cp "$from/$1" "$work/$1" 2>"$work/why"
        return
        ;;
    esac
    if has curl; then
        case $from in https://*) protocols='=https' ;; *) protocols='=http,https' ;; esac
        curl --proto "$protocols" --fail --silent --show-error --location --output "$work/$1" "$from/$1" 2>"$work/why"
    else
        wget -q -O "$work/$1" "$from/$1" 2>"$work/why" || { echo "wget failed with $?" >>"$work/why" && return 1; }
    fi
}

fetch_or_fail() {
    fetch "$1" || fail "cannot get $from/$1: $(tail -n 1 "$work/why")" "$2"
}

check_signature() {
    $signed || return 0
    fetch_or_fail SHA256SUMS.minisig \
        "a release that is not signed is not installed. To install without checking who made the archive, pass --unsigned"
    minisign -V -q -P "$key" -m "$work/SHA256SUMS" -x "$work/SHA256SUMS.minisig" >"$work/why" 2>&1 ||
        fail "SHA256SUMS is not signed with the key $key: $(tail -n 1 "$work/why")" \
            "do not use this download: it was altered, or it is not from those who have the key"
    say "The signature of SHA256SUMS is valid."
}

# Sets name to the archive's, and sum to its hash, as SHA256SUMS says.
choose_archive() {
    listed=$(awk -v "version=$version" -v "target=$target" '
        { name = $2; sub(/^\*/, "", name) }
        version != "" && name != "hone-" version "-" target ".tar.gz" { next }
        name ~ "^hone-[0-9][0-9A-Za-z.+-]*-" target "[.]tar[.]gz$" && $1 ~ /^[0-9a-f]+$/ && length($1) == 64 { print name, $1 }
    ' "$work/SHA256SUMS")
    case $listed in
    '') fail "SHA256SUMS lists no archive of hone${version:+ $version} for $target" "see which archives there are: $from/SHA256SUMS" ;;
    *"
"*) fail "SHA256SUMS lists several versions" "choose one: --version VERSION" ;;
    esac
    name=${listed% *} sum=${listed#* }
    version=${name#hone-} version=${version%-"$target".tar.gz}
}

sha256() {
    if has sha256sum; then sha256sum "$1"; elif has shasum; then shasum -a 256 "$1"; else openssl dgst -sha256 -r "$1"; fi | cut -d ' ' -f 1
}

check_archive() {
    found=$(sha256 "$work/$name")
    [ "$found" = "$sum" ] || fail "$name is not what SHA256SUMS lists: its SHA-256 is $found, not $sum" \
        "the download was cut short or altered: try again, and if it fails again, do not use this archive"
    say "The SHA-256 of $name is as listed."
    tar -xzf "$work/$name" -C "$work" "${name%.tar.gz}/hone" 2>"$work/why" ||
        fail "$name cannot be unpacked: $(tail -n 1 "$work/why")" "make space in ${TMPDIR:-/tmp}; if there is enough, report this"
}

# Makes the program's folder, and remembers for cleaning up which folders were not there.
make_folder() {
    missing=$to
    while [ ! -e "$missing" ]; do
        made="$made$missing
"
        missing=$(dirname "$missing")
    done
    mkdir -p "$to" || fail "cannot make the folder $to" "choose another folder for the program: --to FOLDER"
}

# The program is replaced at once, and only by one that starts.
place() {
    make_folder
    staged=$to/.hone-$$
    cp "$work/${name%.tar.gz}/hone" "$staged" || fail "cannot write to $to" "make space, or choose another folder: --to FOLDER"
    chmod 755 "$staged"
    said=$("$staged" --version 2>"$work/why") || said=
    [ "$said" = "hone $version" ] || fail "hone $version does not start on this system: $(tail -n 1 "$work/why")" \
        "nothing was replaced. On Linux, hone needs the GNU C library in a recent version"
    mv -f "$staged" "$to/hone" || fail "cannot replace $to/hone" "choose another folder for the program: --to FOLDER"
    installed=true
    say "hone $version is installed: $to/hone"
}

say_path() {
    case :$PATH: in
    *":$to:"*) ;;
    *) say "$to is not on your PATH. Add it to your shell's profile: export PATH=\"$to:\$PATH\"" && return ;;
    esac
    first=$(command -v hone)
    [ "$first" = "$to/hone" ] || say "Your PATH finds another hone first: $first"
}

clean_up() {
    trap '' HUP INT TERM
    [ -z "$work" ] || rm -rf "$work"
    $installed && return
    [ -z "$staged" ] || rm -f "$staged"
    printf '%s' "$made" | while IFS= read -r folder; do rmdir "$folder" 2>/dev/null || break; done
}

main() {
    work='' staged='' made='' installed=false
    read_options "$@"
    detect
    check_programs
    check_folder
    say_plan
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    work=$(mktemp -d) || fail "cannot make a temporary folder" "set TMPDIR to a folder that you may write to"
    fetch_or_fail SHA256SUMS "check the address, the version and your connection"
    check_signature
    choose_archive
    fetch_or_fail "$name" "check your connection and try again"
    check_archive
    place
    say_path
}

# In braces, so that a script that is cut short on its way to the shell does nothing.
{
    main "$@"
    exit
}
