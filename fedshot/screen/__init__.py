"""A screen for poisoned uploads: says which clients are suspicious and why, and can leave them out.

It compares clients with each other and with the start that they share. It cannot prove anything: a careful attacker
stays below its limits, and an honest client with unusual data may exceed them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from fedshot.errors import UserError
from fedshot.fusion import Member
from fedshot.screen.statistics import moments, own_labels, shared_labels
from fedshot.screen.verdict import Check, ClientScreen, Screening, gather
from fedshot.screen.weights import layer_directions, layer_norms, prototypes, update_direction
from fedshot.server import Received
from fedshot.setting import Setting

__all__ = ["Check", "ClientScreen", "Mode", "Screening", "screen", "screened"]

Mode = Literal["off", "report", "exclude"]
_FEWEST = 3  # clients: of two nobody can say which is odd


def screen(members: Sequence[Member], setting: Setting) -> Screening:
    """Every test that the uploads allow, on every client."""
    numbers = [member.upload.header.client for member in members]
    if len(members) < _FEWEST:
        return gather(numbers, {"all": f"{len(members)} clients: of fewer than {_FEWEST} nobody can say which is odd"})
    start = setting.initial_model
    return gather(
        numbers,
        {
            "layer norms": layer_norms(members, start),
            "layer directions": layer_directions(members, start),
            "update direction": update_direction(members, start),
            "prototypes": prototypes(members),
            "moments": moments(members),
            "own labels": own_labels(members),
            "shared labels": shared_labels(members, setting.task),
        },
    )


def screened(received: Received, setting: Setting, mode: Mode) -> tuple[Received, Screening | None]:
    """What was received after the screen, and what it said: with `exclude`, suspects are missing, and why."""
    if mode == "off":
        return received, None
    found = screen(received.members, setting)
    if mode == "report" or not found.suspects:
        return received, found
    kept = tuple(m for m in received.members if m.upload.header.client not in found.suspects)
    if not kept:
        raise UserError("the screen suspects every client: look at `fedshot screen RUN`, and fuse with screen=report")
    excluded = {client: f"excluded by the screen: {why}" for client, why in found.suspects.items()}
    return replace(received, members=kept, missing={**received.missing, **excluded}), found
