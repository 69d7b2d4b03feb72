"""Whom a command believes that it speaks to the right server: the world's authorities, a file's, or a home's own."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def trust(certificate: str | None) -> bool | ssl.SSLContext:
    """MUSTER_CA_FILE, else the very certificate that a server on our own home shows, else who signs for the world."""
    authority = os.environ.get("MUSTER_CA_FILE")
    if authority:
        return ssl.create_default_context(cafile=authority)
    return pinned(Path(certificate)) if certificate else True


def pinned(certificate: Path) -> bool | ssl.SSLContext:
    """This certificate and no other, under whatever name: its server wrote into our own home where it listens."""
    try:
        found = _PEM.search(certificate.read_text())
    except OSError:
        found = None
    if found is None:
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not be signed by itself
    context.load_verify_locations(cadata=found[0])
    return context
