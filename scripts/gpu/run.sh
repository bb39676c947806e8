#!/usr/bin/env bash
# Checks and measures hone on a machine with an NVIDIA card that has nvcc and Python, but neither Rust nor a network, from what
# build.sh left in target/gpu. Prints as it goes on; goes on after a step that fails. scripts/gpu/README.md says how it is used.
#
#   scripts/gpu/run.sh [OPTION...]
#     --output DIR     where the results go ($OUT, or target/gpu/results): a CSV, the log, and what every program wrote
#     --work DIR       what stays for the next call, outside of the repository (/tmp/hone-gpu)
#     --minutes N      all steps together (8)
#     --device NAME    cuda, or cpu: the candle backend on the processor, to try this script (cuda)
#     --quick          tiny models and few tokens in place of large ones
#     --steps A,B      these steps only, also where an earlier call did them
#     --hone FILE      this binary in place of the packed one
#     --model FILE     the built-in model, in place of the packed one
#     --llama-cpp      measure llama.cpp on the same models instead
#     --dry-run        print the plan
#
# A call does what it has the models for and no earlier call on this machine did: the model comes in parts, with several calls.
# It ends with 0 if every step that was due passed; 1 if one failed; 2 if it was not started rightly; 3 if time ran out before a
# step, or a step waits for the model's other part.
# The steps are called by their names.
# shellcheck disable=SC2317
set -uo pipefail

cd "$(dirname "$0")/../.."
# shellcheck source=scripts/lib/subcommands.sh
. scripts/lib/subcommands.sh
began=$SECONDS
output=${OUT:-target/gpu/results} work=/tmp/hone-gpu minutes=8 device=cuda quick='' only='' hone='' built_in='' llama_cpp='' dry_run=''
while [ $# -gt 0 ]; do
    case $1 in
    --output) output=$2 && shift ;;
    --work) work=$2 && shift ;;
    --minutes) minutes=$2 && shift ;;
    --device) device=$2 && shift ;;
    --steps) only=$2 && shift ;;
    --hone) hone=$(realpath "$2") && shift ;;
    --model) built_in=$(realpath "$2") && shift ;;
    --quick) quick=1 ;;
    --llama-cpp) llama_cpp=1 ;;
    --dry-run) dry_run=1 ;;
    -h | --help) print_help scripts/gpu/run.sh && exit ;;
    *) echo "error: unknown option $1: $0 --help lists the options" >&2 && exit 2 ;;
    esac
    shift
done
case $device in cuda | cpu) ;; *) echo "--device is cuda or cpu" >&2 && exit 2 ;; esac

package=target/gpu
models=$work/models
# Large ones lie in memory where there is enough of it.
[ -n "$quick" ] || [ "$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -1)" -lt 40 ] || models=/dev/shm/hone-gpu-models
results=$work/results
figures=$PWD/scripts/gpu/figures.py
server=scripts/bench/server.py
gpu=$PWD/scripts/gpu

# Every step with its seconds, and whether it needs the built-in model.
plan='facts 20 -
doctor 20 -
agreement 100 -
sanitizer 90 -
bandwidth 40 -
greedy 60 built-in
perplexity 45 built-in
bench-built-in 100 built-in
bench-7b 130 -
profile 50 -
bench-experts 150 -
contention 60 built-in
divided 60 built-in
clients 120 built-in'

[ -z "$llama_cpp" ] || plan='llama-built-in 60 built-in
llama-7b 150 -
llama-experts 180 -'

say() { printf '%s %s\n' "$(date +%T)" "$*"; }
left() { echo $((minutes * 60 - (SECONDS - began))); }
# Seconds until the step's end.
step_left() { echo $((step_end - SECONDS > 1 ? step_end - SECONDS : 1)); }
limited() { timeout --kill-after=5 "$(step_left)" "$@"; }
figures() {
    local command=$1
    shift
    limited python3 "$figures" "$command" --csv "$csv" --card "$card" "$@"
}
# attempt WHAT COMMAND...: a part of a step; the step goes on after it, and fails in the end.
attempt() {
    local what=$1 status=0
    shift
    "$@" || status=$?
    [ "$status" = 0 ] && return
    [ "$status" = 124 ] && status='its time is up'
    say "  FAILED: $what ($status)"
    touch "$step_failed"
}

if [ "$device" = cuda ]; then
    flags=(--device cuda)
else
    flags=(--device cpu --backend candle)
fi
if [ -n "$quick" ]; then
    seven=tiny-llama experts=tiny-qwen3moe prompts=(32 64) generated=8 depth_built_in=64 depth=64 batches=(2 4)
    crowds=(1 2) requests=1 tiny_quants='q4_0 q4_k q6_k' tiny_shapes='tiny-qwen3 tiny-gemma3 tiny-qwen35' text_bytes=6000
else
    seven=mistral-7b experts=qwen3-30b-a3b prompts=(512 2048) generated=128 depth_built_in=8000 depth=8192 batches=(8 32 64)
    crowds=(1 16 64) requests=10 text_bytes=40000
    tiny_quants='f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4'
    tiny_shapes='tiny-llama3 tiny-qwen2 tiny-qwen3 tiny-gemma2 tiny-gemma3 tiny-phi3 tiny-phi3-longrope tiny-qwen3moe
        tiny-qwen35 tiny-gemma4 tiny-gemma4moe tiny-gpt-oss tiny-lfm2 tiny-smollm3 tiny-granite tiny-granitehybrid tiny-olmo2
        tiny-olmo3 tiny-mistral3 tiny-llama4'
fi

step_facts() {
    uname -a
    grep -m 1 'model name' /proc/cpuinfo
    nproc
    free -g | head -2
    df -h /tmp /dev/shm
    [ ! -e "$package/program/manifest.txt" ] || cat "$package/program/manifest.txt"
    [ "$device" = cuda ] || return 0
    attempt nvidia-smi limited nvidia-smi
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.mem,power.limit,compute_cap \
        --format=csv || true
    nvcc --version | tail -2 || true
    echo "libraries: $LD_LIBRARY_PATH"
}

# The model is not in its store, which is a problem to `hone doctor`: what counts is the device that it opens.
step_doctor() {
    HONE_ENGINE_DEVICE=$device limited "$hone" doctor || true
    { HONE_ENGINE_DEVICE=$device limited "$hone" doctor --json || true; } | python3 -c '
import json, sys
engine = json.load(sys.stdin)["engine"]
sys.exit(None if (engine["opened"] or "").startswith(sys.argv[1]) else engine["problem"] or "another device was opened")' "$device"
}

# synth FILE SHAPE QUANTIZATION VOCABULARY: only whole files have their names.
synth() {
    [ -e "$1" ] && return
    "$hone" synth --shape "$2" --quant "$3" --tokenizer "$work/program/$4" --output "$1.new" >/dev/null && mv "$1.new" "$1"
}

tiny_models() {
    local each
    mkdir -p "$models/tiny"
    for each in $tiny_quants; do
        echo "$models/tiny/tiny-llama-$each.gguf tiny-llama $each vocab-llama-spm.gguf"
    done
    for each in $tiny_shapes; do
        echo "$models/tiny/$each-q4_k_m.gguf $each q4_k_m vocab-llama-spm.gguf"
    done
}

step_agreement() {
    export -f synth
    export hone work
    tiny_models | limited xargs -P "$(nproc)" -L 1 bash -c 'synth "$@"' synth
    figures agree --folder "$models/tiny" --hone "$hone" --jobs "$(($(nproc) < 8 ? $(nproc) : 8))" -- "${flags[@]}"
}

step_sanitizer() {
    local tool model
    if [ "$device" = cpu ] || ! command -v compute-sanitizer >/dev/null; then
        echo "  there is no compute-sanitizer, or no card"
        return 0
    fi
    for model in tiny-llama-q4_0 tiny-llama-q6_k tiny-qwen3moe-q4_k_m tiny-qwen35-q4_k_m; do
        for tool in memcheck initcheck; do
            [ "$tool$model" != initchecktiny-llama-q6_k ] || continue
            echo "$tool of $model"
            attempt "$tool of $model" sanitize "$tool" "$models/tiny/$model.gguf"
        done
    done
    [ ! -e "$step_failed" ]
}

sanitize() {
    echo 'One, two, three' | limited compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 5 \
        "$hone" generate --model "$2" "${flags[@]}" --raw --temperature 0 --max-tokens 2 --speculation off
}

step_bandwidth() {
    [ "$device" = cuda ] || { echo '  only a card has one' && return 0; }
    limited nvcc -O3 -gencode="arch=compute_$capability,code=sm_$capability" "$gpu/bandwidth.cu" -o "$work/bandwidth" &&
        limited "$work/bandwidth" >"$results/bandwidth.json" && figures bandwidth --file "$results/bandwidth.json"
}

step_greedy() {
    figures greedy --file crates/engine/tests/it/data/smollm2_greedy.json --hone "$hone" -- "${flags[@]}" --model "$built_in"
}

step_perplexity() {
    local text=$work/program/text.txt
    [ -e "$text" ] || text=/usr/share/common-licenses/GPL-3
    head -c "$text_bytes" "$text" >"$work/text.txt"
    limited "$hone" perplexity --file "$work/text.txt" "${flags[@]}" -m "$built_in" --json >"$results/perplexity.json" &&
        limited "$hone" perplexity --file "$work/text.txt" --device cpu --backend native -m "$built_in" --json \
            >"$results/perplexity-cpu.json" &&
        figures perplexity --file "$results/perplexity.json" --processor "$results/perplexity-cpu.json" --model built-in
}

# Half of the built-in model's layers on the card and half on the processor.
step_divided() {
    limited "$hone" perplexity --file "$work/text.txt" "${flags[@]}" --gpu-layers 15 -m "$built_in" --json \
        >"$results/perplexity-divided.json" &&
        figures perplexity --file "$results/perplexity-divided.json" --processor "$results/perplexity-cpu.json" \
            --model 'built-in divided' &&
        await "$models/7b.gguf" &&
        bench_one "$seven q4_k_m divided" "$models/7b.gguf" 0 -p "${prompts[0]}" -n $((generated / 4)) --gpu-layers 16
}

# bench_one NAME FILE BYTES ARGUMENTS...
bench_one() {
    local name=$1 file=$2 size=$3 json
    shift 3
    json="$results/bench-$name-$(tr -d ' ' <<<"$*").json"
    limited "$hone" bench -m "$file" "${flags[@]}" -r 3 --json "$@" >"$json" &&
        figures bench --file "$json" --model "$name" --bandwidth "$results/bandwidth.json" --bytes "$size"
}

# bench_model NAME FILE BYTES DEPTH: a test each time, so that one that fails or takes too long costs no other.
bench_model() {
    local batch
    attempt "pp${prompts[0]}, tg$generated" bench_one "$1" "$2" "$3" -p "${prompts[0]}" -n "$generated"
    attempt "pp${prompts[1]}" bench_one "$1" "$2" "$3" -p "${prompts[1]}" -n 0
    for batch in "${batches[@]}"; do
        attempt "$batch sequences" bench_one "$1" "$2" "$3" -p 0 -n $((generated / 2)) -b "$batch"
    done
    attempt "depth $4" bench_one "$1" "$2" "$3" -p 0 -n $((generated / 4)) -d "$4"
    [ ! -e "$step_failed" ]
}

# A model that is written beside the other steps; it waits for it while the step lasts.
await() {
    until [ -e "$1" ]; do
        [ "$(step_left)" -gt 1 ] || { echo "  $1 is not written yet" && return 1; }
        sleep 1
    done
}

step_bench-built-in() { bench_model built-in "$built_in" "$(stat -c %s "$built_in")" "$depth_built_in"; }
step_bench-7b() { await "$models/7b.gguf" && bench_model "$seven q4_k_m" "$models/7b.gguf" "$(stat -c %s "$models/7b.gguf")" "$depth"; }
step_bench-experts() { await "$models/experts.gguf" && bench_model "$experts q4_k_m" "$models/experts.gguf" 0 "$depth"; }

# The kernels of two tokens, each measured alone: what is missing to a token's time lies between them.
step_profile() {
    local profiler
    profiler=$(command -v ncu || ls -d /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -1)
    [ "$device" = cuda ] && [ -n "$profiler" ] || { echo '  there is no ncu, or no card' && return 0; }
    await "$models/7b.gguf" || return
    limited "$profiler" --clock-control none --cache-control none --metrics gpu__time_duration.sum,dram__bytes_read.sum \
        --csv --launch-skip 1200 --launch-count 640 "$hone" bench -m "$models/7b.gguf" "${flags[@]}" -r 1 -p 0 -n 8 >"$results/profile.csv" &&
        figures profile --file "$results/profile.csv"
}

step_contention() {
    await "$models/7b.gguf" || return
    limited "$hone" bench contention --generator "$built_in" --judge "$models/7b.gguf" "${flags[@]}" --requests "$requests" \
        --context $((${#quick} ? 512 : 4096)) --json >"$results/contention.json" &&
        figures contention --file "$results/contention.json" --model "built-in beside $seven q4_k_m"
}

step_clients() {
    local n
    for n in "${crowds[@]}"; do
        attempt "$n clients" serve_clients "$n"
    done
    [ ! -e "$step_failed" ]
}

serve_clients() {
    local file=$results/clients-$1.json
    HONE_ENGINE_DEVICE=$device HONE_ENGINE_BACKEND=$([ "$device" = cpu ] && echo candle || echo auto) \
        limited python3 "$server" "$built_in" --hone "$hone" --clients "$1" --turns 1 ${quick:+--tokens 8} --json >"$file" &&
        figures clients --file "$file" --model built-in --clients "$1"
}

step_llama-built-in() { llama_bench built-in "$built_in" "$depth_built_in"; }
step_llama-7b() { await "$models/7b.gguf" && llama_bench "$seven q4_k_m" "$models/7b.gguf" "$depth"; }
step_llama-experts() { await "$models/experts.gguf" && llama_bench "$experts q4_k_m" "$models/experts.gguf" "$depth"; }

# llama_bench NAME FILE DEPTH
llama_bench() {
    attempt 'without depth' llama_bench_one "$1" "$2" -p "${prompts[0]},${prompts[1]}" -n "$generated"
    attempt "depth $3" llama_bench_one "$1" "$2" -p 0 -n $((generated / 4)) -d "$3"
    [ ! -e "$step_failed" ]
}

llama_bench_one() {
    local name=$1 file=$2 json
    shift 2
    json="$results/llama-bench-$name-$(tr -d ' ' <<<"$*").json"
    limited "$work/llama-bench" -m "$file" -ngl 99 -fa auto -r 3 -o json "$@" >"$json" &&
        figures llama-bench --file "$json" --model "$name"
}

# The folders of CUDA's libraries that the binary loads when it opens the card.
library_folders() {
    python3 - <<'PYTHON'
import glob, sysconfig

folders = [*glob.glob("/usr/local/cuda*/lib64"), *glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib"), "/usr/local/nvidia/lib64"]
print(":".join(folder for folder in folders if glob.glob(folder + "/lib*cu*.so*")))
PYTHON
}

# What the call brought is put with what earlier ones did.
unpack() {
    local part
    mkdir -p "$work/program" "$work/done" "$results" "$models" "$output"
    for part in "$package"/model-*/model.*; do
        [ ! -e "$part" ] || cp -u "$part" "$work/"
    done
    if [ -e "$package/program/manifest.txt" ] && ! cmp -s "$package/program/manifest.txt" "$work/manifest.txt"; then
        rm -rf "$work/done" "$results" && mkdir -p "$work/done" "$results"
        python3 -m tarfile -e $package/program/program.tar.xz "$work/program" && cp "$package/program/manifest.txt" "$work/"
    fi
    if [ -e "$package/llama-cpp/llama-bench.xz" ]; then
        xz --decompress --stdout "$package/llama-cpp/llama-bench.xz" >"$work/llama-bench" && chmod +x "$work/llama-bench"
    fi
    [ -n "$hone" ] || hone=$work/program/hone
    [ -x "$hone" ] || { echo "there is no program: build.sh packs it, and the first call carries $package/program" >&2 && exit 2; }
    if [ -z "$built_in" ]; then
        built_in=$work/built-in.gguf
        [ -e "$built_in" ] || [ ! -e "$work/manifest.txt" ] ||
            python3 "$figures" unpack --manifest "$work/manifest.txt" --folder "$work" --model "$built_in"
    fi
}

# Written by a session of its own, which goes on between two calls.
write_models() {
    local large="$models/7b.gguf $seven q4_k_m vocab-llama-spm.gguf
$models/experts.gguf $experts q4_k_m vocab-qwen2.gguf"
    export -f synth
    export hone work
    setsid nohup flock "$work/writing" xargs -L 1 bash -c 'synth "$@"' synth <<<"$large" >"$work/writing.log" 2>&1 &
}

is_due() {
    [ -z "$only" ] || { [[ ,$only, = *,$1,* ]] && return; }
    [ -z "$only" ] && [ ! -e "$work/done/$1" ]
}

run_step() { # NAME SECONDS NEED
    local status
    is_due "$1" || return 0
    if [ "$3" = built-in ] && [ ! -e "$built_in" ]; then
        say "== $1 waits for the model's other part"
        unfinished+=("$1")
        return
    fi
    if [ "$(left)" -lt 10 ]; then
        say "== $1 is left out: the time is up"
        unfinished+=("$1")
        return
    fi
    local budget=$(($2 < $(left) ? $2 : $(left)))
    say "== $1 (at most $budget s)"
    step_end=$((SECONDS + budget)) step_failed=$work/failed
    rm -f "$step_failed"
    (
        set -e
        "step_$1"
    ) 2>&1 | tee "$results/$1.log"
    status=${PIPESTATUS[0]}
    touch "$work/done/$1"
    if [ "$status" = 0 ]; then
        say "   $1: passed"
    else
        say "   $1: FAILED ($status)"
        failures+=("$1")
    fi
}

bring_results() {
    local stem
    stem=$(date -u +%F)-gpu-$(tr -cs 'A-Za-z0-9\n' '-' <<<"${card,,}" | sed 's/^-*//; s/-*$//')
    [ ! -e "$csv" ] || cp "$csv" "$output/$stem.csv"
    cp "$work/log.txt" "$output/$stem-log.txt"
    tar -czf "$output/$stem-raw.tar.gz" -C "$results" .
    say "in $output: $stem.csv, $stem-log.txt, $stem-raw.tar.gz"
}

main() {
    local name seconds need
    say "$card, $minutes minutes"
    write_models
    while read -r name seconds need <&3; do
        run_step "$name" "$seconds" "$need"
    done 3<<<"$plan"
    python3 "$figures" table --csv "$csv"
    say "failed: ${failures[*]:-nothing}; unfinished: ${unfinished[*]:-nothing}"
    [ ${#failures[@]} = 0 ] || return 1
    [ ${#unfinished[@]} = 0 ] || return 3
}

if [ -n "$dry_run" ]; then
    echo "$minutes minutes on $device, results in $output"
    while read -r name seconds need; do
        echo "$name: at most $seconds s${need/#-/}${need:+}"
    done <<<"$plan" | sed 's/sbuilt-in$/s, with the built-in model/'
    exit 0
fi

unpack
export PATH=$PATH:/usr/local/cuda/bin
folders=$(library_folders)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$folders
export HONE_HOME=$work/home HONE_OFFLINE=1
card='the processor' capability=90
if [ "$device" = cuda ]; then
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
    [ -n "$card" ] || { echo "nvidia-smi finds no card here: --device cpu tries this script without" >&2 && exit 2; }
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
fi
csv=$results/figures.csv
failures=() unfinished=()
main 2>&1 | tee -a "$work/log.txt"
status=${PIPESTATUS[0]}
bring_results
exit "$status"
