"""Prints what ptxas reports of every kernel, read from stdin: registers, shared memory, spills. Fails if one spills."""

import re
import sys

KERNEL = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def kernels(report):
    """Name, registers, bytes of shared memory, bytes spilled."""
    name, spilled = None, 0
    for line in report:
        if found := KERNEL.search(line):
            name, spilled = found[1], 0
        elif found := SPILLS.search(line):
            spilled = int(found[1]) + int(found[2])
        elif (found := USED.search(line)) and name:
            yield name, int(found[1]), int(found[2] or 0), spilled
            name = None


def main():
    found = sorted(kernels(sys.stdin))
    for name, registers, shared, spilled in found:
        print(f"{name:32} {registers:4} registers {shared:6} bytes shared{f' {spilled} bytes SPILLED' if spilled else ''}")
    spilling = [name for name, _, _, spilled in found if spilled]
    if not found or spilling:
        sys.exit(f"kernels that spill: {', '.join(spilling) or 'none, but none was found either'}")


main()
