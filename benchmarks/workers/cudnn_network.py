"""Bare cuDNN: only its RNN calls, through ctypes, with the algorithm that the options name.

The fastest algorithm is the reference that ours is compared with. Time-major, all sequences full,
no padding, double biases; float without TF32 (FMA), half on tensor cores with accumulation in
float. $CUDNN_RNN_BENCHMARK_CUDNN names the library; the default is PyTorch's.
"""

import ctypes
import os

import torch
from problem import Refused, backprops, input_names, joined_params, output_names
from torch_network import start, time_on_gpu, to_tensor  # noqa: F401  (start: used by worker.py)

LIBRARY_VARIABLE = "CUDNN_RNN_BENCHMARK_CUDNN"

# Values of cuDNN's enumerations, as in cudnn_rnn/cc/cudnn/cudnn_types.h.
ALGORITHMS = ["standard", "persist_static", "persist_dynamic", "persist_static_small_h"]
_MODES = ["rnn_relu", "rnn_tanh", "lstm", "gru"]
_FLOAT, _HALF = 0, 2
_TENSOR_OP_MATH, _FMA_MATH = 1, 3
_DOUBLE_BIAS = 2
_LINEAR_INPUT = 0
_TIME_MAJOR_PACKED = 1
_ADD_GRADIENT = 0


class _Cudnn:
    """The cuDNN library; every call's status is checked."""

    def __init__(self):
        path = os.environ.get(LIBRARY_VARIABLE)
        if not path:
            torch.backends.cudnn.version()  # loads PyTorch's cuDNN
        problems = []
        for name in [path] if path else ["libcudnn.so.9", "libcudnn.so.8"]:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError as error:
                problems.append(str(error))
        else:
            raise Refused("no cuDNN: " + "; ".join(problems))
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        """Calls cudnn<name>; raises `Refused` with the call and cuDNN's message if it fails."""
        status = getattr(self._library, "cudnn" + name)(*arguments)
        if status != 0:
            text = self._library.cudnnGetErrorString(status).decode()
            raise Refused("cudnn%s: %s" % (name, text))

    def create(self, kind):
        """Returns a new object from cudnnCreate<kind>, as a c_void_p."""
        created = ctypes.c_void_p()
        self.call("Create" + kind, ctypes.byref(created))
        return created


class Network:
    """Descriptors, memory and calls of one configuration with one algorithm."""

    def __init__(self, configuration, arrays, options):
        self._on_gpu = options["device"] == "cuda"
        if self._on_gpu:
            self.time_steps = time_on_gpu
        elif LIBRARY_VARIABLE not in os.environ:
            raise Refused("cuDNN does not run on a CPU")
        self.variant = options["algorithm"]
        self._cudnn, self._configuration = _Cudnn(), configuration
        self._created = []  # pairs of kind and object, in order of creation
        self._data_type = {"float": _FLOAT, "half": _HALF}[configuration.dtype]
        self._handle = self._create("")
        stream = torch.cuda.current_stream().cuda_stream if self._on_gpu else None
        self._cudnn.call("SetStream", self._handle, ctypes.c_void_p(stream))
        self._describe_model(ALGORITHMS.index(self.variant))
        self._data = [
            self._describe_data(configuration.input_size),
            self._describe_data(configuration.num_units * configuration.num_directions),
        ]
        self._states = self._describe_states()
        self._allocate(arrays, options)
        self.step = self._make_step()
        self.step()
        if self._on_gpu:
            torch.cuda.synchronize()

    def _create(self, kind):
        self._created.append((kind, self._cudnn.create(kind)))
        return self._created[-1][1]

    def _describe_model(self, algorithm):
        configuration, cudnn = self._configuration, self._cudnn
        dropout = self._create("DropoutDescriptor")
        no_states = (None, ctypes.c_size_t(0), ctypes.c_ulonglong(0))
        no_dropout = ctypes.c_float(0.0)
        cudnn.call("SetDropoutDescriptor", dropout, self._handle, no_dropout, *no_states)
        self._rnn = self._create("RNNDescriptor")
        cudnn.call(
            "SetRNNDescriptor_v8",
            self._rnn,
            algorithm,
            _MODES.index(configuration.rnn_mode),
            _DOUBLE_BIAS,
            configuration.num_directions - 1,
            _LINEAR_INPUT,
            self._data_type,
            _FLOAT,  # math precision
            _FMA_MATH if self._data_type == _FLOAT else _TENSOR_OP_MATH,
            configuration.input_size,
            configuration.num_units,
            configuration.num_units,  # projection size: no projection
            configuration.num_layers,
            dropout,
            0,
        )
        if self.variant == "persist_dynamic":
            cudnn.call("BuildRNNDynamic", self._handle, self._rnn, configuration.batch)

    def _describe_data(self, width):
        """Returns the descriptor of sequences `[T, B, width]`."""
        steps, batch = self._configuration.steps, self._configuration.batch
        lengths = (ctypes.c_int * batch)(*[steps] * batch)
        data = self._create("RNNDataDescriptor")
        shape = (_TIME_MAJOR_PACKED, steps, batch, width)
        self._cudnn.call("SetRNNDataDescriptor", data, self._data_type, *shape, lengths, None)
        return data

    def _describe_states(self):
        """Returns the descriptor of states `[L * D, B, H]`."""
        configuration, three = self._configuration, ctypes.c_int * 3
        batch, units = configuration.batch, configuration.num_units
        shape = three(len(configuration.stacks), batch, units)
        strides = three(batch * units, units, 1)
        states = self._create("TensorDescriptor")
        self._cudnn.call("SetTensorNdDescriptor", states, self._data_type, 3, shape, strides)
        return states

    def _allocate(self, arrays, options):
        configuration, rnn = self._configuration, (self._handle, self._rnn)
        workspace, reserve, weights = [ctypes.c_size_t() for _ in range(3)]
        sizes = (ctypes.byref(workspace), ctypes.byref(reserve))
        is_training = int(configuration.is_training)
        self._cudnn.call("GetRNNTempSpaceSizes", *rnn, is_training, self._data[0], *sizes)
        self._cudnn.call("GetRNNWeightSpaceSize", *rnn, ctypes.byref(weights))
        params = to_tensor(joined_params(configuration, arrays), configuration, options)
        space = torch.zeros(weights.value // params.element_size(), dtype=params.dtype)
        space = space.to(params.device)
        space[: params.numel()] = params
        names = {"input": "x", "output": "y", "input_h": "hx", "input_c": "cx"}
        names.update({"output_h": "hy", "output_c": "cy"})
        values = dict(zip(output_names(configuration), backprops(configuration, arrays)))
        values.update({name: arrays[name] for name in input_names(configuration)})
        tensors = {
            names[name]: to_tensor(value, configuration, options) for name, value in values.items()
        }
        tensors["weights"] = space
        for name in ("cx", "cy"):  # GRU and simple RNN ignore these
            tensors.setdefault(name, torch.zeros_like(tensors["hx"]))
        tensors.update({"d_" + name: value.clone() for name, value in tensors.items()})
        for name, size in [("workspace", workspace), ("reserve", reserve)]:
            tensors[name] = torch.zeros(max(1, size.value), dtype=torch.uint8, device=space.device)
        lengths = torch.full([configuration.batch], configuration.steps, dtype=torch.int32)
        tensors["lengths"] = lengths.to(space.device)
        self.tensors = tensors
        self._spaces = [(workspace, "workspace"), (reserve, "reserve")]
        self._weight_bytes = weights

    def _make_step(self):
        """Returns a function without arguments that runs one step."""
        call, is_training = self._cudnn.call, self._configuration.is_training
        a = {name: ctypes.c_void_p(tensor.data_ptr()) for name, tensor in self.tensors.items()}
        rnn, (x, y), states = [self._handle, self._rnn], self._data, self._states
        spaces = [argument for size, name in self._spaces for argument in (size, a[name])]
        weights = [self._weight_bytes, a["weights"]] + spaces
        d_weights = [self._weight_bytes, a["d_weights"]] + spaces

        forward = rnn + [int(is_training), a["lengths"], x, a["x"], y, a["y"]]
        forward += [states, a["hx"], a["hy"], states, a["cx"], a["cy"]] + weights
        if not is_training:
            return lambda: call("RNNForward", *forward)
        data = rnn + [a["lengths"], y, a["y"], a["d_y"], x, a["d_x"]]
        data += [states, a["hx"], a["d_hy"], a["d_hx"]]
        data += [states, a["cx"], a["d_cy"], a["d_cx"]] + weights
        gradient = rnn + [_ADD_GRADIENT, a["lengths"], x, a["x"], states, a["hx"], y, a["y"]]
        gradient += d_weights
        accumulator = self.tensors["d_weights"]

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
            self._cudnn.call("Destroy" + kind, created)
        self.tensors.clear()
