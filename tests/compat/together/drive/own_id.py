"""2.x: the client chooses the id, asks twice and gets one repair; then takes it back if it has not begun."""

from __future__ import annotations

import sys

import together
from client import Story, tell


async def story(s: Story) -> None:
    _, _, cluster_id, instance_id, own = sys.argv
    asked = {"cluster_id": cluster_id, "mode": "REMEDIATION_MODE_REBOOT_VM", "remediation_id": own}
    one = await s.call(s.clusters.remediations.create, instance_id, **asked)
    two = await s.call(s.clusters.remediations.create, instance_id, **asked)
    assert one.id == two.id == own
    where = {"cluster_id": cluster_id, "instance_id": instance_id}
    try:
        taken = await s.call(s.clusters.remediations.cancel, own, **where)
    except together.BadRequestError:
        return  # it had begun already
    assert taken.state == "CANCELLED"


tell(story)
