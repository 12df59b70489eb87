"""FAFI's clients, distilled into one deployable model: the note's differentiated aggregation."""

from dataclasses import replace

from fedshot.fusion import distilled as distilled_rule
from fedshot.fusion.distil import Beside, Count, Images, Start
from fedshot.local.at_server import ServerTraining
from fedshot.method import Method
from fedshot.methods.fafi import fafi
from fedshot.options import AboveZero, NotNegative, options_of
from fedshot.spec import Positive


def distilled(
    teacher: str = "features",
    images: Images = "public",
    count: Count = 2000,
    views: Positive = 4,
    temperature: AboveZero = 1.0,
    calibrate: NotNegative = 0.0,
    alignment: NotNegative = 0.0,
    beside: Beside = "nothing",
    start: Start = "average",
    mirrored: bool = True,
    student: ServerTraining = ServerTraining(passes=10, cosine=True),
) -> Method:
    """FAFI, its ensemble distilled into one model on public images, on noise, or on images drawn from statistics."""
    rule = distilled_rule(
        teacher, images, count, views, temperature, calibrate, alignment, beside, start, mirrored, student
    )
    return replace(fafi(), name="distilled", fusion=rule, of_rule=tuple(options_of(distilled_rule)))
