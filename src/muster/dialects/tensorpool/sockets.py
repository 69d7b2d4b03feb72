"""Jobs over WebSockets: `tp job push` and `tp job listen`.

Leans on the jobs room and ways.py. *Laws.* The first frame is the key, and comes soon or never. A push ends well by
close code 1000 and otherwise by another; a listen ends by a frame that says success or error, because that client
takes a bare close for a failure. What is sent to be run is ours alone (ways.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.contracts.http import SocketRoute, WebSocket
from muster.core.house import House
from muster.dialects.tensorpool.asking import parsed
from muster.dialects.tensorpool.refusals import message_of
from muster.dialects.tensorpool.template import read_spec
from muster.dialects.tensorpool.ways import upload_command
from muster.dialects.tensorpool.wire import Push
from muster.errors import CallError, Invalid, Unauthenticated
from muster.model.accounts import Actor
from muster.model.jobs import OVER, Job, JobState

FIRST_FRAME_SECONDS: Final = 10.0
UPLOAD_SECONDS_MAX: Final = 3_600.0
LISTEN_SECONDS: Final = 0.5
PIECE: Final = 64 << 10
FRAME_BYTES_MAX: Final = 1 << 20
REASON_BYTES_MAX: Final = 120

CLOSE: Final[Mapping[str, int]] = {"unauthenticated": 4001, "insufficient_balance": 4002, "forbidden": 4003}
"""By error code; the rest are 4000, and what breaks on our side 1011."""


class JobSockets:
    def __init__(self, house: House) -> None:
        self._house = house
        self._jobs = house.jobs

    def routes(self) -> tuple[SocketRoute, ...]:
        return (
            SocketRoute("/job/push", self.push, "WS /job/push", FRAME_BYTES_MAX),
            SocketRoute("/job/listen/{job_id}", self.listen, "WS /job/listen/{job_id}", FRAME_BYTES_MAX),
        )

    # --- push -----------------------------------------------------------------------------------------------------

    async def push(self, socket: WebSocket) -> None:
        try:
            actor = await self._actor(socket)
            said = parsed(await _frame(socket, FIRST_FRAME_SECONDS), Push)
            if said.system == "Windows":
                raise Invalid("jobs are pushed from Linux or macOS", hint="use WSL on Windows")
            spec = read_spec(said.tp_config)
            job = await self._jobs.accept(actor, said.cluster_id, spec, teardown=bool(said.teardown_cluster))
            await _send(socket, message=f"Job {job.id} accepted by cluster {job.cluster_name}.", job_id=job.id)
            await self._upload(socket, actor, job)
        except CallError as refused:
            await _refuse(socket, refused)

    async def _upload(self, socket: WebSocket, actor: Actor, job: Job) -> None:
        arrived = False
        try:
            arrived = await self._files_arrive(socket, actor, job)
        finally:
            if not arrived:
                await self._jobs.give_up(actor, job.id, "its files did not arrive")
        if not arrived:
            await _send(socket, message="The upload failed. Is one of your SSH keys on this cluster?")
            await socket.close(4000, "the upload failed")
            return
        await self._jobs.uploaded(actor, job.id)
        await _send(socket, message=f"Job {job.id} waits for its turn. See it with `tp job listen {job.id}`.")
        await socket.close(1000)

    async def _files_arrive(self, socket: WebSocket, actor: Actor, job: Job) -> bool:
        cluster = await self._house.clusters.cluster(actor, job.cluster_id)
        if cluster.status.access.simulated:
            await _send(socket, message="This fleet is simulated: nothing is uploaded, and nothing really runs.")
            return True
        await _send(
            socket,
            message="Uploading this directory ...",
            command=upload_command(cluster, job.id),
            command_show_stdout=False,
        )
        result = await _frame(socket, UPLOAD_SECONDS_MAX)
        return result.get("type") == "command_result" and result.get("exit_code") == 0

    # --- listen ---------------------------------------------------------------------------------------------------

    async def listen(self, socket: WebSocket) -> None:
        try:
            actor = await self._actor(socket)
            await self._jobs.job(actor, socket.params["job_id"])
            left = asyncio.ensure_future(socket.receive())
            try:
                await self._follow(socket, actor, left)
            finally:
                left.cancel()
        except CallError as refused:
            await _send(socket, status="error", message=message_of(refused))
            await socket.close(1000)

    async def _follow(self, socket: WebSocket, actor: Actor, left: asyncio.Future[Any]) -> None:
        """Whole lines as they come home, without a status: a job's own word "error" would end the client's listening.
        The last word when all of them are out."""
        id, offset, rest = socket.params["job_id"], 0, b""
        while not left.done():
            job = await self._jobs.job(actor, id)
            while piece := await self._jobs.log(actor, id, offset, PIECE):
                offset += len(piece)
                lines, _, rest = (rest + piece).rpartition(b"\n")
                if lines:
                    await _send(socket, message=lines.decode("utf-8", "replace"))
            if job.state in OVER and offset >= job.log_bytes:
                if rest:
                    await _send(socket, message=rest.decode("utf-8", "replace"))
                status = "success" if job.state is JobState.COMPLETED else "error"
                await _send(socket, status=status, message=f"Job {id} is {job.state}: {job.because}.")
                await socket.close(1000)
                return
            await self._house.clock.sleep(LISTEN_SECONDS)

    async def _actor(self, socket: WebSocket) -> Actor:
        key = (await _frame(socket, FIRST_FRAME_SECONDS)).get("TENSORPOOL_KEY")
        if not isinstance(key, str):
            raise Unauthenticated("the first message must be the key", hint='send {"TENSORPOOL_KEY": "..."}')
        return await self._house.accounts.authenticate(key)


async def _frame(socket: WebSocket, seconds: float) -> dict[str, Any]:
    """The next frame, a JSON object; whoever is silent for too long, leaves or babbles is refused."""
    try:
        async with asyncio.timeout(seconds):
            frame = await socket.receive()
        said = msgspec.json.decode(frame) if frame is not None else None
    except TimeoutError:
        raise Invalid(f"nothing was said for {seconds:g} seconds") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid("this frame is not JSON") from None
    if not isinstance(said, dict):
        raise Invalid("a frame is a JSON object")
    return said


async def _send(socket: WebSocket, **fields: Any) -> None:
    await socket.send(msgspec.json.encode(fields).decode())


async def _refuse(socket: WebSocket, error: CallError) -> None:
    told = message_of(error)
    await _send(socket, message=told)
    reason = told.encode()[:REASON_BYTES_MAX].decode("utf-8", "ignore")
    await socket.close(CLOSE.get(error.code, 4000), reason)
