"""Studies that come with the package, by name."""

from collections.abc import Callable

from fedshot.study.grid import Study

PLANNED = (  # in the order of the planning note, the forms that were run before those that are sound
    "memory_bank",
    "memory_bank_sound",
    "public_bank",
    "public_bank_sound",
    "two_stage_bank",
    "two_stage_bank_sound",
    "hard_negatives",
    "hard_negatives:synthetic=0",
    "hard_negatives:beta=0",
    "balanced_contrast",
    "reference_alignment:distance=mmd",
    "reference_alignment:distance=coral",
    "reference_alignment:distance=sliced_wasserstein",
    "split_announced",
    "split_local",
    "distilled",
    "distilled:images=statistics",
    "distilled:images=noise",
    "dynamic_prototypes",
)


def notes_plan() -> Study:
    """Every mechanism that the notes planned against FAFI, on the embedded digits.

    All runs of a seed have the same clients: the public tenth and the held-out tenth are set aside for all of them.
    """
    return Study.model_validate(
        {
            "name": "notes-plan",
            "methods": ("fafi", *PLANNED),
            "data": "digits",
            "clients": 5,
            "alpha": 0.05,
            "public": "0.1",
            "validation": 0.1,
            "epochs": 30,
            "seeds": (1, 2, 3),
            "against": "fafi",
        }
    )


RECIPES: dict[str, Callable[[], Study]] = {"notes-plan": notes_plan}
