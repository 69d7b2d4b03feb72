"""The plan is total and keeps its promises, whatever the store and the substrate say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.contracts.substrate import Power, Seen
from muster.core.volumes.plan import Ask, Clear, Move, Note, Rest, Snapshot, WaitFor, plan, settle
from muster.model.events import Request, RequestState
from muster.model.phases import VOLUME_MOVES, VolumePhase
from muster.model.volumes import Volume

NOW = 1_000_000

open_states = st.sampled_from([RequestState.PENDING, RequestState.PROCESSING])
operations = st.sampled_from(["create", "grow", "delete"])
sights = st.none() | st.builds(
    Seen,
    power=st.sampled_from(list(Power)),
    because=st.sampled_from(["", "a reason"]),
    size_gib=st.integers(0, 40),
    look_again_at=st.none() | st.integers(NOW - 5_000, NOW + 600_000),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    phase = draw(st.sampled_from([p for p in VolumePhase if p is not VolumePhase.GONE]))
    wished = phase is VolumePhase.DELETING or draw(st.booleans())
    volume = Volume(
        id="v",
        account_id="a",
        project_id="p",
        name="data",
        live_name=None if wished else "data",
        region="eu-1",
        size_gib=draw(st.integers(1, 40)),
        actual_gib=draw(st.integers(0, 40)),
        phase=phase,
        phase_since=0,
        because=draw(st.sampled_from(["", "ready", "a reason"])),
        delete_wished_at=NOW - 1 if wished else None,
        created_at=0,
        updated_at=0,
    )
    requests = draw(st.lists(st.builds(request, operations, open_states), max_size=3))
    return Snapshot(volume, requests, draw(st.lists(st.just("c"), max_size=1)))


def request(operation: str, state: RequestState) -> Request:
    return Request(
        id=operation,
        account_id="a",
        project_id="p",
        kind="volume",
        resource_id="v",
        operation=operation,
        generation=1,
        state=state,
        created_at=0,
        updated_at=0,
    )


@given(snapshots(), sights)
def test_the_plan_keeps_its_laws(snapshot: Snapshot, seen: Seen | None) -> None:
    volume = snapshot.volume
    step = plan(snapshot, seen, NOW)
    assert plan(snapshot, seen, NOW) == step
    match step:
        case Move(phase, because, _):
            assert phase in VOLUME_MOVES[volume.phase]
            assert because
        case Clear():
            failed = volume.phase is VolumePhase.FAILED  # it never served anybody
            assert failed or volume.phase is VolumePhase.DELETING
            assert failed or not snapshot.mounted_on, "nothing is cleared away under a cluster"
        case Ask():
            assert volume.delete_wished_at is None
            assert volume.phase in (VolumePhase.PROVISIONING, VolumePhase.AVAILABLE)
            assert not (volume.phase is VolumePhase.AVAILABLE and seen is None), "never made anew in silence"
        case WaitFor(because, until):
            assert because
            assert NOW < until <= NOW + 60_000
        case Note():
            assert volume.phase is VolumePhase.AVAILABLE
        case Rest():
            assert volume.delete_wished_at is None
            assert volume.phase in (VolumePhase.AVAILABLE, VolumePhase.FAILED)


@given(snapshots())
def test_requests_end_when_and_only_when_their_volume_decides(snapshot: Snapshot) -> None:
    volume = snapshot.volume
    for later in settle(snapshot.requests, volume, NOW):
        over = later.state in (RequestState.COMPLETED, RequestState.FAILED)
        assert (later.finished_at == NOW) is over
        if later.operation == "delete":
            assert later.state is RequestState.PROCESSING, "nothing here is gone yet"
        if later.state is RequestState.COMPLETED:
            assert volume.phase is VolumePhase.AVAILABLE
            assert volume.actual_gib >= volume.size_gib
