"""What the SDK raises, and how often it asked: 401, 404, 409, 422, 400; and wire faults, one by one by argument."""

from __future__ import annotations

import os
import sys
from typing import Any

import together
from client import HAS_REMEDIATIONS, VERSION, Story, create_args, tell


async def raises(s: Story, error: type[Exception], method: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        await s.call(method, *args, **kwargs)
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def told(error: Any) -> dict[str, Any]:
    body = error.body.get("error", error.body)
    assert isinstance(body["message"], str)
    assert body["message"].endswith(".")
    return dict(body)


async def plain(s: Story) -> None:
    nobody = type(s.client)(api_key="mk-nobody-knows-this-one")
    clusters = nobody.clusters if VERSION >= (2, 40) else nobody.beta.clusters
    await raises(s, together.AuthenticationError, clusters.list)

    missing = "00000000-0000-4000-8000-000000000000"
    await raises(s, together.NotFoundError, s.clusters.retrieve, missing)
    await raises(s, together.NotFoundError, s.clusters.delete, missing)
    await raises(s, together.NotFoundError, s.clusters.storage.retrieve, missing)
    if HAS_REMEDIATIONS:
        where = {"cluster_id": missing, "instance_id": missing}
        await raises(s, together.NotFoundError, s.clusters.remediations.retrieve, missing, **where)

    seven = await raises(s, together.BadRequestError, s.clusters.create, **create_args("x", num_gpus=7))
    assert told(seven)["param"] == "num_gpus"
    region = await raises(s, together.BadRequestError, s.clusters.create, **create_args("x", region="mars"))
    assert "us-central-8" in told(region)["message"]

    await s.call(s.clusters.create, **create_args("taken"))
    other = await raises(s, together.ConflictError, s.clusters.create, **create_args("taken", num_gpus=16))
    assert other.response.headers["x-should-retry"] == "false"
    assert told(other)["param"] == "cluster_name"

    pooled = create_args("later", extra_body={"capacity_pool_id": "p", "num_capacity_pool_gpus": 8})
    nobodys = await raises(s, together.NotFoundError, s.clusters.create, **pooled)
    assert told(nobodys)["param"] == "capacity_pool_id"

    many = await raises(s, together.ConflictError, s.clusters.create, **create_args("huge", num_gpus=8 * 4096))
    assert many.response.headers["x-should-retry"] == "false"


async def faulty(s: Story) -> None:
    """The next answers are 429 or 500, as many as the argument says; the client tries three times."""
    error = {"429": together.RateLimitError, "500": together.InternalServerError}[sys.argv[2]]
    if sys.argv[3] == "patient":
        made = await s.call(s.clusters.create, **create_args("once"))
        listed = (await s.call(s.clusters.list)).clusters
        assert [cluster.cluster_id for cluster in listed] == [made.cluster_id]
    else:
        client = s.client.with_options(max_retries=0)
        clusters = client.clusters if VERSION >= (2, 40) else client.beta.clusters
        raised = await raises(s, error, clusters.list)
        assert raised.status_code == int(sys.argv[2])
        assert os.environ["PROJECT_ID"] not in str(raised)


tell(faulty if len(sys.argv) > 2 else plain)
