"""What a record says about privacy: how class counts were told, what the fusion lost by it, every client's (ε, δ)."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from fedshot.fusion import Fusion, Member
from fedshot.privacy.accountant import Spent
from fedshot.privacy.counts import lost
from fedshot.privacy.randomness import seeded
from fedshot.spec import Spec

SEEDED = (
    "the noise is drawn from the seed of the run, which is no secret: it shows what privacy costs and gives none; "
    "--set noise_source=system gives it"
)


class ClientPrivacy(BaseModel):
    """One client: how it told its class counts, and what training under noise has cost its images."""

    model_config = ConfigDict(frozen=True)

    id: int
    counts: str
    spent: Spent | None = None


class RunPrivacy(BaseModel):
    """Of a run in which something was withheld or noised."""

    model_config = ConfigDict(frozen=True)

    clients: tuple[ClientPrivacy, ...]
    lost: str | None  # what the fusion rule lost for want of class counts
    warning: str | None  # what a reader must not overlook


def in_words(privacy: RunPrivacy) -> list[str]:
    """What whoever ran it should read, a line each."""
    kinds = sorted({client.counts for client in privacy.clients})
    lines = [f"class counts: {', '.join(kinds)}"]
    spent = [client.spent for client in privacy.clients if client.spent]
    if spent:
        low, high = min(each.epsilon for each in spent), max(each.epsilon for each in spent)
        lines.append(f"differential privacy of each image: ε = {low:.3g} to {high:.3g} at δ = {spent[0].delta:g}")
    return [*lines, *(line for line in (privacy.lost, privacy.warning) if line)]


def privacy_of(
    spec: Spec, fusion: Fusion, members: Sequence[Member], spent: Mapping[int, Spent | None]
) -> RunPrivacy | None:
    """What to say; None where every client told its counts exactly and trained without noise.

    Args:
        spent: of each client.
    """
    policies = {m.upload.header.client: m.upload.header.counts for m in members}
    if set(policies.values()) <= {"exact"} and spec.dp_noise is None:
        return None
    inexact = next((policy for policy in policies.values() if policy != "exact"), "exact")
    noisy = spec.dp_noise is not None or any(policy.startswith("noised") for policy in policies.values())
    return RunPrivacy(
        clients=tuple(ClientPrivacy(id=k, counts=policies[k], spent=spent.get(k)) for k in sorted(policies)),
        lost=lost(spec, fusion, inexact),
        warning=SEEDED if noisy and seeded(spec) else None,
    )
