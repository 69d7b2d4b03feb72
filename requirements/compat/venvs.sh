# Sourced by ./check after venv.sh: other providers' own clients, each version in an environment of its own.

# ensure_compat_venvs ROOT: one .venv-compat-NAME for every lock file here.
ensure_compat_venvs() {
    for lock in "$1"/requirements/compat/*.txt; do
        name=$(basename "$lock" .txt)
        if ! venv_ready "$1/.venv-compat-$name" "$lock"; then
            venv_build "$1/.venv-compat-$name" "$lock" src
            # The client must not find us beside it.
            rm -f "$1/.venv-compat-$name"/lib/python3*/site-packages/muster.pth "$1/.venv-compat-$name/bin/muster"
        fi
    done
}

# wants_compat STAGE...: whether ./check was asked for everything, or for this stage among others.
wants_compat() {
    named=no
    for word in "$@"; do
        case $word in
        compat) return 0 ;;
        --jobs) ;;
        -* | [0-9]*) ;;
        *) named=yes ;;
        esac
    done
    [ "$named" = no ]
}
