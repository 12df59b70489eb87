"""Copies of models, quickly: there can be thousands of them."""

import copy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def copy_of(module: Module) -> Module:
    """A module of the same build and content that shares no parameter or buffer with the original.

    What is neither, such as a constant, is shared. `copy.deepcopy` takes several times as long for a small network.
    """
    made = copy.copy(module)
    made.__dict__.update({name: value.copy() for name, value in vars(module).items() if isinstance(value, dict)})
    for name, parameter in module._parameters.items():
        if parameter is not None:
            made._parameters[name] = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            made._buffers[name] = buffer.clone()
    for name, child in module._modules.items():
        if child is not None:
            made._modules[name] = copy_of(child)
    return made


def frozen_copy(model: Module) -> Module:
    """A copy in evaluation mode that cannot be trained."""
    return copy_of(model).eval().requires_grad_(False)


def frozen(model: Module) -> Module:
    """The model itself if it is in evaluation mode and cannot be trained, else a copy that is and cannot."""
    live = model.training or any(parameter.requires_grad for parameter in model.parameters())
    return frozen_copy(model) if live else model
