"""Bare cuDNN: only its RNN calls, through ctypes, with one run for each algorithm.

The fastest of these runs is the reference that ours is compared with. Time-major, all sequences
full, no padding, double biases; float without TF32 (FMA), half on tensor cores with accumulation in
float. $CUDNN_RNN_BENCHMARK_CUDNN names the library; the default is PyTorch's.
"""

import ctypes
import os

import torch
from measuring import Unsupported
from torch_run import TorchRun, random_tensor, shapes

NAME = "cuDNN"

_LIBRARY_VARIABLE = "CUDNN_RNN_BENCHMARK_CUDNN"

# Values of cuDNN's enumerations, as in cudnn_rnn/cc/cudnn/cudnn_types.h.
_ALGORITHMS = {
    "standard": 0,
    "persist_static": 1,
    "persist_dynamic": 2,
    "persist_static_small_h": 3,
}
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_FLOAT, _HALF = 0, 2
_TENSOR_OP_MATH, _FMA_MATH = 1, 3
_DOUBLE_BIAS = 2
_LINEAR_INPUT = 0
_TIME_MAJOR_PACKED = 1
_INFERENCE, _TRAINING = 0, 1
_ADD_GRADIENT = 0


class Cudnn:
    """The cuDNN library; every call's status is checked."""

    def __init__(self):
        path = os.environ.get(_LIBRARY_VARIABLE)
        if not path:
            torch.backends.cudnn.version()  # loads PyTorch's cuDNN
        names = [path] if path else ["libcudnn.so.9", "libcudnn.so.8"]
        problems = []
        self._library = None
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problems.append(str(error))
        if self._library is None:
            raise Unsupported("no cuDNN: " + "; ".join(problems))
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        self._library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = self._library.cudnnGetVersion()

    def call(self, name, *arguments):
        """Calls cudnn<name>; raises `Unsupported` with the call and cuDNN's message if it fails."""
        status = getattr(self._library, "cudnn" + name)(*arguments)
        if status != 0:
            text = self._library.cudnnGetErrorString(status).decode()
            raise Unsupported("cudnn%s: %s" % (name, text))

    def create(self, kind, *arguments):
        """Returns a new object from cudnnCreate<kind>, as a c_void_p."""
        created = ctypes.c_void_p()
        self.call("Create" + kind, ctypes.byref(created), *arguments)
        return created


class _Network:
    """Descriptors, memory and calls of one configuration with one algorithm."""

    def __init__(self, cudnn, configuration, algorithm, device):
        self._cudnn, self._configuration, self._device = cudnn, configuration, device
        self._handle = cudnn.create("")
        stream = torch.cuda.current_stream().cuda_stream if device.type == "cuda" else None
        cudnn.call("SetStream", self._handle, ctypes.c_void_p(stream))
        self._data_type = {"float": _FLOAT, "half": _HALF}[configuration.dtype]
        self._describe_model(algorithm)
        self._describe_data()
        self._allocate()

    def _describe_model(self, algorithm):
        configuration, cudnn = self._configuration, self._cudnn
        self._dropout = cudnn.create("DropoutDescriptor")
        cudnn.call(
            "SetDropoutDescriptor",
            self._dropout,
            self._handle,
            ctypes.c_float(0.0),
            None,
            ctypes.c_size_t(0),
            ctypes.c_ulonglong(0),
        )
        self._rnn = cudnn.create("RNNDescriptor")
        cudnn.call(
            "SetRNNDescriptor_v8",
            self._rnn,
            algorithm,
            _MODES[configuration.rnn_mode],
            _DOUBLE_BIAS,
            int(configuration.direction == "bidirectional"),
            _LINEAR_INPUT,
            self._data_type,
            _FLOAT,  # math precision
            _FMA_MATH if self._data_type == _FLOAT else _TENSOR_OP_MATH,
            configuration.input_size,
            configuration.num_units,
            configuration.num_units,  # projection size: no projection
            configuration.num_layers,
            self._dropout,
            0,
        )
        if algorithm == _ALGORITHMS["persist_dynamic"]:
            cudnn.call("BuildRNNDynamic", self._handle, self._rnn, configuration.batch)

    def _describe_data(self):
        configuration, cudnn = self._configuration, self._cudnn
        lengths = (ctypes.c_int * configuration.batch)(*[configuration.steps] * configuration.batch)
        _, state_shape, output_shape = shapes(configuration)
        self._data = {}
        for name, width in (("x", configuration.input_size), ("y", output_shape[2])):
            self._data[name] = cudnn.create("RNNDataDescriptor")
            cudnn.call(
                "SetRNNDataDescriptor",
                self._data[name],
                self._data_type,
                _TIME_MAJOR_PACKED,
                configuration.steps,
                configuration.batch,
                width,
                lengths,
                None,
            )
        self._states = cudnn.create("TensorDescriptor")
        strides = (state_shape[1] * state_shape[2], state_shape[2], 1)
        cudnn.call(
            "SetTensorNdDescriptor",
            self._states,
            self._data_type,
            3,
            (ctypes.c_int * 3)(*state_shape),
            (ctypes.c_int * 3)(*strides),
        )

    def _allocate(self):
        configuration, cudnn, device = self._configuration, self._cudnn, self._device
        sizes = [ctypes.c_size_t() for _ in range(3)]
        workspace, reserve, weights = sizes
        mode = _TRAINING if configuration.is_training else _INFERENCE
        cudnn.call(
            "GetRNNTempSpaceSizes",
            self._handle,
            self._rnn,
            mode,
            self._data["x"],
            ctypes.byref(workspace),
            ctypes.byref(reserve),
        )
        cudnn.call("GetRNNWeightSpaceSize", self._handle, self._rnn, ctypes.byref(weights))
        self._sizes = sizes
        input_shape, state_shape, output_shape = shapes(configuration)
        element = 4 if self._data_type == _FLOAT else 2
        params = random_tensor([weights.value // element], configuration, device, 0.05)
        self.tensors = {
            "weights": params,
            "d_weights": torch.zeros_like(params),
            "workspace": torch.zeros(max(1, workspace.value), dtype=torch.uint8, device=device),
            "reserve": torch.zeros(max(1, reserve.value), dtype=torch.uint8, device=device),
            "lengths": torch.full(
                [configuration.batch], configuration.steps, dtype=torch.int32, device=device
            ),
        }
        for prefix in ("", "d_"):
            self.tensors[prefix + "x"] = random_tensor(input_shape, configuration, device)
            self.tensors[prefix + "y"] = random_tensor(output_shape, configuration, device)
            for name in ("hx", "cx", "hy", "cy"):
                self.tensors[prefix + name] = random_tensor(state_shape, configuration, device)
        self._addresses = {
            name: ctypes.c_void_p(tensor.data_ptr()) for name, tensor in self.tensors.items()
        }

    def _forward_arguments(self):
        a, (workspace, reserve, weights) = self._addresses, self._sizes
        mode = _TRAINING if self._configuration.is_training else _INFERENCE
        arguments = [self._handle, self._rnn, mode, a["lengths"]]
        arguments += [self._data["x"], a["x"], self._data["y"], a["y"]]
        arguments += [self._states, a["hx"], a["hy"], self._states, a["cx"], a["cy"]]
        arguments += [weights, a["weights"], workspace, a["workspace"], reserve, a["reserve"]]
        return arguments

    def _backward_data_arguments(self):
        a, (workspace, reserve, weights) = self._addresses, self._sizes
        arguments = [self._handle, self._rnn, a["lengths"]]
        arguments += [self._data["y"], a["y"], a["d_y"], self._data["x"], a["d_x"]]
        arguments += [self._states, a["hx"], a["d_hy"], a["d_hx"]]
        arguments += [self._states, a["cx"], a["d_cy"], a["d_cx"]]
        arguments += [weights, a["weights"], workspace, a["workspace"], reserve, a["reserve"]]
        return arguments

    def _backward_weights_arguments(self):
        a, (workspace, reserve, weights) = self._addresses, self._sizes
        arguments = [self._handle, self._rnn, _ADD_GRADIENT, a["lengths"]]
        arguments += [self._data["x"], a["x"], self._states, a["hx"], self._data["y"], a["y"]]
        arguments += [weights, a["d_weights"], workspace, a["workspace"], reserve, a["reserve"]]
        return arguments

    def make_step(self):
        """Returns a function without arguments that runs one step."""
        call = self._cudnn.call
        forward = self._forward_arguments()
        if not self._configuration.is_training:
            return lambda: call("RNNForward", *forward)
        data, weights = self._backward_data_arguments(), self._backward_weights_arguments()
        d_weights = self.tensors["d_weights"]

        def step():
            call("RNNForward", *forward)
            call("RNNBackwardData_v8", *data)
            d_weights.zero_()  # the next call accumulates into it
            call("RNNBackwardWeights_v8", *weights)

        return step

    def close(self):
        """Destroys the cuDNN objects and frees the memory."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        for kind, created in [
            ("RNNDataDescriptor", self._data["x"]),
            ("RNNDataDescriptor", self._data["y"]),
            ("TensorDescriptor", self._states),
            ("RNNDescriptor", self._rnn),
            ("DropoutDescriptor", self._dropout),
            ("", self._handle),
        ]:
            self._cudnn.call("Destroy" + kind, created)
        self.tensors.clear()


def make_runs(configuration, device):
    """Returns a run for each algorithm that cuDNN accepts; raises `Unsupported` if none."""
    if device.type != "cuda" and _LIBRARY_VARIABLE not in os.environ:
        raise Unsupported("cuDNN does not run on a CPU")
    cudnn, runs, refusals = Cudnn(), {}, []
    for name, number in _ALGORITHMS.items():
        try:
            network = _Network(cudnn, configuration, number, device)
            step = network.make_step()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
        except Unsupported as refusal:
            refusals.append("%s: %s" % (name, refusal))
            continue
        runs[name] = TorchRun(step, device, network.close)
        runs[name].tensors = network.tensors
    if not runs:
        raise Unsupported("; ".join(refusals))
    return runs
