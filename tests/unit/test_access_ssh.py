"""SSH public keys: real ones in, everything else out. The samples and fingerprints are ssh-keygen's own."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.access.ssh import read_public_key
from muster.errors import Invalid

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILGQAqIcrmT36vtf0x8Fg3DlxqWco6yJvxEH5b1CJs4x"
ECDSA = (
    "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBABLie5p43lrvu9lFlnwVKQcv8oDqdV35Kxc3Ehy"
    "DeYtgY1qSmpcKLnnBSbZmydkqbUWEeVAZ1yzkl0EBY7ERNF7PAHS1mKEE2zxDvZOTXe+MOqBSoX9vYqgZPE3k8iV+AC6E8uHbim6MqGaFnrB+mzj"
    "HY6C5QJjPRy3UX5KjiiY2G0ZVw=="
)
RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCwY2IXr9vuRiYAx3AeCPPPZUEAjUnSokEjLWaWwP9svVMVlctrsCMGi9sMfg05cUmgc0CzBoPT"
    "hY8h4qf+Efmjw4PVwGuuyU44bVnzZzcYWWhrzrzSS5xKxER/qCuHJxIs4xowD2xhJodGn02pXXWLMo9P1Do+e0da3A0A6HcR8+QOGtcTVq1mRbJk"
    "fqcn9ryamC+UGjs+DyZgjFmsbflkkIpBmob7Tfcvcv36u+S7V46jFu2d/XJnTzOKwnZBK2q03cfpX49JdLLuyMUM1qv94o52zsMormtLSTQDujtI"
    "RsHd25+kBRgG0MThQbHCoLhVJEOwY0ARvAKcrYW21BwP"
)
WEAK_RSA = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7S+OuCInAKsp8YneTvY1YOuz6csQyQRsKFfYLkn/0IwnO51SzrwwnpNypIKOPUDL1mnBg4XC0"
    "dVrnVhoF6yzy8Ep4UwwXaaRSaMn67uKMgrzUisG3+puSe7cE83qNtQ4sWwGSUzoocJjiywTqfdHVkVlKjoLXaeErcmzHuYCeiQ== weak"
)


def packed(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(4) + field for field in fields)


def line(type: str, *fields: bytes, after: bytes = b"") -> str:
    return f"{type} {base64.b64encode(packed(type.encode(), *fields) + after).decode()}"


def mpint(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1)


@pytest.mark.parametrize(
    ("given", "fingerprint"),
    [
        (ED25519, "SHA256:kCWv46BOnq/KXjKny3TluCM+LbaPy0bMr8TLOafTEUs"),
        (ECDSA, "SHA256:iq6jXcNbA+DKMaNg1fd7+uZtVo95F0pv3sUntS4gJ1I"),
        (RSA, "SHA256:0sA16G2PJCUNnvf7u/YKCtYAnlV4bxD/JsPP7PhfsAQ"),
    ],
)
def test_real_keys_have_the_fingerprint_that_ssh_keygen_gives(given: str, fingerprint: str) -> None:
    key = read_public_key(given)
    assert key.fingerprint == fingerprint
    assert key.text == given


def test_the_comment_is_kept_and_the_line_is_tidied() -> None:
    key = read_public_key(f"  {ED25519}   ada@lab one \n")
    assert key.comment == "ada@lab one"
    assert key.text == f"{ED25519} ada@lab one"
    assert read_public_key(key.text) == key


def test_keys_in_hardware_are_known() -> None:
    read_public_key(line("sk-ssh-ed25519@openssh.com", b"k" * 32, b"ssh:"))
    read_public_key(line("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", b"\x04" + b"p" * 64, b"ssh:"))


@pytest.mark.parametrize(
    "given",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 ",
        "ssh-ed25519 not*base64",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3MAAACB",
        ED25519[:-8],
        ED25519.replace("ssh-ed25519 ", "ssh-rsa "),
        f'command="rm -rf /" {ED25519}',
        f"no-pty {ED25519}",
        f"{ED25519} me\n{ED25519} you",
        f"{ED25519} me\rssh-rsa",
        f"{ED25519} \x1b[31m",
        f"{ED25519} {'c' * 257}",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "x" * 20_000,
        WEAK_RSA,
        line("ssh-ed25519", b"k" * 31),
        line("ssh-ed25519", b"k" * 32, b"more"),
        line("ssh-ed25519", b"k" * 32, after=b"\x00"),
        line("ecdsa-sha2-nistp256", b"nistp384", b"\x04" + b"p" * 64),
        line("ecdsa-sha2-nistp256", b"nistp256", b"\x02" + b"p" * 32),
        line("ecdsa-sha2-nistp256", b"nistp256", b""),
        line("ssh-rsa", mpint(65537), b""),
        line("ssh-rsa", mpint(65537), b"\x00" + mpint(1 << 2050)),
        line("ssh-rsa", mpint(65537), b"\xff" * 256),
        line("ssh-rsa", mpint(4), mpint(1 << 2050)),
        line("ssh-rsa", mpint(1), mpint(1 << 2050)),
        line("ssh-rsa", mpint(65537), mpint(1 << 16_384)),
    ],
)
def test_everything_else_is_refused_with_a_sentence(given: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_public_key(given)
    assert refused.value.field == "public_key"
    assert refused.value.message


def test_a_private_key_is_not_repeated_in_the_refusal() -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----"
    with pytest.raises(Invalid, match="private key") as refused:
        read_public_key(secret)
    assert "b3BlbnNz" not in str(refused.value)


@given(st.binary(max_size=200), st.sampled_from(["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"]))
def test_no_bytes_break_the_reader(inside: bytes, type: str) -> None:
    blob = base64.b64encode(packed(type.encode()) + inside).decode()
    try:
        key = read_public_key(f"{type} {blob}")
    except Invalid:
        return
    assert key.text == f"{type} {blob}"


@given(st.text(max_size=100))
def test_no_text_breaks_the_reader(text: str) -> None:
    with pytest.raises(Invalid):
        read_public_key(text)
