"""Bare cuDNN: only its RNN calls, through ctypes, with the algorithm that the options name.

The fastest algorithm is the reference that ours is compared with. Time-major, all sequences full,
no padding, double biases; float without TF32 (FMA), half on tensor cores with accumulation in
float. $CUDNN_RNN_BENCHMARK_CUDNN names the library; the default is PyTorch's.
"""

import ctypes
import os

import torch
import torch_network
from problem import Refused
from torch_network import (  # noqa: F401  (used by worker.py)
    kernels_on_gpu,
    launch_on_gpu,
    start,
    time_on_gpu,
)

LIBRARY_VARIABLE = "CUDNN_RNN_BENCHMARK_CUDNN"

# Values of cuDNN's enumerations, as in cudnn_rnn/cc/cudnn/cudnn_types.h.
ALGORITHMS = ["standard", "persist_static", "persist_dynamic", "persist_static_small_h"]
_MODES = ["rnn_relu", "rnn_tanh", "lstm", "gru"]
_DATA_TYPES = {"float": 0, "half": 2}
_TENSOR_OP_MATH, _FMA_MATH = 1, 3
_DOUBLE_BIAS = 2
_LINEAR_INPUT = 0
_TIME_MAJOR_PACKED = 1
_ADD_GRADIENT = 0


def _load_cudnn():
    """Returns the library."""
    path = os.environ.get(LIBRARY_VARIABLE)
    if not path:
        torch.backends.cudnn.version()  # loads PyTorch's cuDNN
    problems = []
    for name in [path] if path else ["libcudnn.so.9", "libcudnn.so.8"]:
        try:
            library = ctypes.CDLL(name)
            library.cudnnGetErrorString.restype = ctypes.c_char_p
            return library
        except OSError as error:
            problems.append(str(error))
    raise Refused("no cuDNN: " + "; ".join(problems))


class Network:
    """Descriptors, memory and calls of one configuration with one algorithm."""

    def __init__(self, configuration, problem, options):
        self._on_gpu = options["device"] == "cuda"
        if not self._on_gpu and LIBRARY_VARIABLE not in os.environ:
            raise Refused("cuDNN does not run on a CPU")
        self.variant = options["algorithm"]
        self._cudnn, self._configuration = _load_cudnn(), configuration
        if not self._on_gpu:  # the mock of cuDNN and the driver
            self._cudnn.cuInit(0)
            self._cudnn.mock_set_any_memory(1)
            self._cudnn.mock_set_thread_device(0)
        self._created = []  # pairs of kind and object, in order of creation
        self._data_type = _DATA_TYPES[configuration.dtype]
        self._handle = self._create("")
        stream = torch.cuda.current_stream().cuda_stream if self._on_gpu else None
        self._call("SetStream", self._handle, ctypes.c_void_p(stream))
        self._describe_model(ALGORITHMS.index(self.variant))
        self._data = [
            self._describe_data(configuration.input_size),
            self._describe_data(configuration.num_units * configuration.num_directions),
        ]
        self.tensors = torch_network.make_tensors(configuration, problem, options)
        self.step = self._make_step(options)
        self.step()
        if self._on_gpu:
            torch.cuda.synchronize()

    def _call(self, name, *arguments):
        """Calls cudnn<name>; raises `Refused` with the call and cuDNN's message if it fails."""
        status = getattr(self._cudnn, "cudnn" + name)(*arguments)
        if status != 0:
            text = self._cudnn.cudnnGetErrorString(status).decode()
            raise Refused("cudnn%s: %s" % (name, text))

    def _create(self, kind):
        """Returns a new object from cudnnCreate<kind>, as a c_void_p."""
        created = ctypes.c_void_p()
        self._call("Create" + kind, ctypes.byref(created))
        self._created.append((kind, created))
        return created

    def _describe_model(self, algorithm):
        configuration = self._configuration
        dropout = self._create("DropoutDescriptor")
        no_states = (None, ctypes.c_size_t(0), ctypes.c_ulonglong(0))
        no_dropout = ctypes.c_float(0.0)
        self._call("SetDropoutDescriptor", dropout, self._handle, no_dropout, *no_states)
        self._rnn = self._create("RNNDescriptor")
        mode, direction = _MODES.index(configuration.rnn_mode), configuration.num_directions - 1
        cell = (algorithm, mode, _DOUBLE_BIAS, direction, _LINEAR_INPUT)
        math = _FMA_MATH if configuration.dtype == "float" else _TENSOR_OP_MATH
        # The second num_units is the width of a projection: none.
        sizes = (configuration.input_size, configuration.num_units, configuration.num_units)
        types = (self._data_type, _DATA_TYPES["float"], math)
        layers = (configuration.num_layers, dropout, 0)
        self._call("SetRNNDescriptor_v8", self._rnn, *cell, *types, *sizes, *layers)
        if self.variant == "persist_dynamic":
            self._call("BuildRNNDynamic", self._handle, self._rnn, configuration.batch)

    def _describe_data(self, width):
        """Returns the descriptor of sequences `[T, B, width]`."""
        steps, batch = self._configuration.steps, self._configuration.batch
        lengths = (ctypes.c_int * batch)(*[steps] * batch)
        data = self._create("RNNDataDescriptor")
        shape = (_TIME_MAJOR_PACKED, steps, batch, width)
        self._call("SetRNNDataDescriptor", data, self._data_type, *shape, lengths, None)
        return data

    def _describe_states(self):
        """Returns the descriptor of states `[L * D, B, H]`."""
        configuration, three = self._configuration, ctypes.c_int * 3
        batch, units = configuration.batch, configuration.num_units
        shape = three(len(configuration.stacks), batch, units)
        strides = three(batch * units, units, 1)
        states = self._create("TensorDescriptor")
        self._call("SetTensorNdDescriptor", states, self._data_type, 3, shape, strides)
        return states

    def _make_weights_and_spaces(self, options):
        """Returns the arguments for the weights, their gradient, and the workspace and reserve."""
        rnn, tensors = (self._handle, self._rnn), self.tensors
        workspace, reserve, weights = [ctypes.c_size_t() for _ in range(3)]
        is_training = int(self._configuration.is_training)
        sizes = (ctypes.byref(workspace), ctypes.byref(reserve))
        self._call("GetRNNTempSpaceSizes", *rnn, is_training, self._data[0], *sizes)
        self._call("GetRNNWeightSpaceSize", *rnn, ctypes.byref(weights))
        for name in ("params", "params_backprop"):
            space = torch_network.make_bytes(weights.value, options).view(tensors[name].dtype)
            space[: tensors[name].numel()] = tensors[name]
            tensors[name] = space
        tensors["workspace"] = torch_network.make_bytes(workspace.value, options)
        tensors["reserve"] = torch_network.make_bytes(reserve.value, options)
        spaces = [workspace, self._pointer("workspace"), reserve, self._pointer("reserve")]
        return [[weights, self._pointer(name)] + spaces for name in ("params", "params_backprop")]

    def _pointer(self, name):
        """Returns the address of a tensor; null for the second state of a GRU or simple RNN."""
        return ctypes.c_void_p(self.tensors[name].data_ptr() if name in self.tensors else None)

    def _make_step(self, options):
        """Returns a function without arguments that runs one step."""
        call, configuration, at = self._call, self._configuration, self._pointer
        weights, d_weights = self._make_weights_and_spaces(options)
        lengths = torch.full([configuration.batch], configuration.steps, dtype=torch.int32)
        self.tensors["lengths"] = lengths.to(options["device"])
        rnn, (x, y), states = [self._handle, self._rnn], self._data, self._describe_states()

        forward = rnn + [int(configuration.is_training), at("lengths")]
        forward += [x, at("input"), y, at("output"), states, at("input_h"), at("output_h")]
        forward += [states, at("input_c"), at("output_c")] + weights
        if not configuration.is_training:
            return lambda: call("RNNForward", *forward)
        data = rnn + [at("lengths"), y, at("output"), at("output_backprop")]
        data += [x, at("input_backprop")]
        for state in ("h", "c"):
            data += [states, at("input_" + state)]
            data += [at("output_%s_backprop" % state), at("input_%s_backprop" % state)]
        data += weights
        gradient = rnn + [_ADD_GRADIENT, at("lengths"), x, at("input"), states, at("input_h")]
        gradient += [y, at("output")] + d_weights
        accumulator = self.tensors["params_backprop"]

        def step():
            call("RNNForward", *forward)
            call("RNNBackwardData_v8", *data)
            accumulator.zero_()  # the next call accumulates into it
            call("RNNBackwardWeights_v8", *gradient)

        return step

    def close(self):
        """Destroys the cuDNN objects and frees the memory."""
        if self._on_gpu:
            torch.cuda.synchronize()
        for kind, created in reversed(self._created):
            self._call("Destroy" + kind, created)
        self.tensors.clear()
