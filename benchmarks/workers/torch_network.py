"""PyTorch: torch.nn on a CPU or a GPU, there without TF32; sequences with lengths are packed."""

import time

import numpy as np
import torch
from problem import array_names, joined

DTYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
_PARAMETERS = {"w": "weight_ih", "r": "weight_hh", "bw": "bias_ih", "br": "bias_hh"}


def start(options):
    """Sets the number of threads, disables TF32; returns the versions and, with CUDA, the GPU."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    versions = {"torch": torch.__version__}
    if options["threads"]:
        torch.set_num_threads(options["threads"])
        torch.set_num_interop_threads(1)
    if options["device"] == "cuda":
        versions["cuda_of_torch"] = torch.version.cuda
        versions["cudnn_of_torch"] = torch.backends.cudnn.version()
        versions["capability"] = "%d.%d" % torch.cuda.get_device_capability()
        versions["gpu"] = torch.cuda.get_device_name()
    return versions


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    a, b, product = (torch.ones(size, size, dtype=DTYPES[options["dtype"]]) for _ in range(3))
    return torch.inference_mode()(lambda: torch.mm(a, b, out=product))


# The approximate clock rate of a GPU.
_CYCLES_PER_SECOND = 2e9
# A host fills the queue of a stream, about a thousand kernels, in less time.
_LONGEST_LAUNCH_SECONDS = 0.05


def time_on_gpu(step, num_steps):
    """Returns the seconds of all steps: wall-clock time, and on the device.

    The device's time is that of one step, times `num_steps`. The step is queued behind a kernel
    that runs for longer than its launches take, so the device does not wait for the host between
    its kernels, unless they are more than the queue holds.
    """
    torch.cuda.synchronize()
    start_time = time.perf_counter()
    for _ in range(num_steps):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start_time
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    ahead = min(1.5 * seconds / num_steps + 1e-3, _LONGEST_LAUNCH_SECONDS)
    torch.cuda._sleep(int(ahead * _CYCLES_PER_SECOND))
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return seconds, begin.elapsed_time(end) / 1000 * num_steps


def launch_on_gpu(step):
    """Launches a step behind a kernel of about 0.1 s; returns the seconds of launch and until done.

    A step that waits for the device is not launched before that kernel ends. Returns the fastest of
    three: a virtual machine's host may take twice as long for the next one.
    """
    step()
    found = []
    for _ in range(3):
        torch.cuda.synchronize()
        torch.cuda._sleep(int(0.1 * _CYCLES_PER_SECOND))
        start_time = time.perf_counter()
        step()
        launched = time.perf_counter() - start_time
        torch.cuda.synchronize()
        found.append((launched, time.perf_counter() - start_time))
    return min(found)


def kernels_on_gpu(step):
    """Returns a dict from the names of a step's kernels and copies to [count, microseconds]."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    found = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            entry = found.setdefault(event.name[:200], [0, 0.0])
            entry[0] += 1
            entry[1] += event.time_range.elapsed_us()
    return found


def to_tensor(array, configuration, options):
    """Returns an array as an aligned tensor on the device, in the configuration's dtype."""
    return torch.from_numpy(array).to(options["device"], DTYPES[configuration.dtype], copy=True)


def make_tensors(configuration, problem, options):
    """Returns inputs, outputs, params and, under the name with "_backprop", a gradient of each."""
    names = array_names("input", configuration) + array_names("output", configuration) + ["params"]
    values = problem.inputs + problem.backprops + [joined(problem.weights)]
    tensors = {name: to_tensor(one, configuration, options) for name, one in zip(names, values)}
    tensors.update({name + "_backprop": value.clone() for name, value in tensors.items()})
    return tensors


def make_bytes(size, options):
    """Returns a buffer on the device, which is not empty."""
    return torch.zeros(max(1, size), dtype=torch.uint8, device=options["device"])


class Network:
    """A module with the problem's weights and inputs."""

    def __init__(self, configuration, problem, options):
        self._steps, mode = configuration.steps, configuration.rnn_mode
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
        modes = {"bidirectional": configuration.num_directions == 2}
        if kind is torch.nn.RNN:
            modes["nonlinearity"] = mode[len("rnn_") :]
        sizes = (configuration.input_size, configuration.num_units, configuration.num_layers)
        self._module = kind(*sizes, **modes).to(options["device"], DTYPES[configuration.dtype])
        self._module.train(configuration.is_training)
        parameters = []  # PyTorch uses cuDNN's gate order.
        for name, value in problem.weights.items():
            part, layer, direction = name.split("_")
            theirs = "%s_l%s%s" % (_PARAMETERS[part], layer, "_reverse" * int(direction))
            parameters.append(getattr(self._module, theirs))
            parameters[-1].data.copy_(to_tensor(value, configuration, options))
        inputs, self._backprops = [
            [to_tensor(array, configuration, options) for array in arrays]
            for arrays in (problem.inputs, problem.backprops)
        ]
        x, *self._states = inputs
        self._lengths = torch.tensor(configuration.lengths) if configuration.has_lengths else None
        if configuration.is_training:
            for leaf in inputs:
                leaf.requires_grad_()
        self._leaves = inputs + parameters
        self._inputs = x.split(1) if configuration.is_decode else [x]
        self.step = self._train if configuration.is_training else self._infer

    def _forward(self, x, states):
        """Returns the output and the final states."""
        if self._lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, self._lengths, enforce_sorted=False)
        output, last = self._module(x, tuple(states) if len(states) == 2 else states[0])
        if self._lengths is not None:
            output, _ = torch.nn.utils.rnn.pad_packed_sequence(output, total_length=self._steps)
        return [output] + list(last if isinstance(last, tuple) else (last,))

    def _train(self):
        results = self._forward(self._inputs[0], self._states)
        return results + list(torch.autograd.grad(results, self._leaves, self._backprops))

    def _infer(self):
        """Runs once or, in a decode loop, for each step; returns the output and final states."""
        states, outputs = self._states, []
        with torch.inference_mode():
            for x in self._inputs:
                output, *states = self._forward(x, states)
                outputs.append(output)
        return [outputs] + states

    def results(self):
        """Returns the results."""
        output, *others = self.step()
        output = torch.cat(output) if isinstance(output, list) else output
        return [np.array(value.detach().cpu().float()) for value in [output] + others]
