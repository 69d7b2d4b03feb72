"""A cluster's secrets, derived from one secret of the home: nothing is stored, and rendering stays pure.

Leans on hashlib alone. Laws: the same home secret, cluster and purpose give the same bytes; one cluster's secrets
tell nothing of another's, nor of the home's (HMAC). Ed25519 is written out (RFC 8032, key derivation only, no
signing), so that no crypto library is needed for a public key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, _P - 2, _P) % _P
_Point: TypeAlias = tuple[int, int, int, int]  # extended coordinates
_BASE_Y: Final = 4 * pow(5, _P - 2, _P) % _P


class SshKey(NamedTuple):
    private: str  # OpenSSH PEM
    public: str  # "ssh-ed25519 AAAA…"


def derive(secret: bytes, cluster_id: str, purpose: str, length: int = 32) -> bytes:
    blocks = (
        hmac.digest(secret, f"{purpose}\0{cluster_id}\0{number}".encode(), "sha256")
        for number in range(length // 32 + 1)
    )
    return b"".join(blocks)[:length]


def munge_key(secret: bytes, cluster_id: str) -> str:
    """munge takes any 32 to 1024 bytes; text travels well."""
    return derive(secret, cluster_id, "munge", 64).hex()


@lru_cache(maxsize=4096)
def ssh_key(secret: bytes, cluster_id: str, purpose: str) -> SshKey:
    seed = derive(secret, cluster_id, purpose)
    public = _public(seed)
    blob = _string(b"ssh-ed25519") + _string(public)
    check = derive(secret, cluster_id, f"{purpose} check", 4)
    inner = check + check + blob + _string(seed + public) + _string(purpose.encode())
    inner += bytes(range(1, 1 + (-len(inner) % 8)))
    outer = b"openssh-key-v1\0" + _string(b"none") + _string(b"none") + _string(b"") + struct.pack(">I", 1)
    body = base64.b64encode(outer + _string(blob) + _string(inner)).decode()
    lines = "\n".join(body[at : at + 70] for at in range(0, len(body), 70))
    private = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}\n-----END OPENSSH PRIVATE KEY-----\n"
    return SshKey(private, f"ssh-ed25519 {base64.b64encode(blob).decode()}")


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _recover_x(y: int) -> int:
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    return _P - x if x % 2 else x


def _add(a: _Point, b: _Point) -> _Point:
    left = (a[1] - a[0]) * (b[1] - b[0]) % _P
    right = (a[1] + a[0]) * (b[1] + b[0]) % _P
    cross = 2 * a[3] * b[3] * _D % _P
    depth = 2 * a[2] * b[2] % _P
    e, f, g, h = right - left, depth - cross, depth + cross, right + left
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _public(seed: bytes) -> bytes:
    hashed = bytearray(hashlib.sha512(seed).digest()[:32])
    hashed[0] &= 248
    hashed[31] = (hashed[31] & 127) | 64
    scalar = int.from_bytes(hashed, "little")
    x = _recover_x(_BASE_Y)
    point: _Point = (x, _BASE_Y, 1, x * _BASE_Y % _P)
    result: _Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point = _add(point, point)
        scalar >>= 1
    inverse = pow(result[2], _P - 2, _P)
    affine_x, affine_y = result[0] * inverse % _P, result[1] * inverse % _P
    return (affine_y | ((affine_x & 1) << 255)).to_bytes(32, "little")
