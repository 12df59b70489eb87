"""What every part of a message tells about a client's data, in plain words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tells:
    """What a section of an upload says about the images of whoever sends it.

    `counts` is what it shows of the client's class counts, for sure and not by inference; empty if nothing.
    """

    words: str
    counts: str = ""


SECTIONS: dict[str, Tells] = {
    "weights": Tells(
        "the trained model. It answers a little more surely on images that it was trained on, and its head leans to "
        "the classes that were many; `fedshot audit` measures the first"
    ),
    "moments": Tells("mean and deviation of the features of all training images together"),
    "class_means": Tells(
        "the mean feature of each class; of a class with one image it is that image's feature",
        "which classes are held (the others are zeros)",
    ),
    "class_confidence": Tells(
        "how sure the model is of each class on the client's own images",
        "which classes are held (the others are zeros)",
    ),
    "familiarity": Tells(
        "mean features of classes, their covariance, and how far each held-out image lies from them",
        "which classes are held, and how many images were held out",
    ),
    "turned_familiarity": Tells(
        "mean features of classes in every turn of their images, their covariance, and how far these are apart",
        "which classes are held (the others are zeros)",
    ),
    "reliability": Tells("how sure the model may be of itself and how often it errs, from images that were held out"),
    "common": Tells(
        "mean of fixed features of each class, and their covariance: of a class with one image that image's features",
        "which classes are held (the others are zeros)",
    ),
    "class_pixels": Tells(
        "a coarse mean picture of each class of five images or more, and how much pixels deviate from it",
        "which classes are held by five images or more",
    ),
}

_UNKNOWN = Tells("made by a method of your own: read its code", "not known: a section of your own may tell anything")

HEADER: dict[str, str] = {
    "client": "the client's number",
    "samples": "how many images it trained on",
    "class_counts": "how many of them are of each class",
    "method": "the name of the method",
    "precision": "how the weights travel",
    "validation_accuracy": "the share of its held-out images that the model recognises; nothing if it held none back",
    "fedshot": "the version of the library",
    "counts": "whether class counts are exact, withheld or noised; left out where they are exact",
}

SUMMARY: dict[str, str] = {
    "id": "the client's number",
    "samples": "how many images it trained on",
    "validation_samples": "how many it held back",
    "seconds": "how long it worked",
    "peak_memory_bytes": "how much memory that took",
    "not_captured": "a remark on its GPU",
    "skipped": "why there is no upload",
    "spent": "the privacy that training under noise has cost",
}

TELEMETRY = "losses, gradient norms and λ of each epoch: means over all training images; none of them under dp_noise"


def tells(section: str) -> Tells:
    """What a section tells; for one that is not ours, that nobody knows."""
    return SECTIONS.get(section, _UNKNOWN)
