"""Contrast against public features alone first, the full loss then (the notes' V6), as run and as it should be."""

from fedshot.local.at_server import ServerTraining
from fedshot.method import Method
from fedshot.methods.bank import PublicBank, Stages, against_bank


def two_stage_bank(
    bank: PublicBank = PublicBank(same_class="repel", augmented=False),
    teacher: ServerTraining = ServerTraining(),
    stages: Stages = Stages(first=1, round=5),
) -> Method:
    """One epoch in five repels features from the whole bank and does nothing else: the form that was run."""
    return against_bank("two_stage_bank", bank, teacher, stages)


def two_stage_bank_sound(
    bank: PublicBank = PublicBank(same_class="attract", augmented=True),
    teacher: ServerTraining = ServerTraining(cosine=True),
    stages: Stages = Stages(first=3),
) -> Method:
    """A few epochs of attraction to the public features of the own class at the start, then the full loss."""
    return against_bank("two_stage_bank_sound", bank, teacher, stages)
