# Sourced by ./muster and ./check: makes a virtual environment from a lock file, whole or not at all.
# A marker inside names the lock's hash and the Python it was made with, so that a second run costs
# a few milliseconds and a changed lock or an upgraded Python builds it anew.

say() { printf '%s\n' "muster: $*" >&2; }

fail() {
    say "$*"
    exit 1
}

# The first Python that is new enough, as a path.
find_python() {
    for candidate in python3 python3.11 python3.12 python3.13 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is needed and none was found; on Debian or Ubuntu: apt-get install python3 python3-venv"
}

# In a subshell, so that the ban on starting services is lifted again however it ends: a package's own service must
# not start because we only wanted its programs.
apt_install() (
    say "installing $* (apt-get)"
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        trap 'exit 130' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update >&2 || return
    apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-confold install "$@" >&2
)

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Debian ships venv's other half in a package of its own.
need_venv_module() {
    if "$1" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    can_apt || fail "Python's venv module is missing; ask for it: sudo apt-get install python3-venv"
    apt_install "python$version-venv" || apt_install python3-venv || fail "could not install python3-venv"
}

lock_hash() { sha256sum "$1" | cut -d ' ' -f 1; }

# venv_ready DIR LOCK: whether DIR was made from exactly this LOCK and its Python is still the same.
venv_ready() {
    [ -x "$1/bin/python" ] && [ -f "$1/made-from" ] &&
        [ "$(cat "$1/made-from")" = "$(lock_hash "$2") $(readlink -f "$1/bin/python")" ]
}

sweep_left_overs() {
    for left in "$1".tmp-*; do
        if [ -e "$left" ] && ! kill -0 "${left##*-}" 2>/dev/null; then rm -rf "$left"; fi
    done
}

# venv_build DIR LOCK SRC
venv_build() {
    python=$(find_python)
    need_venv_module "$python"
    sweep_left_overs "$1"
    building="$1.tmp-$$"
    trap 'rm -rf "$building"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    say "making $(basename "$1") with $("$python" -V) ($(grep -c '==' "$2") packages; once, about half a minute)"
    "$python" -m venv "$building" >&2 || fail "python3 -m venv failed"
    "$building/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
        --progress-bar off --no-deps --require-hashes -r "$2" >&2 ||
        fail "could not install the packages of $(basename "$2"); nothing was left half-made, run it again"
    # Relative, so that the tree may be moved.
    for site in "$building"/lib/python3*/site-packages; do echo "../../../../$3" >"$site/muster.pth"; done
    printf '#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/python" -m muster.cli.main "$@"\n' >"$building/bin/muster"
    chmod 755 "$building/bin/muster"
    # Scripts were written for the name it was built under.
    grep -lIs -d skip "$building" "$building"/bin/* | while read -r script; do
        sed -i "s|$building|$1|g" "$script"
    done
    printf '%s %s\n' "$(lock_hash "$2")" "$(readlink -f "$building/bin/python")" >"$building/made-from"
    venv_swap "$1" "$2"
    trap - EXIT INT TERM HUP
}

# Another run may have been quicker; an old one is moved aside first, because a rename wants an empty place.
venv_swap() {
    if venv_ready "$1" "$2"; then
        rm -rf "$building"
        return
    fi
    if [ -e "$1" ]; then mv -T "$1" "$building.old"; fi
    mv -T "$building" "$1" 2>/dev/null || venv_ready "$1" "$2" || fail "could not put $(basename "$1") in place"
    rm -rf "$building" "$building.old"
}

# ensure_venv DIR LOCK
ensure_venv() { venv_ready "$1" "$2" || venv_build "$1" "$2" src; }
