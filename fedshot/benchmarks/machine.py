"""What a measurement stands on: the machine, how fast it multiplies matrices, and how much work a model is."""

import os
import platform
import time
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedshot.benchmarks.plain import wait
from fedshot.setting import Setting

FORWARD_AND_BACKWARD = 3  # a backward pass is two products for each product of the forward pass


def machine_name(device: torch.device) -> str:
    """The processor with its cores, and the GPU where it computes: machines of one name are compared."""
    processor = f"{_processor()}, {os.cpu_count()} cores"
    return f"{torch.cuda.get_device_name(device)} ({processor})" if device.type == "cuda" else processor


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def busy_cores(seconds: float = 0.5) -> float | None:
    """How many cores other work keeps busy, watched for a moment in which this process rests; None if not known."""

    def ticks() -> tuple[int, int]:
        """All and idle."""
        counts = [int(word) for word in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
        return sum(counts), counts[3] + counts[4]

    try:
        total, idle = ticks()
        time.sleep(seconds)
        later_total, later_idle = ticks()
    except (OSError, ValueError):
        return None
    share = (later_idle - idle) / max(1, later_total - total)
    return (os.cpu_count() or 1) * (1 - share)


def matrix_rate(device: torch.device, seconds: float) -> float:
    """FLOP/s of a square matrix product: bf16 on a GPU, float32 with torch's threads on a CPU. The best of five."""
    on_gpu = device.type == "cuda"
    side = 8192 if on_gpu else 1024
    one = torch.randn(side, side, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    best = 0.0
    for _ in range(5):
        one @ one
        wait(device)
        started, products = time.perf_counter(), 0
        while time.perf_counter() - started < seconds / 5:
            for _ in range(4):
                one @ one
            wait(device)
            products += 4
        best = max(best, 2 * side**3 * products / (time.perf_counter() - started))
    return best


def flops_per_image(setting: Setting) -> int:
    """FLOP of one training step for one source image: all its views, forward and backward; products alone count."""
    model = setting.method.model(setting.task).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, *setting.task.shape))
    return counter.get_total_flops() * FORWARD_AND_BACKWARD * setting.method.views.augmented
