# Sourced by ./check after venv.sh: clients that are Go programs, built from the Go module proxy into the cache.

# At the commit whose law tests/compat/together/provider.py writes down.
TERRAFORM_PROVIDER=github.com/togethercomputer/terraform-provider-together@080c53b26c33538f3ed6b16ee9ce5891356ee4bd

# ensure_compat_go WORD...: for --thorough only, as it takes minutes. Who has no Go is told so by the tests.
ensure_compat_go() {
    case " $* " in *" --thorough "*) ;; *) return 0 ;; esac
    bin=${MUSTER_CACHE:-$HOME/.cache/muster}/bin
    if [ -x "$bin/terraform-provider-together" ] || ! command -v go >/dev/null; then return 0; fi
    say "building Together's Terraform provider with $(go env GOVERSION) (once, some minutes)"
    GOBIN="$bin" go install "$TERRAFORM_PROVIDER" >&2 ||
        say "Together's Terraform provider could not be built; its tests will say so"
}
