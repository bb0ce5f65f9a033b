"""Ours: the core library through ctypes, without TensorFlow.

All buffers and call arguments are created once, as in a framework's executor. A step is one foreign
call, or two in training. $CUDNN_RNN_CORE_LIBRARY names the library.
"""

import ctypes
import os
import sys

import torch
import torch_network
from cudnn_network import LIBRARY_VARIABLE
from problem import Refused
from torch_network import (  # noqa: F401  (used by worker.py)
    kernels_on_gpu,
    launch_on_gpu,
    start,
    time_on_gpu,
)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "gpu"))

import core_library  # noqa: E402


class Network:
    """A model with the algorithm in the options; `variant` is what the library uses for it."""

    def __init__(self, configuration, problem, options):
        self._library = core_library.CoreLibrary()
        try:
            if options["device"] == "cuda":
                torch.backends.cudnn.version()  # loads PyTorch's cuDNN
                self._library.open_gpu()
            elif LIBRARY_VARIABLE in os.environ:
                self._library.open_mock(os.environ[LIBRARY_VARIABLE])
            model = configuration.num_layers, configuration.num_units, configuration.input_size
            dtype = torch_network.DTYPES[configuration.dtype]
            choices = {"direction": configuration.direction, "algorithm": options["algorithm"]}
            description = core_library.Description(configuration.rnn_mode, *model, dtype, **choices)
            self._model = core_library.Model(self._library, description, options["device"])
            shape = configuration.steps, configuration.batch
            modes = {"is_training": configuration.is_training, "keeps_reserve_space": False}
            self._call = self._model.make_call(*shape, **modes)
            sizes = self._model.prepare(self._call)
        except core_library.CoreError as error:
            raise Refused(str(error))
        on_gpu = self._library.is_on_gpu(torch.device(options["device"]))
        self.variant = core_library.ALGORITHMS[sizes.choice.algorithm] if on_gpu else "cpu"
        workspace_bytes = max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes)
        spaces = {"reserve_space": sizes.reserve_space_bytes, "workspace": workspace_bytes}
        self._tensors = torch_network.make_tensors(configuration, problem, options)
        for name, size in spaces.items():
            self._tensors[name] = torch_network.make_bytes(size, options)
        self.step = self._make_step(configuration.is_training, spaces)

    def _make_step(self, is_training, spaces):
        """Returns a function without arguments that runs one step."""
        values = {name: tensor.data_ptr() for name, tensor in self._tensors.items()}
        values.update((name + "_bytes", size) for name, size in spaces.items())
        forward, backward = [
            ctypes.byref(
                kind(**{name: values[name] for name, _ in kind._fields_ if name in values})
            )
            for kind in (core_library.ForwardBuffers, core_library.BackwardBuffers)
        ]
        library, functions = self._library, self._library.functions
        prepared, sizes = ctypes.c_void_p(), core_library.Sizes()
        arguments = self._model.arguments_of_prepare(self._call, prepared, sizes)

        def step():  # finds the plan in each call, as an op kernel does
            library.check(functions.cudnn_rnn_prepare(*arguments))
            library.check(functions.cudnn_rnn_forward(prepared, forward))
            if is_training:
                library.check(functions.cudnn_rnn_backward(prepared, backward))
            functions.cudnn_rnn_release_call(prepared)

        return step

    def close(self):
        """Frees the model and the memory."""
        self._model.close()
        self._tensors.clear()
