"""Whether a tenant's OIDC issuer is what it says: asked once, before a cluster that trusts it is accepted.

*Laws.*
| rule | mandatory |
|---|---|
| only https, and only the issuer's own discovery document | yes |
| no address inside our network (loopback, link-local, private) unless the operator allows it | yes |
| the address that was judged is the one that is called: a name cannot change its mind in between | yes |
| bounded: three seconds in all, 64 KiB, no redirect followed | yes |
| every failure is `Invalid`, in a sentence that tells nothing of our network | yes |
"""

from __future__ import annotations

from typing import Protocol

from muster.model.clusters import Oidc


class IssuerCheck(Protocol):
    async def check(self, oidc: Oidc) -> None:
        """Raise `Invalid` unless the issuer answers for itself."""
