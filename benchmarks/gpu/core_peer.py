"""Ours: the core library through ctypes, without TensorFlow.

All buffers and call arguments are created once, as in a framework's executor. A step is one foreign
call, or two in training.
"""

import ctypes

import torch
from measuring import Unsupported
from torch_run import DTYPES, TorchRun, random_tensor, shapes

NAME = "core"


def make_runs(configuration, device):
    """Returns a dict with one run, named after the algorithm that the library chose."""
    from core_library import (
        BackwardBuffers,
        CoreError,
        CoreLibrary,
        Description,
        ForwardBuffers,
        Model,
    )

    library = CoreLibrary()
    try:
        if device.type == "cuda":
            torch.backends.cudnn.version()  # loads PyTorch's cuDNN
            library.open_gpu()
        description = Description(
            configuration.rnn_mode,
            configuration.num_layers,
            configuration.num_units,
            configuration.input_size,
            DTYPES[configuration.dtype],
            direction=configuration.direction,
        )
        model = Model(library, description, device)
        call = model.make_call(
            configuration.steps,
            configuration.batch,
            is_training=configuration.is_training,
            keeps_reserve_space=False,
        )
        sizes = model.prepare(call)
    except CoreError as error:
        raise Unsupported(str(error))

    def memory(size):
        return torch.zeros(max(1, size), dtype=torch.uint8, device=device)

    input_shape, state_shape, output_shape = shapes(configuration)
    tensors = {
        "input": random_tensor(input_shape, configuration, device),
        "params": random_tensor([sizes.params_elements], configuration, device, 0.05),
        "output": random_tensor(output_shape, configuration, device),
    }
    for name in ("input_h", "input_c", "output_h", "output_c"):
        tensors[name] = random_tensor(state_shape, configuration, device)
    for name in list(tensors):
        tensors[name + "_backprop"] = torch.randn_like(tensors[name])
    tensors["reserve_space"] = memory(sizes.reserve_space_bytes)
    workspace_bytes = max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes)
    tensors["workspace"] = memory(workspace_bytes)
    forward_buffers, backward_buffers = ForwardBuffers(), BackwardBuffers()
    for buffers in (forward_buffers, backward_buffers):
        for name, _ in buffers._fields_:
            if name in tensors:
                setattr(buffers, name, tensors[name].data_ptr())
    for buffers in (forward_buffers, backward_buffers):
        buffers.reserve_space_bytes = sizes.reserve_space_bytes
        buffers.workspace_bytes = workspace_bytes
    functions, handle = library.functions, model._handle
    call_pointer = ctypes.byref(call)
    forward_pointer = ctypes.byref(forward_buffers)
    backward_pointer = ctypes.byref(backward_buffers)

    def step():
        library.check(functions.cudnn_rnn_forward(handle, call_pointer, forward_pointer))
        if configuration.is_training:
            library.check(functions.cudnn_rnn_backward(handle, call_pointer, backward_pointer))

    def close():
        model.close()
        tensors.clear()

    from core_library import ALGORITHMS

    variant = ALGORITHMS[sizes.algorithm] if device.type == "cuda" else "cpu"
    return {variant: TorchRun(step, device, close)}
