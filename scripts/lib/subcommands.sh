# Sourced by the scripts that a person calls: their help, and the scripts that they start by name.

# print_help SCRIPT: the comment at its top.
print_help() {
    sed -n '2,/^[^#]/{ /^#/!d; s/^# \{0,1\}//; p; }' "$1"
}

# run_subcommand FOLDER NAME [ARGUMENT...]: starts the script of this name in a folder. Without a name, and with --help, explains
# the script that was called; after a name, --help explains the one of that name.
run_subcommand() {
    local folder=$1 name=${2:---help} script
    shift $(($# < 2 ? $# : 2))
    case $name in
    -h | --help) print_help "$0" && exit ;;
    esac
    script=$folder/$name.sh
    [ -x "$script" ] || script=$folder/$name.py
    if [ ! -x "$script" ]; then
        echo "error: $0 does not know $name: $0 --help lists what it does" >&2
        exit 2
    fi
    if [[ $script = *.sh && ${1:-} =~ ^(-h|--help)$ ]]; then
        print_help "$script"
        exit
    fi
    exec "$script" "$@"
}
