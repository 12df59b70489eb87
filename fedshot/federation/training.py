"""What a training process does: trains one job of a client, and writes the upload exactly as it leaves."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from fedshot.federation.holdings import client_setting
from fedshot.federation.order import read_order
from fedshot.federation.site import JobFolder, Site
from fedshot.local.checkpoint import read_story
from fedshot.local.train import Bench
from fedshot.local.work import client_work, one_thread
from fedshot.setting import Setting
from fedshot.store import write_atomic
from fedshot.upload import parse

_COPIES = 6  # of a model that a job may have on disk: upload, what leaves, and a checkpoint written anew, with momentum


def work(site: Site, job: JobFolder, beat: Callable[[int], None] = lambda epoch: None) -> None:
    """Trains the job and writes the upload as it leaves; `beat(epochs that are done)` is called at every step."""
    settings, order = site.read(), read_order(job.order.read_bytes())
    if job.finished(settings.number) is None:
        setting, before = client_setting(settings, order), read_story(job.checkpoint(settings.number))
        done = before.epoch if before else 0
        _check_room(job, setting)

        def tell(epoch: int) -> None:
            nonlocal done
            done = epoch

        beat(done)
        with one_thread(setting.device), _stream(setting.device):
            for moved in client_work(setting, settings.number, job, tell, Bench(), settings.checkpoint_seconds):
                if moved:
                    beat(done)
                else:
                    time.sleep(2e-5)  # it waits for the device
    uploaded = job.upload(settings.number)
    if uploaded.exists() and not job.outgoing.exists():
        write_atomic(job.outgoing, parse(uploaded.read_bytes()).only(order.sections).to_bytes())


def _check_room(job: JobFolder, setting: Setting) -> None:
    """Refuses to train what could not be written afterwards."""
    needed = _COPIES * sum(tensor.nbytes for tensor in setting.initial_model.state_dict().values())
    free = shutil.disk_usage(job.path).free
    if free < needed:
        words = f"{os.strerror(errno.ENOSPC)}: {free:,} bytes are free, the job needs up to {needed:,}"
        raise OSError(errno.ENOSPC, words, str(job.path))


def _stream(device: torch.device) -> AbstractContextManager[object]:
    """A stream of the GPU's own, which captured steps need."""
    if device.type != "cuda":
        return nullcontext()
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)
