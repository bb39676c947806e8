#!/usr/bin/env python3
"""Makes what a release consists of: the archives, and from them the packages for pip, npm, Debian and Homebrew, and install.sh.

    scripts/lib/packages.py archive BINARY TARGET VERSION TIME FOLDER
    scripts/lib/packages.py release FOLDER

`archive` packs a binary with the licences and the documents; TIME, in seconds since 1970, is when everything in it was changed.
`release` makes the packages of the archives in FOLDER, of packaging/ and of Cargo.toml, writes SHA256SUMS over all files in it,
signs that if there is a key, and prints what was made. The same input gives the same bytes.

    HONE_RELEASE_ADDRESS         where the files of FOLDER will be downloaded from; without, what Cargo.toml's `repository` says
    HONE_MINISIGN_PUBLIC_KEY     the key that install.sh checks signatures with, or the file that it is in
    HONE_MINISIGN_SECRET_KEY     the file of the key that signs
"""

import base64
import calendar
import collections
import concurrent.futures
import csv
import dataclasses
import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "docs", "assets")
LICENSES = ("LICENSE-MIT", "LICENSE-APACHE")
ARCHIVE = re.compile(r"hone-(?P<version>\d.*?)-(?P<target>(?:x86_64|aarch64)-.+?)\.(?:tar\.gz|zip)")
OBJDUMPS = ("objdump", "aarch64-linux-gnu-objdump", "llvm-objdump")


class Wrong(Exception):
    """A package cannot be made of what is there."""


@dataclasses.dataclass(frozen=True)
class System:
    """What package managers call a target."""

    wheel: str
    npm: tuple[str, str]
    debian: str = ""
    homebrew: tuple[str, str] = ()


# GLIBC stands for the version that the binary needs.
SYSTEMS = {
    "x86_64-unknown-linux-gnu": System("manylinux_GLIBC_x86_64", ("linux", "x64"), "amd64", ("linux", "intel")),
    "aarch64-unknown-linux-gnu": System("manylinux_GLIBC_aarch64", ("linux", "arm64"), "arm64", ("linux", "arm")),
    "x86_64-pc-windows-gnu": System("win_amd64", ("win32", "x64")),
    # The oldest macOS that Rust builds for.
    "aarch64-apple-darwin": System("macosx_11_0_arm64", ("darwin", "arm64"), "", ("macos", "arm")),
}
# The libraries that a wheel for manylinux may expect (PEP 600), of those that programs in Rust and C++ are linked to, and the
# package of Debian for each.
LIBRARIES = {
    **dict.fromkeys(("libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"), "libc6"),
    **dict.fromkeys(("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"), "libc6"),
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
}
# The version of GCC whose C++ library has the symbols of GLIBCXX_3.4.N first. Every supported Debian has those before 29.
GCC_OF_GLIBCXX = {29: "11", 30: "12", 31: "13", 32: "13.2", 33: "14", 34: "15"}


@dataclasses.dataclass(frozen=True)
class File:
    """A file of an archive or a package."""

    data: bytes
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Archive:
    """The archive of a target: its files by their paths below the archive's one folder."""

    path: pathlib.Path
    version: str
    target: str
    time: int
    files: dict[str, File]

    @property
    def system(self):
        return SYSTEMS[self.target]

    @property
    def program(self):
        return "hone.exe" if "hone.exe" in self.files else "hone"

    @property
    def licenses(self):
        return {name: self.files[name] for name in LICENSES}

    @property
    def documents(self):
        return {name: file for name, file in self.files.items() if name not in (self.program, *LICENSES)}

    @functools.cached_property
    def sha256(self):
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    @functools.cached_property
    def needed(self):
        return read_needs(self.files[self.program].data)


@dataclasses.dataclass(frozen=True)
class Needed:
    """What a binary for Linux is linked to: libraries, and the highest version of each kind of symbols (GLIBC, GCC, GLIBCXX)."""

    libraries: tuple[str, ...]
    versions: dict[str, tuple[int, ...]]

    def version(self, kind, separator="."):
        return separator.join(map(str, self.versions[kind]))


def objdump(binary):
    """The headers of a binary, from the first program that can read it."""
    for program in OBJDUMPS:
        try:
            done = subprocess.run([program, "-p", binary], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0 and "NEEDED" in done.stdout:
            return done.stdout
    raise Wrong(f"none of {', '.join(OBJDUMPS)} reads the binary: install binutils for its processor")


def read_needs(binary):
    with tempfile.NamedTemporaryFile() as file:
        file.write(binary)
        file.flush()
        headers = objdump(file.name)
    libraries = tuple(re.findall(r"^\s*NEEDED\s+(\S+)", headers, re.MULTILINE))
    if unknown := [library for library in libraries if library not in LIBRARIES]:
        raise Wrong(f"the binary needs {', '.join(unknown)}, which packages for Linux do not expect: link it in")
    versions = {}
    for kind, version in re.findall(r"\b(GLIBC|GCC|GLIBCXX)_(\d[\d.]*)", headers):
        numbers = tuple(map(int, version.split(".")))
        versions[kind] = max(numbers, versions.get(kind, numbers))
    return Needed(libraries, versions)


# Containers


def with_folders(files):
    """The names of files with those of the folders that they are in, in order."""
    folders = {f"{folder}/" for name in files for folder in map(str, pathlib.PurePosixPath(name).parents) if folder != "."}
    return sorted(folders | set(files))


def tar(files, changed, names=None):
    """A compressed tar archive that does not depend on who makes it, and when."""
    packed = io.BytesIO()
    # A higher level makes binaries smaller by a hundredth, and takes three times as long.
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in names or sorted(files):
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.mtime = changed
            if name in files:
                entry.mode, entry.size = files[name].mode, len(files[name].data)
                archive.addfile(entry, io.BytesIO(files[name].data))
            else:
                entry.mode, entry.type = 0o755, tarfile.DIRTYPE
                archive.addfile(entry)
    return packed.getvalue()


def zipped(files, changed):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(changed)[:6])
            # As a Unix system writes it, also on others: with permissions.
            entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.data)
    return packed.getvalue()


def ar(members, changed):
    """The container of Debian's packages."""
    packed = b"!<arch>\n"
    for name, data in members.items():
        packed += f"{name:<16}{changed:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return packed


def untar(path):
    with tarfile.open(path) as archive:
        for entry in archive:
            if entry.isfile():
                yield entry.name, File(archive.extractfile(entry).read(), entry.mode), entry.mtime


def unzip(path):
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            changed = calendar.timegm((*entry.date_time, 0, 0, 0))
            yield entry.filename, File(archive.read(entry), entry.external_attr >> 16 & 0o777), changed


# Archives


def read_archive(path):
    name = ARCHIVE.fullmatch(path.name)
    if not name or name["target"] not in SYSTEMS:
        raise Wrong(f"{path.name} is not an archive of a release: expected hone-VERSION-TARGET with a target of {', '.join(SYSTEMS)}")
    files, changed = {}, 0
    for inside, file, its_time in (unzip if path.suffix == ".zip" else untar)(path):
        files[inside.split("/", 1)[1]] = file
        changed = max(changed, its_time)
    return Archive(path, name["version"], name["target"], changed, files)


def read_archives(folder):
    found = [read_archive(path) for path in sorted(folder.iterdir()) if ARCHIVE.fullmatch(path.name)]
    if not found:
        raise Wrong(f"{folder} has no archives: scripts/release.sh makes them")
    if len({archive.version for archive in found}) > 1:
        raise Wrong(f"{folder} has archives of several versions: {', '.join(archive.path.name for archive in found)}")
    return found


def documents():
    """What goes with the binary: files below the repository's root."""
    paths = [each for name in DOCUMENTS for each in [ROOT / name, *(ROOT / name).rglob("*")] if each.is_file()]
    return {path.relative_to(ROOT).as_posix(): File(path.read_bytes()) for path in paths}


def make_archive(binary, target, version, changed, folder):
    name = f"hone-{version}-{target}"
    files = {f"{name}/{inside}": file for inside, file in documents().items()}
    files[f"{name}/hone{binary.suffix}"] = File(binary.read_bytes(), 0o755)
    files = dict(sorted(files.items()))
    if target == "x86_64-pc-windows-gnu":
        (folder / f"{name}.zip").write_bytes(zipped(files, changed))
    else:
        (folder / f"{name}.tar.gz").write_bytes(tar(files, changed, with_folders(files)))


# What Cargo.toml says


@functools.cache
def metadata():
    """The description, the licence and the addresses of the program."""
    shared = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]
    own = tomllib.loads((ROOT / "crates/cli/Cargo.toml").read_text(encoding="utf-8"))["package"]
    return {**shared, **{key: value for key, value in own.items() if isinstance(value, str)}}


def homepage():
    return metadata().get("homepage") or metadata().get("repository")


def release_address(version):
    """Where the files of the release are downloaded from, if that is known."""
    repository = metadata().get("repository")
    address = os.environ.get("HONE_RELEASE_ADDRESS") or (repository and f"{repository.rstrip('/')}/releases/download/v{version}")
    return address.rstrip("/") if address else ""


# Wheels


def python_version(version):
    """The version as Python writes it: 1.0.0-rc.1 is 1.0.0rc1."""
    return re.sub(r"-(a|b|rc)\w*?\.?(\d+)$", r"\1\2", version)


def wheel_tag(archive):
    wheel = archive.system.wheel
    return "py3-none-" + (wheel.replace("GLIBC", archive.needed.version("GLIBC", "_")) if "GLIBC" in wheel else wheel)


def wheel_metadata(archive):
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "hone"),
        ("Version", python_version(archive.version)),
        ("Summary", metadata()["description"]),
        *[("Project-URL", f"Homepage, {homepage()}")] * bool(homepage()),
        ("License-Expression", metadata()["license"]),
        *(("License-File", name) for name in LICENSES),
        ("Description-Content-Type", "text/markdown"),
    ]
    head = "".join(f"{key}: {value}\n" for key, value in fields)
    return head.encode() + b"\n" + archive.files["README.md"].data


def wheel_record(files, path):
    """The list of a wheel's files with their hashes; its own line has none."""
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, file in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.data).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(file.data)))
    writer.writerow((path, "", ""))
    return File(rows.getvalue().encode())


def wheel(archive):
    name, tag = f"hone-{python_version(archive.version)}", wheel_tag(archive)
    info = f"{name}.dist-info"
    about = f"Wheel-Version: 1.0\nGenerator: hone\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        f"{name}.data/scripts/{archive.program}": archive.files[archive.program],
        f"{info}/METADATA": File(wheel_metadata(archive)),
        f"{info}/WHEEL": File(about.encode()),
        **{f"{info}/licenses/{license}": file for license, file in archive.licenses.items()},
    }
    files[f"{info}/RECORD"] = wheel_record(files, f"{info}/RECORD")
    return f"{name}-{tag}.whl", zipped(files, archive.time)


# npm


def npm_name(archive):
    return "hone-" + "-".join(archive.system.npm)


def npm_package(name, version, fields, files, changed):
    described = {
        "name": name,
        "version": version,
        "description": metadata()["description"],
        "license": f"({metadata()['license']})",
        **({"homepage": homepage()} if homepage() else {}),
        **fields,
    }
    files = {**files, "package.json": File(json.dumps(described, indent=2).encode() + b"\n")}
    return f"{name}-{version}.tgz", tar({f"package/{inside}": file for inside, file in files.items()}, changed)


def npm_program(archive):
    """The package that has the binary for a system. npm installs it on that system alone."""
    system, processor = archive.system.npm
    fields = {"os": [system], "cpu": [processor], **({"libc": ["glibc"]} if system == "linux" else {})}
    # A package manager that keeps packages in archives has to unpack this one.
    fields["preferUnplugged"] = True
    files = {f"bin/{archive.program}": archive.files[archive.program], **archive.licenses}
    return npm_package(npm_name(archive), archive.version, fields, files, archive.time)


def npm_launcher(archives):
    """The package that people install: it starts the binary from the package for their system."""
    first = archives[0]
    fields = {
        "bin": {"hone": "hone.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {npm_name(archive): archive.version for archive in archives},
    }
    launcher = File((ROOT / "packaging/npm/hone.js").read_bytes(), 0o755)
    files = {"hone.js": launcher, "README.md": first.files["README.md"], **first.licenses}
    return npm_package("hone", first.version, fields, files, first.time)


# Debian


def debian_depends(needed):
    """The packages that a binary needs: libc6 (>= 2.34), libgcc-s1 (>= 4.2)."""
    versions = {"libc6": needed.version("GLIBC")}
    if "GCC" in needed.versions:
        versions["libgcc-s1"] = needed.version("GCC")
    if "GLIBCXX" in needed.versions:
        versions["libstdc++6"] = gcc_of(needed.versions["GLIBCXX"])
    packages = sorted({LIBRARIES[library] for library in needed.libraries})
    return ", ".join(f"{package} (>= {versions[package]})" if versions.get(package) else package for package in packages)


def gcc_of(glibcxx):
    number = glibcxx[2] if len(glibcxx) > 2 else 0
    if number > max(GCC_OF_GLIBCXX):
        raise Wrong(f"GCC_OF_GLIBCXX in {pathlib.Path(__file__).name} does not say which GCC has GLIBCXX_3.4.{number}")
    return GCC_OF_GLIBCXX.get(number)


def debian_unit(name):
    """A unit of systemd for a program that is a package: without the comments on how to install it."""
    text = (ROOT / "packaging" / name).read_text(encoding="utf-8")
    text = re.sub(r"^# +install -m .*\n", "", text, flags=re.MULTILINE)
    return File(text.replace("/usr/local/bin/hone", "/usr/bin/hone").encode())


def debian_copyright(archive):
    choice = f"{metadata()['license']}. The Apache-2.0 licence is in /usr/share/common-licenses/Apache-2.0, and the MIT licence is:\n\n"
    return File(choice.encode() + archive.files["LICENSE-MIT"].data)


def debian_version(version):
    """The version as Debian orders it: 1.0.0~rc.1 comes before 1.0.0."""
    return version.replace("-", "~")


def debian_files(archive):
    documents = {f"usr/share/doc/hone/{name}": file for name, file in {**archive.documents, **archive.licenses}.items()}
    return {
        "usr/bin/hone": archive.files["hone"],
        "usr/lib/systemd/system/hone.service": debian_unit("hone.service"),
        "usr/lib/systemd/system/hone.socket": debian_unit("hone.socket"),
        "usr/share/doc/hone/copyright": debian_copyright(archive),
        **documents,
    }


def debian_control(archive, files):
    fields = [
        ("Package", "hone"),
        ("Version", debian_version(archive.version)),
        ("Architecture", archive.system.debian),
        ("Maintainer", "The hone authors"),
        ("Installed-Size", sum(-(-len(file.data) // 1024) for file in files.values())),
        ("Depends", debian_depends(archive.needed)),
        ("Section", "utils"),
        ("Priority", "optional"),
        *[("Homepage", homepage())] * bool(homepage()),
        ("Description", metadata()["description"]),
    ]
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {name}\n" for name, file in sorted(files.items()))
    return {"control": File("".join(f"{key}: {value}\n" for key, value in fields).encode()), "md5sums": File(sums.encode())}


def debian_package(archive):
    files = debian_files(archive)
    members = {"debian-binary": b"2.0\n"}
    for name, inside in (("control.tar.gz", debian_control(archive, files)), ("data.tar.gz", files)):
        inside = {f"./{path}": file for path, file in inside.items()}
        # pathlib leaves the leading "./" out.
        names = ["./" + each.removeprefix("./") for each in with_folders({path[2:]: file for path, file in inside.items()})]
        members[name] = tar(inside, archive.time, ["./", *names])
    return f"hone_{debian_version(archive.version)}_{archive.system.debian}.deb", ar(members, archive.time)


# Homebrew


def formula_source(archive):
    address = release_address(archive.version)
    # Without an address, the archives are expected beside the formula.
    url = f"{address}/{archive.path.name}" if address else f"file://#{{__dir__}}/{archive.path.name}"
    return f"""    on_{archive.system.homebrew[1]} do
      url "{url}"
      sha256 "{archive.sha256}"
    end
"""


def formula_sources(archives):
    """Where the archives are, by system."""
    sources = collections.defaultdict(str)
    for archive in archives:
        sources[archive.system.homebrew[0]] += formula_source(archive)
    if "macos" in sources:
        sources["macos"] += "\n    depends_on arch: :arm64\n"
    blocks = [f"  on_{system} do\n{source}  end\n" for system, source in sorted(sources.items())]
    return "\n".join(blocks if "macos" in sources else ["  depends_on :linux\n", *blocks])


def formula(archives):
    description = metadata()["description"].removeprefix("A ")
    licenses = ", ".join(f'"{each}"' for each in metadata()["license"].split(" OR "))
    lines = [f'desc "{description[0].upper()}{description[1:]}"']
    lines += [f'homepage "{homepage()}"'] * bool(homepage())
    lines += [f'version "{archives[0].version}"', f"license any_of: [{licenses}]"]
    head = "".join(f"  {line}\n" for line in lines)
    return "hone.rb", f"""class Hone < Formula
{head}
{formula_sources(archives)}
  def install
    bin.install "hone"
  end

  test do
    assert_equal "hone #{{version}}", shell_output("#{{bin}}/hone --version").strip
  end
end
""".encode()


# install.sh


def public_key():
    """The key of HONE_MINISIGN_PUBLIC_KEY, or of the file that it names."""
    key = os.environ.get("HONE_MINISIGN_PUBLIC_KEY", "")
    if key and pathlib.Path(key).is_file():
        key = pathlib.Path(key).read_text(encoding="utf-8").split("\n")[1].strip()
    if key and not re.fullmatch(r"RW[\w+/]{54}", key, re.ASCII):
        raise Wrong("HONE_MINISIGN_PUBLIC_KEY is neither a public key of minisign (RW...) nor a file with one")
    return key


def installer(version):
    """packaging/install.sh with what it has to know of the release."""
    text = (ROOT / "packaging/install.sh").read_text(encoding="utf-8")
    for name, value in (("release", version), ("address", release_address(version)), ("public_key", public_key())):
        if not re.fullmatch(r"[\w+/.:~%=@-]*", value, re.ASCII):
            raise Wrong(f"install.sh cannot hold {value!r} as its {name}")
        text, n_places = re.subn(rf"^{name}=''$", lambda _, line=f"{name}='{value}'": line, text, flags=re.MULTILINE)
        if n_places != 1:
            raise Wrong(f"packaging/install.sh has {n_places} lines {name}=''; expected one")
    return "install.sh", text.encode()


# A release


def packages(archives):
    """What makes each file that comes from the archives: a function, and its input."""
    yield from ((wheel, archive) for archive in archives)
    yield npm_launcher, archives
    yield from ((npm_program, archive) for archive in archives)
    yield from ((debian_package, archive) for archive in archives if archive.system.debian)
    if for_homebrew := [archive for archive in archives if archive.system.homebrew]:
        yield formula, for_homebrew
    yield installer, archives[0].version


def write_sums(folder):
    paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("SHA256SUMS"))
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths), encoding="utf-8")
    return sums


def minisign(*arguments):
    try:
        return subprocess.run(["minisign", *arguments], stdout=sys.stderr, check=False).returncode == 0
    except FileNotFoundError:
        raise Wrong("minisign is not installed") from None


def sign(sums, secret_key):
    if not public_key():
        raise Wrong("HONE_MINISIGN_PUBLIC_KEY is not set, so nobody could check the signature")
    # Without the comments, the signature would have the time in it.
    if not minisign("-S", "-s", secret_key, "-m", sums, "-c", "signature of hone's SHA256SUMS", "-t", "SHA256SUMS of hone"):
        raise Wrong(f"minisign does not sign with {secret_key}")
    if not minisign("-V", "-q", "-P", public_key(), "-m", sums):
        raise Wrong("HONE_MINISIGN_PUBLIC_KEY does not belong to HONE_MINISIGN_SECRET_KEY")


def make_release(folder):
    archives = read_archives(folder)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, data in pool.map(lambda package: package[0](package[1]), packages(archives)):
            (folder / name).write_bytes(data)
            print(f"made of the archives: {name}")
    (folder / "install.sh").chmod(0o755)
    sums = write_sums(folder)
    if secret_key := os.environ.get("HONE_MINISIGN_SECRET_KEY"):
        sign(sums, secret_key)
        print("SHA256SUMS is signed")
    else:
        print("SHA256SUMS is NOT SIGNED, as HONE_MINISIGN_SECRET_KEY is not set: install.sh wants --unsigned")
    if not release_address(archives[0].version):
        print("NO ADDRESS, as HONE_RELEASE_ADDRESS is not set and Cargo.toml has no `repository`: install.sh wants --from, and",
              "hone.rb the archives beside it")


def main():
    match sys.argv[1:]:
        case ["archive", binary, target, version, changed, folder]:
            make_archive(pathlib.Path(binary), target, version, int(changed), pathlib.Path(folder))
        case ["release", folder]:
            make_release(pathlib.Path(folder))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except Wrong as error:
        sys.exit(f"error: {error}")
