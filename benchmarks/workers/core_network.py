"""Ours: the core library through ctypes, without TensorFlow.

All buffers and call arguments are created once, as in a framework's executor. A step is one foreign
call, or two in training. $CUDNN_RNN_CORE_LIBRARY names the library.
"""

import ctypes
import os
import sys

import torch
from problem import Refused, backprops, input_names, joined_params, output_names
from torch_network import DTYPES, start, time_on_gpu, to_tensor  # noqa: F401  (start: worker.py)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "gpu"))

import core_library  # noqa: E402


class Network:
    """A model of the core library; `variant` is the algorithm that the library chose."""

    def __init__(self, configuration, arrays, options):
        self._configuration = configuration
        on_gpu = options["device"] == "cuda"
        if on_gpu:
            self.time_steps = time_on_gpu
        self._library = core_library.CoreLibrary()
        try:
            if on_gpu:
                torch.backends.cudnn.version()  # loads PyTorch's cuDNN
                self._library.open_gpu()
            description = core_library.Description(
                configuration.rnn_mode,
                configuration.num_layers,
                configuration.num_units,
                configuration.input_size,
                DTYPES[configuration.dtype],
                direction=configuration.direction,
            )
            device = torch.device(options["device"])
            self._model = core_library.Model(self._library, description, device)
            self._call = self._model.make_call(
                configuration.steps,
                configuration.batch,
                is_training=configuration.is_training,
                keeps_reserve_space=False,
            )
            sizes = self._model.prepare(self._call)
        except core_library.CoreError as error:
            raise Refused(str(error))
        self.variant = core_library.ALGORITHMS[sizes.algorithm] if on_gpu else "cpu"
        values = {name: arrays[name] for name in input_names(configuration)}
        values["params"] = joined_params(configuration, arrays)
        names = output_names(configuration)
        values.update(zip(names, backprops(configuration, arrays)))
        tensors = {name: to_tensor(value, configuration, options) for name, value in values.items()}
        for name in list(tensors):
            tensors[name + "_backprop"] = tensors[name].clone()
        workspace_bytes = max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes)
        for name, size in [
            ("reserve_space", sizes.reserve_space_bytes),
            ("workspace", workspace_bytes),
        ]:
            tensors[name] = torch.zeros(max(1, size), dtype=torch.uint8, device=device)
        self._tensors = tensors
        self._buffers = core_library.ForwardBuffers(), core_library.BackwardBuffers()
        for buffers in self._buffers:
            for name, _ in buffers._fields_:
                if name in tensors:
                    setattr(buffers, name, tensors[name].data_ptr())
            buffers.reserve_space_bytes = sizes.reserve_space_bytes
            buffers.workspace_bytes = workspace_bytes
        self.step = self._make_step()

    def _make_step(self):
        """Returns a function without arguments that runs one step."""
        library, handle, call = self._library, self._model._handle, ctypes.byref(self._call)
        forward, backward = [ctypes.byref(buffers) for buffers in self._buffers]
        functions, is_training = library.functions, self._configuration.is_training

        def step():
            library.check(functions.cudnn_rnn_forward(handle, call, forward))
            if is_training:
                library.check(functions.cudnn_rnn_backward(handle, call, backward))

        return step

    def close(self):
        """Frees the model and the memory."""
        self._model.close()
        self._tensors.clear()
