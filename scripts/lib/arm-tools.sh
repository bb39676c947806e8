# Sourced by the scripts that build for ARM and run there under an emulator: what that needs is installed where it is
# missing, and cargo is told how to link and run for it.
export ARM=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu'
# Programs bring the C++ library along.
export CXXSTDLIB_aarch64_unknown_linux_gnu=static:-bundle=stdc++

packages=()
command -v aarch64-linux-gnu-g++ >/dev/null || packages+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || packages+=(qemu-user)
if [ ${#packages[@]} -gt 0 ]; then
    # shellcheck source=scripts/lib/programs.sh
    . scripts/lib/programs.sh
    install_debian_packages 'programs for ARM' "${packages[@]}" libc6-dev-arm64-cross
fi
rustup target list --installed | grep -qx "$ARM" || rustup target add "$ARM"
