#!/usr/bin/env python3
"""Prints what is compiled into hone for a target as a CycloneDX document: every crate that the program depends on, without
those of tests and build scripts.

    scripts/lib/sbom.py TARGET [OPTION OF CARGO...]
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

root = pathlib.Path(__file__).resolve().parents[2]
target, *options = sys.argv[1:]
command = ["cargo", "metadata", "--manifest-path", "crates/cli/Cargo.toml", "--format-version", "1", "--locked"]
command += ["--filter-platform", target, *options]
metadata = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
lock = tomllib.loads((root / "Cargo.lock").read_text())
checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def dependencies(package_id):
    """What is linked into a package."""
    needed = (each for each in nodes[package_id]["deps"] if any(kind["kind"] is None for kind in each["dep_kinds"]))
    return sorted(each["pkg"] for each in needed)


def reference(package_id):
    package = packages[package_id]
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package_id, kind):
    package = packages[package_id]
    described = {
        "type": kind,
        "bom-ref": reference(package_id),
        "name": package["name"],
        "version": package["version"],
    }
    if package["source"]:
        described["purl"] = reference(package_id)
    if package["license"]:
        # Some crates still separate licences with a slash, which means OR.
        described["licenses"] = [{"expression": re.sub(r" */ *", " OR ", package["license"])}]
    if checksum := checksums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


program = metadata["resolve"]["root"]
found, left = {program}, [program]
while left:
    for dependency in dependencies(left.pop()):
        if dependency not in found:
            found.add(dependency)
            left.append(dependency)

document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": component(program, "application")},
    "components": [component(each, "library") for each in sorted(found - {program}, key=reference)],
    "dependencies": [
        {"ref": reference(each), "dependsOn": [reference(other) for other in dependencies(each)]}
        for each in sorted(found, key=reference)
    ],
}
json.dump(document, sys.stdout, indent=1)
print()
