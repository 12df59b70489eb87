"""Agreement of the predictions for two views: the gate of the gated contrastive losses."""

from torch import Tensor


def view_agreement(first: Tensor, second: Tensor) -> Tensor:
    """Probability that classes drawn from the two views' predictions are the same, without gradient.

    g = mean_i sum_c p_ic q_ic,  p = softmax(first), q = softmax(second)

    Args:
        first: logits of one view, (B, C).
        second: logits of the other view of the same images, (B, C).

    Between 0 and 1; two uniform predictions agree by 1/C.

    >>> import torch
    >>> view_agreement(torch.zeros(3, 4), torch.arange(12.0).view(3, 4))
    tensor(0.2500)
    """
    return (first.detach().softmax(dim=1) * second.detach().softmax(dim=1)).sum(dim=1).mean()
