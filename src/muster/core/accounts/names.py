"""What people may call things, and the slugs made of it. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

from muster.errors import Invalid

NAME_CHARS_MAX: Final = 63
EMAIL_CHARS_MAX: Final = 254

_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


def clean_name(text: str, *, field: str = "name") -> str:
    """The name as it is kept: trimmed, 1-63 printable characters."""
    name = text.strip()
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise Invalid(f"a name has 1 to {NAME_CHARS_MAX} characters", field=field, hint="choose another name")
    if not name.isprintable():
        raise Invalid("a name is made of printable characters only", field=field, hint="choose another name")
    return name


def clean_email(text: str) -> str:
    email = text.strip()
    if email and (len(email) > EMAIL_CHARS_MAX or not email.isprintable() or not _EMAIL.fullmatch(email)):
        raise Invalid("this is no mail address", field="email", hint="give one like ada@example.org, or none")
    return email


def slug_of(name: str) -> str:
    """Lower-case letters, digits and dashes; names without any of these get a slug from their digest."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = _NOT_SLUG.sub("-", plain).strip("-")
    return slug or f"project-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
