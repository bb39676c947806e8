"""Counts the instructions of hone's and llama.cpp's products and attention and prints them as tables; see
scripts/bench/arm-instructions.sh.

Arguments: the folder of the plugin and of llama.cpp's programs, hone's programs, the emulator; after --, the types.
"""

import functools
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROWS, COLUMNS = 512, 2048
GENERATION, PROMPT = 1, 128
# Heads, those of keys and values, their width; the new tokens are the last ones of the context.
HEADS, CONTEXT = (32, 8, 128), 1024
TYPES = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S"
    " TQ1_0 TQ2_0 MXFP4"
).split()

separator = sys.argv.index("--")
work, hone_products, hone_attention, *emulator = sys.argv[1:separator]
types = sys.argv[separator + 1 :] or TYPES


@functools.cache
def instructions(program, *arguments):
    """All instructions of a run, and what it prints."""
    command = [*emulator, "-cpu", "max,sve=off", "-plugin", f"{work}/plugin.so", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    total = re.search(r"instructions: (\d+)", done.stderr)
    if done.returncode or not total:
        sys.exit(f"{' '.join(command)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(total[1]), done.stdout.strip()


def added(run):
    """The instructions that a repeat adds, and the last run's output."""
    (once, _), (twice, output) = (run(repeats) for repeats in (1, 2))
    return twice - once, output


def product_of_hone(kind, instruction_set, tokens):
    return added(
        lambda repeats: instructions(
            hone_products, "--types", kind, "--sets", f"NEON {instruction_set}", "--shapes", f"{ROWS}x{COLUMNS}",
            "--tokens", tokens, "--repeats", repeats,
        )
    )  # fmt: skip


def product_of_llama(kind, build, tokens):
    return added(lambda repeats: instructions(f"{work}/product-{build}", kind, ROWS, COLUMNS, tokens, repeats))


def attention_of_hone(kind, instruction_set, tokens):
    return added(
        lambda repeats: instructions(
            hone_attention, "--set", f"NEON {instruction_set}", "--formats", kind, "--heads", "x".join(map(str, HEADS)),
            "--context", CONTEXT, "--tokens", tokens, "--repeats", repeats,
        )
    )  # fmt: skip


def attention_of_llama(kind, build, tokens):
    return added(
        lambda repeats: instructions(f"{work}/attention-{build}", kind, *HEADS, CONTEXT, tokens, repeats)
    )


def product_size(tokens):
    """Multiply-accumulates."""
    return ROWS * COLUMNS * tokens


def attention_size(tokens):
    """Multiply-accumulates: for scores and for weighted values."""
    heads, _, width = HEADS
    return 2 * heads * width * sum(range(CONTEXT - tokens + 1, CONTEXT + 1))


def cells(ours, theirs, size, kind, instruction_set, build):
    """Instructions per multiply-accumulate for generation and prompts, and whether llama.cpp repacks the weights."""
    repacked = False
    for tokens in (GENERATION, PROMPT):
        n_ours, _ = ours(kind, instruction_set, tokens)
        n_theirs, output = theirs(kind, build, tokens)
        repacked |= "REPACK" in output
        per = size(tokens)
        yield f"{n_ours / per:.3f} / {n_theirs / per:.3f} = {n_ours / n_theirs:.2f}"
    yield "yes" if repacked else "no"


def row_of_type(kind):
    of = product_of_hone, product_of_llama, product_size, kind
    return [kind, *cells(*of, "dotprod", "dotprod"), *cells(*of, "i8mm", "i8mm")]


def row_with_fp16(kernel):
    name, *of = kernel
    both = [list(cells(*of, "dotprod", build))[:2] for build in ("dotprod", "fp16")]
    return [name, *both[0], *both[1]]


def print_table(head, row, of):
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    with ThreadPoolExecutor() as pool:
        for line in pool.map(row, of):
            print(f"| {' | '.join(line)} |", flush=True)


columns = ["generation", "prompt"]
of_set = [[f"{name}, {column}" for column in columns] + ["repacked"] for name in ("dotprod", "i8mm")]
print_table(["type", *of_set[0], *of_set[1]], row_of_type, types)
if types == TYPES:
    attention = attention_of_hone, attention_of_llama, attention_size
    kernels = [
        ("F16 weights", product_of_hone, product_of_llama, product_size, "F16"),
        ("attention, F16 cache", *attention, "F16"),
        ("attention, Q8_0 cache", *attention, "Q8_0"),
    ]
    print()
    print_table(["kernel", *columns, *(f"{column}, with fp16" for column in columns)], row_with_fp16, kernels)
