"""What of a run cannot be had with withheld counts or under differential privacy, told before anything is made."""

from fedshot.errors import UserError
from fedshot.fusion import Fusion
from fedshot.method import Client, Method
from fedshot.privacy.counts import check_counts, told_counts
from fedshot.privacy.separable import check_separable, objective_without_data
from fedshot.spec import Spec


def check_privacy(spec: Spec, method: Method, fusion: Fusion) -> None:
    """Refuses settings that would leave less privacy than they say."""
    check_counts(spec, fusion, method.phases)
    if spec.dp_noise is None:
        given = [name for name in ("dp_clip", "dp_delta") if getattr(spec, name) != Spec.model_fields[name].default]
        if given:
            raise UserError(f"{given[0]} does nothing without noise: add --set dp_noise=1")
        if spec.noise_source == "system" and not spec.counts.startswith("noised"):
            raise UserError("noise_source does nothing without noise: add --set dp_noise=1 or --set counts=noised:1")
        return
    opacus_version()
    if spec.norm != "group":
        raise UserError(
            "dp_noise: BatchNorm mixes the images of a batch, so that no image has a gradient of its own: add "
            "--set norm=group"
        )
    if spec.counts == "exact":
        raise UserError(
            "dp_noise: exact class counts would leave without noise: add --set counts=withheld, or counts=noised:1, "
            "whose ε is added"
        )
    if sections := [name for name in fusion.needs if name != "weights"]:
        raise UserError(
            f"dp_noise: fusion {fusion.name} needs the section {sections[0]}, statistics of images without noise, "
            "which would break the guarantee: choose a rule that reads weights alone, e.g. --fusion logits"
        )
    if fusion.held_out:
        raise UserError(
            f"dp_noise: fusion {fusion.name} needs the accuracy on held-out images, which would leave without noise: "
            "choose another rule, e.g. --fusion logits"
        )
    if method.views.balanced:
        raise UserError(
            f"dp_noise: {spec.method} shows classes equally often, but the guarantee needs every image to be drawn "
            "with the same probability: choose another method, e.g. fedavg, or its form without balanced sampling"
        )
    if spec.draws == "batch":
        raise UserError("dp_noise: every image is drawn for itself, and so are its views: leave --set draws=batch out")
    if spec.precision == "bf16":
        raise UserError("dp_noise: gradients of single images are computed in fp32: add --set precision=fp32")


def check_objective(method: Method, client: Client, spec: Spec) -> None:
    """Makes the objective of a client, so that a wrong option is told; under noise it must be a mean over images."""
    if spec.dp_noise is None:
        method.objective(client)
    else:
        check_separable(method, client, objective_without_data(method, client, told_counts(client, spec)[0]))


def opacus_version() -> str:
    """The version of opacus; says what to install where it is missing."""
    try:
        from opacus import __version__
    except ImportError:
        raise UserError("dp_noise needs opacus: pip install 'fedshot[dp]'") from None
    return __version__
