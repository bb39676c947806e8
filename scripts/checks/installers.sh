#!/usr/bin/env bash
# Makes the archives and the packages of a release from a real hone, and installs and starts each package in a clean folder: with pip,
# npm and dpkg, the formula with Ruby and what it uses of Homebrew, and install.sh from a server here, signed with a key made here. What
# install.sh has to refuse, it refuses with a clear message, and it leaves everything as it was. The packages for other systems have
# stand-ins for the program, so only their form is checked. Homebrew itself, macOS and Windows are not needed, and not tried.
#
# HONE names another binary than the debug build.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ "$(uname -s)" = Linux ] || { echo "it needs Linux" >&2; exit 77; }
# shellcheck source=scripts/lib/program.sh
. scripts/lib/program.sh
# shellcheck source=scripts/lib/programs.sh
. scripts/lib/programs.sh
umask 022
build_program
install_programs 'the check of the packages' curl minisign node npm ruby wget >&2
scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
export HONE_HOME=$scratch/hone NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONDONTWRITEBYTECODE=1
unset HONE_MINISIGN_SECRET_KEY HONE_MINISIGN_PUBLIC_KEY HONE_RELEASE_ADDRESS

case $(uname -m) in
x86_64) processor=x86_64 other=aarch64 npm_processor=x64 debian=amd64 ;;
aarch64) processor=aarch64 other=x86_64 npm_processor=arm64 debian=arm64 ;;
*) echo "there are no packages for $(uname -m)" >&2; exit 77 ;;
esac
target=$processor-unknown-linux-gnu
version=$("$hone" --version)
version=${version#hone }
changed=1700000000
interrupted='This installs hone'

ok() { printf 'ok %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# starts WHAT PROGRAM [ARGUMENT...]
starts() {
    local what=$1 said
    shift
    said=$("$@" --version) || fail "$what: $* does not start"
    [ "$said" = "hone $version" ] || fail "$what: $* says: $said"
    ok "$what"
}

# make_release FOLDER BINARY: a release of all systems; the binary is that of this one.
make_release() {
    local system
    mkdir "$1"
    scripts/lib/packages.py archive "$2" "$target" "$version" "$changed" "$1"
    for system in "$other-unknown-linux-gnu" aarch64-apple-darwin; do
        scripts/lib/packages.py archive "$scratch/stand-in/hone" "$system" "$version" "$changed" "$1"
    done
    scripts/lib/packages.py archive "$scratch/stand-in/hone.exe" x86_64-pc-windows-gnu "$version" "$changed" "$1"
    scripts/lib/packages.py release "$1" >"$1.log"
}

# make_key NAME: a pair of minisign's keys without a password.
make_key() {
    minisign -G -W -p "$scratch/$1.pub" -s "$scratch/$1.key" >"$scratch/log"
}

signed_with() {
    local name=$1
    shift
    HONE_MINISIGN_PUBLIC_KEY=$scratch/$name.pub HONE_MINISIGN_SECRET_KEY=$scratch/$name.key "$@"
}

# Serves $scratch, and below /truncated/ the same files cut short, below /slow/ what never ends. Sets address.
serve() {
    python3 - "$scratch" >"$scratch/port" 2>"$scratch/server.log" <<'PYTHON' &
import functools, http.server, sys, time

class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        self.trouble, self.path = "", self.path
        for trouble in ("truncated", "slow"):
            if self.path.startswith(f"/{trouble}/"):
                self.path = self.path.removeprefix(f"/{trouble}")
                # The list and its signature arrive.
                self.trouble = trouble if self.path.endswith(".tar.gz") else ""
        super().do_GET()

    def copyfile(self, source, output):
        if not self.trouble:
            return super().copyfile(source, output)
        output.write(source.read(1000))
        output.flush()
        if self.trouble == "slow":
            time.sleep(60)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=sys.argv[1]))
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
PYTHON
    server=$!
    for _ in $(seq 100); do
        [ -s "$scratch/port" ] && break
        kill -0 "$server" || fail "the server has ended: $(cat "$scratch/server.log")"
        sleep 0.1
    done
    address=http://127.0.0.1:$(cat "$scratch/port")
}

make_stand_in() {
    mkdir "$scratch/stand-in"
    # Linked as hone is, with every argument taken for --version.
    printf '#include <stdio.h>\nint main(void) { return puts("hone %s") < 0; }\n' "$version" |
        cc -x c -O1 -s -o "$scratch/stand-in/hone" -
    cp "$scratch/stand-in/hone" "$scratch/stand-in/hone.exe"
}

check_reproducible() {
    export HONE_RELEASE_ADDRESS=$address/one
    signed_with right make_release "$scratch/one" "$scratch/stand-in/hone"
    (umask 077 && TZ=Asia/Tokyo LC_ALL=C signed_with right make_release "$scratch/two" "$scratch/stand-in/hone")
    diff -r "$scratch/one" "$scratch/two" || fail 'two runs give different bytes'
    rm -r "$scratch/two"
    (cd "$scratch/one" && sha256sum --check --quiet SHA256SUMS) || fail 'SHA256SUMS is wrong'
    (cd "$scratch/one" && ls) | grep -v '^SHA256SUMS' | diff - <(cut -d ' ' -f 3 "$scratch/one/SHA256SUMS") ||
        fail 'SHA256SUMS does not list what is there'
    if command -v shellcheck >/dev/null; then shellcheck --severity warning "$scratch/one/install.sh"; fi
    ok 'two runs give the same bytes, and SHA256SUMS lists them'
}

check_wheels() {
    local platform venv=$scratch/venv
    python3 -m venv "$venv"
    venv_pip() { "$venv/bin/pip" --quiet --disable-pip-version-check "$@"; }
    venv_pip install --no-index "$release/hone-$version-py3-none-manylinux"*"_$processor.whl"
    starts 'the wheel, installed with pip' "$venv/bin/hone"
    "$venv/bin/pip" --disable-pip-version-check show --files hone | grep -q 'licenses/LICENSE-MIT' || fail 'the wheel has no licence'
    # Those of the other systems, as pip would choose them there.
    for platform in $(cd "$release" && echo ./*"_$other.whl" | sed 's/.*-\(.*\)\.whl/\1/') win_amd64 macosx_14_0_arm64; do
        venv_pip install --no-index --find-links "$release" --only-binary :all: --platform "$platform" --target "$venv/$platform" hone
        [ -f "$venv/$platform/bin/hone" ] || [ -f "$venv/$platform/bin/hone.exe" ] || fail "the wheel for $platform has no program"
    done
    python3 - "$release"/*.whl <<'PYTHON' || fail "a wheel's list of files is wrong"
import base64, csv, hashlib, io, sys, zipfile

for path in sys.argv[1:]:
    wheel = zipfile.ZipFile(path)
    record = next(name for name in wheel.namelist() if name.endswith("/RECORD"))
    rows = list(csv.reader(io.TextIOWrapper(wheel.open(record))))
    assert sorted(row[0] for row in rows) == sorted(wheel.namelist()), path
    for name, digest, size in rows:
        data = wheel.read(name)
        expected = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert name == record or (digest, int(size)) == (expected, len(data)), (path, name)
PYTHON
    ok 'the wheels of the other systems, unpacked by pip'
}

check_npm() {
    local prefix=$scratch/npm launcher=$scratch/npm/bin/hone program=$scratch/npm/lib/node_modules/hone-linux-$npm_processor/bin/hone
    npm --cache "$scratch/npm-cache" --offline --no-audit --no-fund --no-update-notifier --loglevel error install --global \
        --prefix "$prefix" "$release/hone-$version.tgz" "$release/hone-linux-$npm_processor-$version.tgz" >&2
    starts 'the packages of npm' "$launcher"
    check_launcher
    rm -r "$(dirname "$(dirname "$program")")"
    ! "$launcher" --version 2>"$scratch/log" || fail 'the launcher starts without a program'
    grep -q "the package hone-linux-$npm_processor is missing: install hone again" "$scratch/log" || fail "$(cat "$scratch/log")"
    ok "the launcher says that the system's package is missing"
}

# program_is TEXT: makes a shell script the program that the launcher starts.
program_is() {
    rm "$program"
    printf '#!/bin/sh\n%s\n' "$1" >"$program"
    chmod 755 "$program"
}

# signaled SIGNAL: sends the launcher a signal once its program is ready, and sets status to how it ended.
signaled() {
    rm -f "$scratch/ready"
    setsid "$launcher" </dev/null &
    local launched=$!
    for _ in $(seq 100); do [ -e "$scratch/ready" ] && break || sleep 0.05; done
    kill -s "$1" "$launched"
    status=0
    wait "$launched" || status=$?
}

check_launcher() {
    local status=0
    program_is 'cat; printf "<%s>" "$@"; exit 7'
    [ "$(echo in | "$launcher" 'a b' '' '*' || echo " $?")" = $'in\n<a b><><*> 7' ] || fail 'the launcher changes what it hands on'
    program_is 'kill -s KILL $$'
    { "$launcher" || status=$?; } 2>/dev/null
    [ "$status" = 137 ] || fail "the launcher of a killed program ends with $status"
    program_is "for s in INT TERM HUP; do trap \"echo \$s >'$scratch/got'; exit 9\" \$s; done; >'$scratch/ready'; while :; do sleep 0.05; done"
    for signal in INT TERM HUP; do
        signaled "$signal"
        [ "$status $(cat "$scratch/got")" = "9 $signal" ] || fail "after SIG$signal: $status, $(cat "$scratch/got")"
    done
    # A shell would take two signals that come shortly after each other for one.
    cat >"$scratch/counting.py" <<'PYTHON'
import signal, sys

counted = []
signal.signal(signal.SIGINT, lambda *_: (counted.append(1), print("counted", flush=True)))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(len(counted)))
print("ready", flush=True)
while True:
    signal.pause()
PYTHON
    program_is "exec python3 '$scratch/counting.py'"
    status=0
    python3 - "$launcher" <<'PYTHON' || status=$?
import os, pty, signal, sys, time

process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], sys.argv[1:])

def wait_for(text):
    while text not in os.read(terminal, 100):
        pass

wait_for(b"ready")
os.write(terminal, b"\x03")
wait_for(b"counted")
# For a second one, which should not come.
time.sleep(0.2)
os.kill(process, signal.SIGTERM)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
PYTHON
    [ "$status" = 1 ] || fail "a Ctrl-C reaches the program $status times"
    ok 'the launcher hands on arguments, input, exit status and signals'
}

check_debian() {
    local package=$release/hone_${version}_$debian.deb root=$scratch/root
    if ! command -v dpkg-deb >/dev/null; then
        echo 'NOT RUN: the packages of Debian, as dpkg-deb is missing'
        return
    fi
    dpkg-deb --info "$package" >"$scratch/log"
    grep -q "^ Depends: libc6 (>= 2\.[0-9]*), libgcc-s1 (>= [0-9.]*)" "$scratch/log" || fail "$(cat "$scratch/log")"
    mkdir "$root"
    if [ "$(id -u)" = 0 ]; then
        mkdir -p "$root/var/lib/dpkg"/{info,updates}
        touch "$root/var/lib/dpkg/status"
        dpkg --root="$root" --force-depends --install "$package" >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
        [ "$(dpkg-query --root="$root" --show --showformat '${db:Status-Status}' hone)" = installed ] || fail 'dpkg does not know it'
    else
        dpkg-deb --extract "$package" "$root"
    fi
    starts 'the package of Debian, installed with dpkg' "$root/usr/bin/hone"
    dpkg-deb --control "$package" "$scratch/control"
    (cd "$root" && md5sum --check --quiet "$scratch/control/md5sums") || fail 'the list of checksums is wrong'
    # What it depends on is what this system has, which runs it.
    apt-get install --simulate --quiet=2 "$package" >"$scratch/log" 2>&1 || fail "$(cat "$scratch/log")"
    grep -qx 'ExecStart=/usr/bin/hone serve' "$root/usr/lib/systemd/system/hone.service" || fail 'the unit starts another program'
    ! grep -rq '/usr/local\|install -m' "$root/usr/lib/systemd" || fail 'the units are not those of a package'
    [ -s "$root/usr/share/doc/hone/copyright" ] && [ -s "$root/usr/share/doc/hone/docs/getting-started.md" ] || fail 'documents are missing'
    for package in "$release"/*.deb; do dpkg-deb --contents "$package" >"$scratch/log" || fail "$package is damaged"; done
    ok 'its dependencies, units and documents'
}

# brew FORMULA PREFIX: installs a formula and runs its test, with as much of Homebrew as it uses.
brew() {
    cat >"$scratch/brew.rb" <<'RUBY'
require "digest"
require "fileutils"
require "open-uri"
require "tmpdir"

Folder = Struct.new(:path) do
  def to_s = path
  def install(name)
    FileUtils.mkdir_p(path)
    FileUtils.cp(name, path, preserve: true)
  end
end

class Formula
  class << self
    attr_reader :found, :tested

    %i[desc homepage license depends_on].each { |name| define_method(name) { |*| } }
    def version(text) = (@version = text)
    def number = @version
    def on_linux = yield
    def on_macos = nil
    def on_arm = RUBY_PLATFORM.start_with?("aarch64") ? yield : nil
    def on_intel = RUBY_PLATFORM.start_with?("x86_64") ? yield : nil
    def url(text) = (@found = { url: text })
    def sha256(text) = @found[:sha256] = text
    def test(&block) = (@tested = block)
  end

  attr_reader :bin

  def initialize(prefix) = (@bin = Folder.new("#{prefix}/bin"))
  def version = self.class.number
  def shell_output(command) = `#{command}`
  def assert_equal(expected, found) = expected == found || raise("expected #{expected}, found #{found}")
end

formula, prefix = ARGV
load formula
url, sum = Hone.found.values_at(:url, :sha256)
archive = url.start_with?("file://") ? File.binread(url.delete_prefix("file://")) : URI.parse(url).open("rb", &:read)
raise "#{url} is not what the formula says" unless Digest::SHA256.hexdigest(archive) == sum
Dir.mktmpdir do |folder|
  File.binwrite("#{folder}/archive", archive)
  system("tar", "-xzf", "#{folder}/archive", "-C", folder, "--strip-components=1", exception: true)
  hone = Hone.new(prefix)
  Dir.chdir(folder) { hone.install }
  hone.instance_eval(&Hone.tested)
end
RUBY
    ruby -W0 "$scratch/brew.rb" "$1" "$2"
}

check_formula() {
    ruby -c "$release/hone.rb" >"$scratch/log" || fail 'the formula is not Ruby'
    brew "$release/hone.rb" "$scratch/brew"
    starts 'the formula, in place of Homebrew by Ruby' "$scratch/brew/bin/hone"
}

# With neither a key nor an address.
check_unsigned() {
    unset HONE_RELEASE_ADDRESS
    make_release "$scratch/unsigned" "$scratch/stand-in/hone"
    grep -q 'NOT SIGNED' "$scratch/unsigned.log" && grep -q 'NO ADDRESS' "$scratch/unsigned.log" || fail "$(cat "$scratch/unsigned.log")"
    ruby -c "$scratch/unsigned/hone.rb" >"$scratch/log" || fail 'the formula is not Ruby'
    brew "$scratch/unsigned/hone.rb" "$scratch/brew-beside"
    starts 'the formula without an address' "$scratch/brew-beside/bin/hone"
    script=$scratch/unsigned/install.sh
    refuses 'pass its folder or its address: --from'
    refuses 'To install without checking who made the archive, pass --unsigned' --from "$scratch/unsigned"
    refuses 'a release that is not signed is not installed' --from "$scratch/unsigned" --key "$key"
    installs 'install.sh with --unsigned' --from "$scratch/unsigned" --unsigned
    grep -q 'NOT CHECKED' "$scratch/said" || fail 'it does not say that it checks no signature'
}

# install [OPTION...]: runs $script for a person whose home is $home.
install() {
    env -i PATH="$path" HOME="$home" TMPDIR="$temporary" no_proxy=127.0.0.1 ${before[@]+"${before[@]}"} sh "$script" "$@"
}

new_home() {
    home=$scratch/home temporary=$scratch/temporary
    rm -rf "$home" "$temporary"
    mkdir "$home" "$temporary"
}

# Every file with its contents, and every folder.
state() { (cd "$scratch" && find home temporary -printf '%y %m %p\n' -type f -exec md5sum {} + | sort); }

# installs WHAT [OPTION...]
installs() {
    local what=$1
    shift
    new_home
    install "$@" >"$scratch/said" 2>&1 || fail "$what: $(cat "$scratch/said")"
    [ -z "$(ls -A "$temporary")" ] || fail "$what: it leaves $(ls -A "$temporary")"
    [ "$(ls -A "$home/.local/bin")" = hone ] || fail "$what: it leaves $(ls -A "$home/.local/bin")"
    starts "$what" "$home/.local/bin/hone"
}

# refuses TEXT [OPTION...]: fails with a message that has this text, and leaves everything as it was: without hone, and with an older one.
refuses() {
    local text=$1 old status
    shift
    for old in false true; do
        new_home
        if $old; then
            mkdir -p "$home/.local/bin"
            echo old >"$home/.local/bin/hone"
        fi
        state >"$scratch/state"
        status=0
        install "$@" >"$scratch/said" 2>&1 || status=$?
        [ "$status" -gt 0 ] || fail "it installs where it should say: $text"
        grep -qF -- "$text" "$scratch/said" || fail "it should say: $text; it says: $(cat "$scratch/said")"
        grep -q '^error: ' "$scratch/said" || [ "$text" = "$interrupted" ] || fail "no error: $(cat "$scratch/said")"
        state | diff "$scratch/state" - || fail "it does not leave everything as it was: $text"
    done
    ok "install.sh refuses: $text"
}

# altered NAME: a copy of the signed release to change.
altered() {
    rm -rf "${scratch:?}/$1"
    cp -r "$scratch/one" "$scratch/$1"
    echo "$scratch/$1"
}

# without PROGRAM...: a PATH on which only what install.sh needs is, without these.
without() {
    local folder=$scratch/programs program
    rm -rf "$folder"
    mkdir "$folder"
    for program in sh awk cat chmod cp curl cut dirname gzip minisign mkdir mktemp mv rm rmdir sha256sum tail tar uname wget; do
        [[ " $* " = *" $program "* ]] || ln -s "$(command -v "$program")" "$folder"
    done
    echo "$folder"
}

check_install_script() {
    script=$release/install.sh path=$PATH before=()
    installs 'install.sh, with the signature checked'
    grep -q "from .*$address" "$scratch/said" && grep -q "to .*$home/.local/bin/hone" "$scratch/said" &&
        grep -q 'signature of SHA256SUMS is valid' "$scratch/said" && grep -q 'is not on your PATH' "$scratch/said" ||
        fail "it does not say what it does: $(cat "$scratch/said")"
    install >"$scratch/said" 2>&1 && grep -q 'replacing what is there' "$scratch/said" || fail "a second time: $(cat "$scratch/said")"
    sh "$script" --help | grep -q -- --unsigned || fail 'it has no help'

    script=$scratch/one/install.sh
    installs 'install.sh from a folder' --from "$scratch/one"
    script=packaging/install.sh
    installs 'install.sh of the repository, which is told everything' --from "$address/one/" --key "$key" --version "v$version"
    script=$scratch/one/install.sh
    path=$(without curl) installs 'install.sh with wget alone'
    path=$(without minisign) installs 'install.sh without minisign, unsigned' --unsigned
    new_home
    curl --silent "$address/one/install.sh" | env -i PATH="$PATH" HOME="$home" sh -s -- --to "$home/a folder" >"$scratch/said" 2>&1
    starts 'install.sh from a pipe, into a folder with a space' "$home/a folder/hone"
    check_cut_script
}

# Wherever the script is cut on its way to the shell, it does nothing.
check_cut_script() {
    local size cut
    size=$(stat --format %s "$script")
    new_home
    state >"$scratch/state"
    # Without the newline at its end, it is whole.
    for cut in $(seq 2 40) 200 1000 $((size / 2)); do
        head -c "-$cut" "$script" | env -i PATH="$PATH" HOME="$home" TMPDIR="$temporary" sh >"$scratch/said" 2>&1 || true
    done
    state | diff "$scratch/state" - || fail 'a script that is cut short does something'
    ok 'install.sh does nothing if it is cut short'
}

check_refusals() {
    local name=hone-$version-$target.tar.gz folder
    script=$scratch/one/install.sh path=$PATH before=()
    refuses 'is not signed with the key' --key "$(tail -n 1 "$scratch/wrong.pub")"
    folder=$(altered list)
    sed -i 's/^[0-9a-f]/0/; s/^00/01/' "$folder/SHA256SUMS"
    refuses 'is not signed with the key' --from "$folder"
    folder=$(altered archive)
    printf x >>"$folder/$name"
    refuses "$name is not what SHA256SUMS lists" --from "$folder"
    truncate --size=-100 "$folder/$name"
    refuses "$name is not what SHA256SUMS lists" --from "$folder"
    rm "$folder/$name"
    refuses "cannot get $folder/$name" --from "$folder"
    rm "$folder/SHA256SUMS.minisig"
    refuses 'a release that is not signed is not installed' --from "$folder"
    refuses "cannot get $address/nowhere/SHA256SUMS: curl: (22)" --from "$address/nowhere"
    refuses "cannot get $address/truncated/one/$name: curl: (18)" --from "$address/truncated/one"
    path=$(without curl) refuses 'cannot get' --from "$address/nowhere"
    refuses 'SHA256SUMS lists no archive of hone 9.9.9' --version 9.9.9 --from "$address/one"
    path=$(without minisign) refuses 'minisign is not installed'
    path=$(without curl wget) refuses 'neither curl nor wget is installed'
    refuses 'unknown option: --froom' --froom x
    refuses '--to needs a value' --to
    refuses "$scratch/one/SHA256SUMS is not a folder" --to "$scratch/one/SHA256SUMS/bin"
    refuses 'is neither a folder nor an address' --from "$scratch/nowhere"
    check_unwritable
    check_not_starting
    check_interrupted
}

# Root may write everywhere, and so becomes another user.
check_unwritable() {
    if [ "$(id -u)" = 0 ]; then
        chmod 711 "$scratch"
        before=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        refuses 'you may not write to' --to "$scratch/one/below"
        chmod 700 "$scratch"
        before=()
    else
        mkdir --mode=555 "$scratch/locked"
        refuses 'you may not write to' --to "$scratch/locked/bin"
    fi
}

# A program that is signed and cannot run here.
check_not_starting() {
    mkdir "$scratch/broken"
    printf '#!/bin/sh\necho "version GLIBC_2.99 not found" >&2\nexit 1\n' >"$scratch/broken/hone"
    scripts/lib/packages.py archive "$scratch/broken/hone" "$target" "$version" "$changed" "$scratch/broken"
    (cd "$scratch/broken" && sha256sum ./*.tar.gz | sed 's|\./||' >SHA256SUMS)
    minisign -S -s "$scratch/right.key" -m "$scratch/broken/SHA256SUMS" >"$scratch/log"
    refuses "hone $version does not start on this system: version GLIBC_2.99 not found" --from "$scratch/broken"
}

# Ctrl-C while the archive is downloaded.
check_interrupted() {
    cat >"$scratch/interrupt.py" <<'PYTHON'
import os, pathlib, signal, subprocess, sys, time

log = pathlib.Path(sys.argv[1])
n_before = log.read_text().count("/slow/one/hone-")
running = subprocess.Popen(
    sys.argv[2:], start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
while running.poll() is None and log.read_text().count("/slow/one/hone-") == n_before:
    time.sleep(0.05)
os.killpg(running.pid, signal.SIGINT)
sys.exit(running.wait())
PYTHON
    before=(python3 "$scratch/interrupt.py" "$scratch/server.log")
    refuses "$interrupted" --from "$address/slow/one"
    before=()
}

make_stand_in
serve
make_key right
make_key wrong
key=$(tail -n 1 "$scratch/right.pub")
check_reproducible
release=$scratch/release
mkdir "$scratch/built"
strip -o "$scratch/built/hone" "$hone"
HONE_RELEASE_ADDRESS=$address/release signed_with right make_release "$release" "$scratch/built/hone"
check_wheels
check_npm
check_debian
check_formula
check_install_script
check_refusals
check_unsigned
