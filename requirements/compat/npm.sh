# Sourced by ./check after venv.sh: clients that their providers publish on npm, each in a folder of its own.

# npm_ready DIR LOCK: whether DIR was made from exactly this LOCK.
npm_ready() { [ -f "$1/made-from" ] && [ "$(cat "$1/made-from")" = "$(lock_hash "$2")" ]; }

# npm_build DIR SOURCE: whole or not at all, from the lock alone; its hashes are checked, no script of a package is run.
npm_build() {
    sweep_left_overs "$1"
    building="$1.tmp-$$"
    say "making $(basename "$1") with npm $(npm --version) (once, some seconds)"
    mkdir "$building"
    cp "$2/package.json" "$2/package-lock.json" "$building/"
    if ! npm --prefix "$building" ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2; then
        rm -rf "$building"
        return 1
    fi
    lock_hash "$2/package-lock.json" >"$building/made-from"
    rm -rf "$1"
    mv -T "$building" "$1"
}

# ensure_compat_npm ROOT: one .npm-compat-NAME for every lock here. Who has no npm is told so by the tests.
ensure_compat_npm() {
    command -v npm >/dev/null || return 0
    for lock in "$1"/requirements/compat/npm/*/package-lock.json; do
        source=$(dirname "$lock")
        made="$1/.npm-compat-$(basename "$source")"
        npm_ready "$made" "$lock" || npm_build "$made" "$source" ||
            say "npm could not fetch $(basename "$source"); its tests will say so"
    done
}
