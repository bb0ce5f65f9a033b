"""PyTorch: torch.nn on a CPU or a GPU, there without TF32; sequences with lengths are packed."""

import time

import numpy as np
import torch
from problem import backprops, input_names, output_names

DTYPES = {"float": torch.float32, "half": torch.float16}


def start(options):
    """Sets the number of threads; returns the versions and, with CUDA, the GPU."""
    versions = {"torch": torch.__version__}
    if options["threads"]:
        torch.set_num_threads(options["threads"])
        torch.set_num_interop_threads(1)
    if options["device"] == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        versions["cuda_of_torch"] = torch.version.cuda
        versions["cudnn_of_torch"] = torch.backends.cudnn.version()
        versions["capability"] = "%d.%d" % torch.cuda.get_device_capability()
        versions["gpu"] = torch.cuda.get_device_name()
    return versions


def matrix_product(size, options):
    """Returns a function that multiplies two matrices."""
    a, b, product = (torch.ones(size, size) for _ in range(3))
    return torch.inference_mode()(lambda: torch.mm(a, b, out=product))


def time_on_gpu(step, num_steps):
    """Measures wall-clock time, and device time between two events, which includes gaps."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start_time = time.perf_counter()
    begin.record()
    for _ in range(num_steps):
        step()
    end.record()
    torch.cuda.synchronize()
    return time.perf_counter() - start_time, begin.elapsed_time(end) / 1000


def to_tensor(array, configuration, options):
    """Returns an array as a tensor on the device, in the configuration's dtype."""
    return torch.from_numpy(array).to(options["device"], DTYPES[configuration.dtype])


class Network:
    """A module with the problem's weights and inputs."""

    def __init__(self, configuration, arrays, options):
        self._configuration = configuration
        if options["device"] == "cuda":
            self.time_steps = time_on_gpu
        mode = configuration.rnn_mode
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
        modes = {"bidirectional": configuration.num_directions == 2}
        if kind is torch.nn.RNN:
            modes["nonlinearity"] = mode[len("rnn_") :]
        sizes = (configuration.input_size, configuration.num_units, configuration.num_layers)
        self._module = kind(*sizes, **modes).to(options["device"], DTYPES[configuration.dtype])
        self._module.train(configuration.is_training)

        def tensor(name):
            return to_tensor(arrays[name], configuration, options)

        # PyTorch uses cuDNN's gate order.
        names = {"w": "weight_ih", "r": "weight_hh", "bw": "bias_ih", "br": "bias_hh"}
        self._parameters = {}
        for layer, direction in configuration.stacks:
            for ours, theirs in names.items():
                theirs += "_l%d%s" % (layer, "_reverse" if direction else "")
                ours += "_%d_%d" % (layer, direction)
                self._parameters[ours] = getattr(self._module, theirs)
                self._parameters[ours].data.copy_(tensor(ours))
        self._x, *self._states = inputs = [tensor(name) for name in input_names(configuration)]
        self._backprops = [
            to_tensor(array, configuration, options) for array in backprops(configuration, arrays)
        ]
        lengths = configuration.lengths
        self._lengths = None if lengths is None else torch.tensor(lengths)
        if configuration.is_training:
            for leaf in inputs:
                leaf.requires_grad_()
        self._leaves = inputs + list(self._parameters.values())
        self._inputs = self._x.split(1) if configuration.is_decode else None
        kinds = {"inference": self._infer, "training": self._train}
        self.step = self._decode if configuration.is_decode else kinds[configuration.kind]

    def _forward(self, x, states):
        """Returns the output and the final states."""
        if self._lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, self._lengths, enforce_sorted=False)
        output, last = self._module(x, tuple(states) if len(states) == 2 else states[0])
        if self._lengths is not None:
            output, _ = torch.nn.utils.rnn.pad_packed_sequence(
                output, total_length=self._configuration.steps
            )
        return [output] + list(last if isinstance(last, tuple) else (last,))

    def _infer(self):
        with torch.inference_mode():
            return self._forward(self._x, self._states)

    def _train(self):
        results = self._forward(self._x, self._states)
        return results + list(torch.autograd.grad(results, self._leaves, self._backprops))

    def _decode(self, keep=lambda output: None):
        states = self._states
        with torch.inference_mode():
            for x in self._inputs:
                output, *states = self._forward(x, states)
                keep(output)
        return states

    def results(self):
        """Returns the results by name."""
        configuration, outputs = self._configuration, []
        if configuration.is_decode:
            states = self._decode(outputs.append)
            found = [torch.cat(outputs)] + states
        else:
            found = self.step()
        leaves = input_names(configuration) + list(self._parameters)
        names = output_names(configuration) + ["d_" + name for name in leaves]
        return {name: np.array(value.detach().cpu()) for name, value in zip(names, found)}
