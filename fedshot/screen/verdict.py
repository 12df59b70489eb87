"""What a screen says about every client."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict


class Check(BaseModel):
    """One test of one client: its value, what is usual among all, and whether it is beyond the limit."""

    model_config = ConfigDict(frozen=True)

    test: str
    value: float
    usual: float
    limit: float  # beyond which a value is suspicious
    suspicious: bool
    words: str  # what was found


class ClientScreen(BaseModel):
    """All tests of one client that were possible."""

    model_config = ConfigDict(frozen=True)

    client: int
    checks: tuple[Check, ...]

    @property
    def suspicions(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.suspicious)


class Screening(BaseModel):
    """The clients of a run, and the tests that could not be made."""

    model_config = ConfigDict(frozen=True)

    clients: tuple[ClientScreen, ...]
    not_possible: dict[str, str]  # why not, by test

    @property
    def suspects(self) -> dict[int, str]:
        """Why a client is suspicious, for those that are."""
        return {
            each.client: "; ".join(f"{check.test}: {check.words}" for check in each.suspicions)
            for each in self.clients
            if each.suspicions
        }


def gather(numbers: Sequence[int], tests: Mapping[str, Mapping[int, Check] | str]) -> Screening:
    """The results of tests, by client; a test that was not possible is a reason."""
    made = [found for found in tests.values() if not isinstance(found, str)]
    return Screening(
        clients=tuple(
            ClientScreen(client=number, checks=tuple(found[number] for found in made if number in found))
            for number in numbers
        ),
        not_possible={name: reason for name, reason in tests.items() if isinstance(reason, str)},
    )
