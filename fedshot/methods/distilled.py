"""FAFI's clients, distilled into one deployable model: the note's differentiated aggregation."""

from dataclasses import replace

from fedshot.fusion import distilled as distilled_rule
from fedshot.fusion.distil import Images
from fedshot.method import Method
from fedshot.methods.fafi import fafi
from fedshot.options import NotNegative


def distilled(
    teacher: str = "features", images: Images = "public", calibrate: NotNegative = 0.0, alignment: NotNegative = 0.0
) -> Method:
    """FAFI, its ensemble distilled into one model on public images, on noise, or on images drawn from statistics."""
    rule = distilled_rule(teacher, images, calibrate=calibrate, alignment=alignment)
    return replace(fafi(), name="distilled", fusion=rule)
