# Sourced by the scripts that run programs for Windows: says what is missing, and prepares Wine in a folder of its own.

if ! command -v wine >/dev/null; then
    echo 'programs for Windows need wine: install wine and wine64 (so they are called in Debian)' >&2
    exit 1
fi

# prepare_wine FOLDER: what is started with wine from now on has its drive there.
prepare_wine() {
    export WINEPREFIX=$1 WINEDEBUG=-all
    wine cmd /c ver >/dev/null 2>&1
    local library=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
    [ -e "$library" ] ||
        x86_64-w64-mingw32-gcc-posix -shared -O2 -o "$library" scripts/lib/bcryptprimitives.c -ladvapi32
}
