"""Features of public images as further negatives of FAFI's contrast (the notes' V5), as run and as it should be."""

from fedshot.local.at_server import ServerTraining
from fedshot.method import Method
from fedshot.methods.bank import PublicBank, against_bank


def public_bank(
    bank: PublicBank = PublicBank(same_class="repel", augmented=False), teacher: ServerTraining = ServerTraining()
) -> Method:
    """FAFI with a bank of public features as negatives, those of an image's own class too: the form that was run."""
    return against_bank("public_bank", bank, teacher)


def public_bank_sound(
    bank: PublicBank = PublicBank(same_class="attract", augmented=True),
    teacher: ServerTraining = ServerTraining(cosine=True),
) -> Method:
    """FAFI with a bank of public features: those of an image's own class attract it, all others repel it."""
    return against_bank("public_bank_sound", bank, teacher)
