# Sourced by checks of the program.

# Sets hone to the binary that HONE names, or else to the debug build, built as the tests build it: so it is the same, and
# nothing is compiled twice.
build_program() {
    hone=${HONE:-}
    if [ -z "$hone" ]; then
        cargo test --no-run --locked --package hone --test program >&2
        hone=${CARGO_TARGET_DIR:-target}/debug/hone
    fi
    hone=$(realpath "$hone")
}
