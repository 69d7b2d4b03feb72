"""Who may do what. Others' things do not exist: NotFound, never Forbidden."""

from __future__ import annotations

from muster.errors import Forbidden, Invalid, NotFound
from muster.model.accounts import Actor, Role


def require_operator(actor: Actor) -> None:
    if not actor.is_operator:
        raise Forbidden("only the operator may do this", hint="use the operator's key")


def require_write(actor: Actor) -> None:
    """Members read the control plane; admins and the operator change it."""
    if actor.role is Role.MEMBER:
        raise Forbidden(
            "a member may look but not change the control plane", hint="ask a project admin, or use an admin's key"
        )


def sees(actor: Actor, project_id: str | None) -> bool:
    return actor.is_operator or (project_id is not None and project_id == actor.project_id)


def require_sees(actor: Actor, project_id: str | None, kind: str, id: str) -> None:
    if not sees(actor, project_id):
        raise NotFound(f"there is no {kind} {id}")


def own_project(actor: Actor, project_id: str | None) -> str:
    """The project a call is about: the one named, else the key's own."""
    if project_id is None:
        if actor.project_id is None:
            raise Invalid("this key belongs to no project: name one", field="project_id", hint="pass project_id")
        return actor.project_id
    if not sees(actor, project_id):
        raise NotFound(f"there is no project {project_id}")
    return project_id
