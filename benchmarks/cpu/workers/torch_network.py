"""PyTorch: torch.nn on a CPU; sequences with lengths are packed."""

import os

import numpy as np
import torch
from problem import stacks


def start(threads):
    """Sets the number of threads; returns the versions."""
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    return {"torch": torch.__version__, "python": os.sys.version.split()[0]}


def matrix_product(size):
    """Returns a function that multiplies two matrices."""
    a, b, product = (torch.ones(size, size) for _ in range(3))

    def multiply():
        with torch.inference_mode():
            torch.mm(a, b, out=product)

    return multiply


class Network:
    """A module with the problem's weights and inputs."""

    def __init__(self, configuration, arrays, threads):
        self._configuration = configuration
        mode = configuration.rnn_mode
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
        options = {"bidirectional": configuration.num_directions == 2}
        if kind is torch.nn.RNN:
            options["nonlinearity"] = mode[len("rnn_") :]
        self._module = kind(
            configuration.input_size,
            configuration.num_units,
            configuration.num_layers,
            **options,
        )
        self._module.train(configuration.is_training)
        # PyTorch uses cuDNN's gate order.
        self._names = {}
        for layer, direction in stacks(configuration):
            ours = "_%d_%d" % (layer, direction)
            theirs = "_l%d%s" % (layer, "_reverse" if direction else "")
            for name, kind in [
                ("w", "weight_ih"),
                ("r", "weight_hh"),
                ("bw", "bias_ih"),
                ("br", "bias_hh"),
            ]:
                getattr(self._module, kind + theirs).data.copy_(
                    torch.from_numpy(arrays[name + ours])
                )
                self._names[name + ours] = kind + theirs
        names = ["h", "c"] if configuration.has_cell_state else ["h"]
        self._x = torch.from_numpy(arrays["input"])
        self._states = [torch.from_numpy(arrays["input_" + name]) for name in names]
        backprops = ["output"] + ["output_" + name for name in names]
        self._backprops = [torch.from_numpy(arrays[name + "_backprop"]) for name in backprops]
        self._state_names = names
        lengths = configuration.lengths
        self._lengths = None if lengths is None else torch.tensor(lengths)
        if configuration.is_training:
            for tensor in [self._x] + self._states:
                tensor.requires_grad_()
        self._leaves = [self._x] + self._states
        self._leaves += [getattr(self._module, name) for name in self._names.values()]
        if configuration.is_decode:
            self._inputs = list(self._x.split(1))
            self.step = self._decode
        else:
            self.step = self._train if configuration.is_training else self._infer

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
        return results, torch.autograd.grad(results, self._leaves, self._backprops)

    def _decode(self, keep=lambda output: None):
        with torch.inference_mode():
            states = self._states
            for x in self._inputs:
                output, *states = self._forward(x, states)
                keep(output)
        return states

    def results(self):
        """Returns the results by name."""
        if self._configuration.is_decode:
            outputs = []
            states = self._decode(outputs.append)
            results, gradients = [torch.cat(outputs)] + list(states), []
        elif self._configuration.is_training:
            results, gradients = self._train()
        else:
            results, gradients = self._infer(), []
        names = ["output"] + ["output_" + name for name in self._state_names]
        found = dict(zip(names, results))
        leaves = ["input"] + ["input_" + name for name in self._state_names] + list(self._names)
        found.update(("d_" + name, gradient) for name, gradient in zip(leaves, gradients))
        return {name: np.array(tensor.detach()) for name, tensor in found.items()}
