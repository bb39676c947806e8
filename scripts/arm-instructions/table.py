"""Counts the instructions of hone's and llama.cpp's products and prints them as a table; see count-arm-instructions.sh.

Arguments: the folder of the plugin and of llama.cpp's programs, hone's program, the emulator; after --, the types.
"""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROWS, COLUMNS = 512, 2048
GENERATION, PROMPT = 1, 128
TYPES = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S"
    " TQ1_0 TQ2_0 MXFP4"
).split()
SETS = ["dotprod", "i8mm"]

separator = sys.argv.index("--")
work, hone, *emulator = sys.argv[1:separator]
types = sys.argv[separator + 1 :] or TYPES


def instructions(program, *arguments):
    """All instructions of a run, and what it prints."""
    command = [*emulator, "-cpu", "max,sve=off", "-plugin", f"{work}/plugin.so", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    total = re.search(r"instructions: (\d+)", done.stderr)
    if done.returncode or not total:
        sys.exit(f"{' '.join(command)} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(total[1]), done.stdout.strip()


def of_hone(kind, instruction_set, tokens, repeats):
    return instructions(
        hone, "--types", kind, "--sets", f"NEON {instruction_set}", "--shapes", f"{ROWS}x{COLUMNS}",
        "--tokens", tokens, "--repeats", repeats,
    )  # fmt: skip


def of_llama(kind, instruction_set, tokens, repeats):
    return instructions(f"{work}/{instruction_set}", kind, ROWS, COLUMNS, tokens, repeats)


def per_product(engine, kind, instruction_set, tokens):
    """Instructions per multiply-accumulate, and the last run's output."""
    (once, _), (twice, output) = (engine(kind, instruction_set, tokens, repeats) for repeats in (1, 2))
    return (twice - once) / (ROWS * COLUMNS * tokens), output


def row(kind):
    cells = [kind]
    for instruction_set in SETS:
        repacked = False
        for tokens in (GENERATION, PROMPT):
            ours, _ = per_product(of_hone, kind, instruction_set, tokens)
            theirs, buffer = per_product(of_llama, kind, instruction_set, tokens)
            repacked |= "REPACK" in buffer
            cells.append(f"{ours:.3f} / {theirs:.3f} = {ours / theirs:.2f}")
        cells.append("yes" if repacked else "no")
    return f"| {' | '.join(cells)} |"


print("| type | dotprod, generation | dotprod, prompt | repacked | i8mm, generation | i8mm, prompt | repacked |")
print("| --- | --- | --- | --- | --- | --- | --- |")
with ThreadPoolExecutor() as pool:
    for line in pool.map(row, types):
        print(line, flush=True)
