"""Object storage on TensorPool's wire: an S3 endpoint and keys for the whole organization."""

from __future__ import annotations

from typing import Final

import msgspec

from muster.contracts.http import Call, Reply
from muster.core.house import House
from muster.dialects.tensorpool import answers
from muster.model.objects import ObjectAccess

REMOTE: Final = "tp"
"""What the remote is called in rclone's configuration, and the profile in that of AWS's tools."""


class Objects:
    def __init__(self, house: House) -> None:
        self._objects = house.objects

    async def enable(self, call: Call) -> Reply:
        return self._told(await self._objects.enable(call.actor), "Object storage is enabled.")

    async def credentials(self, call: Call) -> Reply:
        return self._told(await self._objects.access(call.actor), "")

    async def rotate(self, call: Call) -> Reply:
        return self._told(await self._objects.rotate(call.actor), "The old secret is no longer good.")

    def _told(self, access: ObjectAccess, message: str) -> Reply:
        behind = self._objects.behind
        answer = answers.ObjectCredentials(
            message=message,
            access_key_id=access.access_key,
            secret_access_key=access.secret_key,
            endpoint=behind.endpoint,
            region=behind.region,
        )
        return Reply(200, msgspec.json.encode(answer))

    async def disable(self, call: Call) -> Reply:
        await self._objects.disable(call.actor)
        return Reply(200, msgspec.json.encode(answers.Said(message="Object storage is disabled.")))

    async def rclone(self, call: Call) -> Reply:
        access = await self._objects.access(call.actor)
        lines = [
            f"[{REMOTE}]",
            "type = s3",
            "provider = Other",
            f"access_key_id = {access.access_key}",
            f"secret_access_key = {access.secret_key}",
            f"endpoint = {self._objects.behind.endpoint}",
            f"region = {self._objects.behind.region}",
            "force_path_style = true",
        ]
        told = answers.RcloneConfig(message="", rclone_config="\n".join(lines) + "\n", remote_name=REMOTE)
        return Reply(200, msgspec.json.encode(told))

    async def aws(self, call: Call) -> Reply:
        access = await self._objects.access(call.actor)
        keys = f"aws_access_key_id = {access.access_key}\naws_secret_access_key = {access.secret_key}\n"
        behind = self._objects.behind
        told = answers.AwsConfig(
            message="",
            profile_name=REMOTE,
            credentials_file=f"[{REMOTE}]\n{keys}",
            config_file=f"[profile {REMOTE}]\nregion = {behind.region}\nendpoint_url = {behind.endpoint}\n",
            endpoint=behind.endpoint,
        )
        return Reply(200, msgspec.json.encode(told))

    async def buckets(self, call: Call) -> Reply:
        found = await self._objects.buckets(call.actor)
        told = answers.BucketList(message="\n".join(found) or "No buckets.", buckets=found)
        return Reply(200, msgspec.json.encode(told))

    async def make_bucket(self, call: Call) -> Reply:
        name = call.params["bucket_name"]
        await self._objects.make_bucket(call.actor, name)
        return Reply(201, msgspec.json.encode(answers.Said(message=f"Bucket {name} is made.")))

    async def remove_bucket(self, call: Call) -> Reply:
        await self._objects.remove_bucket(call.actor, call.params["bucket_name"])
        return Reply(204)
