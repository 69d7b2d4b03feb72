"""Reading an SSH public key properly: what is not exactly one well-formed, strong key is refused. Pure.

A line of ours ends up in `authorized_keys` on a tenant's nodes, so options, second lines and anything that is not
what it says are kept out at the door. RFC 4253 §6.6, RFC 5656, RFC 8709, OpenSSH's PROTOCOL.u2f.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, NamedTuple, NoReturn

from muster.errors import Invalid

KEY_CHARS_MAX: Final = 16_384
COMMENT_CHARS_MAX: Final = 256
RSA_BITS_MIN: Final = 2_048
RSA_BITS_MAX: Final = 16_384

_POINT_BYTES: Final = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
_TYPES: Final = (
    "ssh-ed25519",
    *(f"ecdsa-sha2-{curve}" for curve in _POINT_BYTES),
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


class PublicKey(NamedTuple):
    """One key as it is kept: `text` is type, blob and comment on a single line."""

    type: str
    text: str
    comment: str
    fingerprint: str


def read_public_key(given: str) -> PublicKey:
    line = given.strip()
    if len(line) > KEY_CHARS_MAX:
        _refuse(f"a public key has at most {KEY_CHARS_MAX} characters")
    if "PRIVATE KEY" in line:
        _refuse("this is a private key: never send it anywhere", hint="send the .pub file; make a new pair")
    if not line.isprintable():
        _refuse("a public key is one line", hint="paste one key at a time, without line breaks")
    type, blob, comment = _words(line)
    inner = _decoded(blob)
    if _inner_type(inner) != type:
        _refuse(f"this says it is {type}, but its inside does not")
    _check_inside(type, inner)
    canonical = base64.b64encode(inner).decode()
    text = " ".join(part for part in (type, canonical, comment) if part)
    digest = base64.b64encode(hashlib.sha256(inner).digest()).decode().rstrip("=")
    return PublicKey(type, text, comment, f"SHA256:{digest}")


def _words(line: str) -> tuple[str, str, str]:
    type, _, rest = line.partition(" ")
    if type not in _TYPES:
        hint = f"start with the key's type, without options: {', '.join(_TYPES)}"
        _refuse("this is not an SSH public key of a type we know", hint=hint)
    blob, _, comment = rest.strip().partition(" ")
    comment = comment.strip()
    if len(comment) > COMMENT_CHARS_MAX:
        _refuse(f"the comment of a key has at most {COMMENT_CHARS_MAX} characters")
    return type, blob, comment


def _decoded(blob: str) -> bytes:
    try:
        return base64.b64decode(blob.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        _refuse("the key itself is not proper base64", hint="paste the whole .pub file")


def _inner_type(inner: bytes) -> str:
    return _field(inner, 0)[0].decode("ascii", "replace")


def _field(inner: bytes, at: int) -> tuple[bytes, int]:
    """The length-prefixed string at this place, and where the next one begins."""
    end = at + 4 + int.from_bytes(inner[at : at + 4])
    if at + 4 > len(inner) or end > len(inner):
        _refuse("the key is cut short", hint="paste the whole .pub file")
    return inner[at + 4 : end], end


def _fields(inner: bytes, count: int) -> list[bytes]:
    """All the strings inside: exactly so many, and nothing after them."""
    fields: list[bytes] = []
    at = 0
    for _ in range(count):
        field, at = _field(inner, at)
        fields.append(field)
    if at != len(inner):
        _refuse("there is more inside this key than belongs there")
    return fields


def _check_inside(type: str, inner: bytes) -> None:
    match type:
        case "ssh-ed25519":
            _check_ed25519(_fields(inner, 2)[1])
        case "sk-ssh-ed25519@openssh.com":
            _check_ed25519(_fields(inner, 3)[1])
        case "ssh-rsa":
            _check_rsa(*_fields(inner, 3)[1:])
        case "sk-ecdsa-sha2-nistp256@openssh.com":
            _check_ecdsa("nistp256", *_fields(inner, 4)[1:3])
        case _:
            _check_ecdsa(type.removeprefix("ecdsa-sha2-"), *_fields(inner, 3)[1:])


def _check_ed25519(point: bytes) -> None:
    if len(point) != 32:
        _refuse("an ed25519 key has 32 bytes")


def _check_ecdsa(curve: str, said: bytes, point: bytes) -> None:
    if said != curve.encode() or len(point) != _POINT_BYTES[curve] or point[0] != 4:
        _refuse(f"this is not a point of {curve}")


def _check_rsa(exponent: bytes, modulus: bytes) -> None:
    bits = _positive(modulus).bit_length()
    if not RSA_BITS_MIN <= bits <= RSA_BITS_MAX:
        _refuse(
            f"an RSA key has {RSA_BITS_MIN} to {RSA_BITS_MAX} bits, this one has {bits}",
            hint="make a new one: ssh-keygen -t ed25519",
        )
    e = _positive(exponent)
    if e < 3 or e % 2 == 0 or e.bit_length() > 64:
        _refuse("this RSA key has an exponent that no real key has")


def _positive(mpint: bytes) -> int:
    """RFC 4251 §5: two's complement in as few bytes as possible, so one number has one form."""
    number = int.from_bytes(mpint, signed=True)
    if number <= 0 or len(mpint) != number.bit_length() // 8 + 1:
        _refuse("a number inside this key is not written as it must be")
    return number


def _refuse(message: str, *, hint: str | None = None) -> NoReturn:
    raise Invalid(message, field="public_key", hint=hint)
