# Sourced by the scripts that build for Windows: says what is missing, and tells cargo how to compile and link for it.
export WINDOWS=x86_64-pc-windows-gnu

if ! command -v x86_64-w64-mingw32-g++-posix >/dev/null; then
    echo 'builds for Windows need x86_64-w64-mingw32-g++-posix: install g++-mingw-w64-x86-64 (so it is called in Debian)' >&2
    exit 1
fi
rustup target list --installed | grep -qx "$WINDOWS" || rustup target add "$WINDOWS"

# usearch includes it by the name that file systems of Windows find it by.
mkdir -p target/port-tools/include
echo '#include <windows.h>' >target/port-tools/include/Windows.h
# The compiler's other variant has no threads for C++.
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc-posix
export CXX_x86_64_pc_windows_gnu=x86_64-w64-mingw32-g++-posix
export CXXFLAGS_x86_64_pc_windows_gnu=-I$PWD/target/port-tools/include
# Programs bring the C++ library along.
export CXXSTDLIB_x86_64_pc_windows_gnu=static:-bundle=stdc++
