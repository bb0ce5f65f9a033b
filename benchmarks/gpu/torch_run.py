"""Measures steps that this process queues on PyTorch's current stream, or runs on the host."""

import time

import torch
from measuring import Sample

DTYPES = {"float": torch.float32, "half": torch.float16}


class TorchRun:
    """Measures `step`, a function without arguments, with CUDA events and with the clock."""

    def __init__(self, step, device, close=None):
        self._step, self._on_gpu, self._close = step, device.type == "cuda", close

    def run(self, num_steps):
        """Returns a `Sample`; device time is between two events and includes gaps."""
        if not self._on_gpu:
            start = time.perf_counter()
            for _ in range(num_steps):
                self._step()
            return Sample(None, (time.perf_counter() - start) / num_steps)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start = time.perf_counter()
        begin.record()
        for _ in range(num_steps):
            self._step()
        end.record()
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
        return Sample(begin.elapsed_time(end) / 1000 / num_steps, wall / num_steps)

    def close(self):
        """Frees the run's resources."""
        if self._close is not None:
            self._close()
        self._step = None


def random_tensor(shape, configuration, device, scale=1.0):
    """Returns normally distributed numbers times `scale`, in the configuration's dtype."""
    tensor = torch.randn(shape, device=device, dtype=torch.float32) * scale
    return tensor.to(DTYPES[configuration.dtype])


def shapes(configuration):
    """Returns the shapes of input, states and output."""
    directions = 2 if configuration.direction == "bidirectional" else 1
    batch, steps, units = configuration.batch, configuration.steps, configuration.num_units
    return (
        (steps, batch, configuration.input_size),
        (configuration.num_layers * directions, batch, units),
        (steps, batch, directions * units),
    )
