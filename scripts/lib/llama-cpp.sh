# Sourced by the scripts that compare hone with llama.cpp: its sources, which llama-cpp-python brings along on PyPI, and
# builds of them, in a cache outside of the repository.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hone-bench
llama_cpp_python='llama-cpp-python==0.3.36'

# Leaves the sources in $cache/source/vendor/llama.cpp.
fetch_llama_cpp() {
    [ ! -d "$cache/source/vendor/llama.cpp" ] || return 0
    mkdir -p "$cache/source"
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$cache" "$llama_cpp_python"
    tar -xzf "$cache"/llama_cpp_python-*.tar.gz --strip-components 1 -C "$cache/source"
}

# build_llama_cpp FOLDER "TARGET..." OPTION...: configures and builds targets in a folder, without examples and tests.
build_llama_cpp() {
    local folder=$1 targets
    read -ra targets <<<"$2"
    shift 2
    if ! command -v cmake >/dev/null; then
        [ -x "$cache/tools/bin/cmake" ] || python3 -m pip install --quiet --target "$cache/tools" cmake
        export PATH=$cache/tools/bin:$PATH PYTHONPATH=$cache/tools${PYTHONPATH:+:$PYTHONPATH}
    fi
    cmake -S "$cache/source/vendor/llama.cpp" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF "$@" >&2
    cmake --build "$folder" --parallel "$(nproc)" --target "${targets[@]}" >&2
}
