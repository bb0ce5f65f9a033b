"""Calls the engine through ctypes on PyTorch tensors in GPU or host memory.

The C interface is cudnn_rnn/cc/engine/engine.h, and the shapes are those of
cudnn_rnn/cc/core/rnn_plan.h. Needs only torch, not TensorFlow or pytest.
"""

import contextlib
import ctypes
import os
from collections import namedtuple
from typing import NamedTuple

import torch

RNN_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
INPUT_MODES = ("linear_input", "skip_input", "auto_select")
DIRECTIONS = ("unidirectional", "bidirectional")
PRECISIONS = ("default", "highest", "high", "medium")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ALGORITHMS = ("auto", "standard", "persist_static", "persist_static_small_h", "persist_dynamic")

# Codes of core/status.h.
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 3, 8, 12, 13, 14

# Buffers and their surroundings are filled with this byte, which makes a NaN of every float type.
_POISON = 0xFF
_GUARD_BYTES = 256
# What cuDNN requires of parameters, workspaces and reserve spaces, in bytes.
_ALIGNMENT = 256


def _fields(ctype, names):
    return [(name, ctype) for name in names.split()]


class Config(ctypes.Structure):
    """cudnn_rnn_config."""

    _fields_ = (
        _fields(ctypes.c_int32, "rnn_mode input_mode direction data_type")
        + _fields(ctypes.c_int64, "num_layers num_units input_size num_proj seed seed2")
        + _fields(ctypes.c_float, "dropout")
        + _fields(ctypes.c_int32, "precision")
    )


class Choice(ctypes.Structure):
    """cudnn_rnn_forward_choice."""

    _fields_ = _fields(ctypes.c_int32, "algorithm allow_tf32 uses_dropout")


class Call(ctypes.Structure):
    """cudnn_rnn_call."""

    _fields_ = (
        _fields(ctypes.c_int64, "num_steps batch_size")
        + _fields(ctypes.c_int32, "time_major is_training")
        + _fields(ctypes.c_int64, "dropout_call_index")
        + _fields(ctypes.POINTER(ctypes.c_int32), "sequence_lengths")
        + _fields(ctypes.c_int32, "keeps_reserve_space algorithm deterministic allow_tf32")
        + [("forward_choice", Choice)]
        + _fields(ctypes.c_void_p, "threads stream allocator")
    )


class Sizes(ctypes.Structure):
    """cudnn_rnn_sizes."""

    _fields_ = _fields(
        ctypes.c_int64,
        "reserve_space_bytes forward_workspace_bytes backward_workspace_bytes packed_weights_bytes",
    ) + [("packed_weights_layout", ctypes.c_int64 * 16), ("choice", Choice)]


class ForwardBuffers(ctypes.Structure):
    """cudnn_rnn_forward_buffers."""

    _fields_ = (
        _fields(ctypes.c_void_p, "input input_h input_c params output output_h output_c")
        + _fields(ctypes.c_void_p, "reserve_space")
        + _fields(ctypes.c_int64, "reserve_space_bytes")
        + _fields(ctypes.c_void_p, "packed_weights")
        + _fields(ctypes.c_int32, "packed_weights_are_ready")
        + _fields(ctypes.c_void_p, "workspace")
        + _fields(ctypes.c_int64, "workspace_bytes")
    )


class BackwardBuffers(ctypes.Structure):
    """cudnn_rnn_backward_buffers."""

    _fields_ = (
        _fields(ctypes.c_void_p, "input input_h input_c params output output_h output_backprop")
        + _fields(ctypes.c_void_p, "output_h_backprop output_c_backprop reserve_space")
        + _fields(ctypes.c_int64, "reserve_space_bytes")
        + _fields(ctypes.c_void_p, "input_backprop input_h_backprop input_c_backprop")
        + _fields(ctypes.c_void_p, "params_backprop workspace")
        + _fields(ctypes.c_int64, "workspace_bytes")
    )


class LibrarySearch(ctypes.Structure):
    """cudnn_rnn_library_search."""

    _fields_ = _fields(ctypes.c_char_p, "driver_name cudnn_file") + [
        ("wheel_folders", ctypes.POINTER(ctypes.c_char_p)),
        ("num_wheel_folders", ctypes.c_int64),
    ]


class CoreError(Exception):
    """A status other than 0: `code`, and the library's error message as `text`."""

    def __init__(self, code, text):
        super().__init__(f"status {code}: {text}")
        self.code = code
        self.text = text


class Description(NamedTuple):
    """A model to compute. Field names are those of RnnConfig; values are those of the ops."""

    rnn_mode: str
    num_layers: int
    num_units: int
    input_size: int
    dtype: torch.dtype = torch.float32
    input_mode: str = "linear_input"
    direction: str = "unidirectional"
    num_proj: int = 0
    dropout: float = 0.0
    seed: int = 0
    seed2: int = 0
    precision: str = "default"
    algorithm: str = "standard"
    deterministic: bool = False
    allow_tf32: bool = False


class CoreLibrary:
    """The loaded library; one instance per path is enough for a process."""

    def __init__(self, path=None):
        self.path = path or default_path()
        if not os.path.exists(self.path):
            raise FileNotFoundError(
                f"There is no {self.path}. `scripts/cpp.sh build release cudnn_rnn_engine` builds"
                " it; elsewhere, set CUDNN_RNN_CORE_LIBRARY to its path."
            )
        self.functions = ctypes.CDLL(self.path)
        self._mock = None
        for name, result, arguments in [
            ("last_error", ctypes.c_char_p, []),
            ("open_gpu", ctypes.c_int, [ctypes.c_void_p]),
            ("gpu_report", ctypes.c_char_p, []),
            ("create_cpu_planner", ctypes.c_int, [ctypes.c_void_p]),
            ("create_gpu_planner", ctypes.c_int, [ctypes.c_void_p] * 2),
            ("destroy_planner", None, [ctypes.c_void_p]),
            ("params_size", ctypes.c_int, [ctypes.c_void_p] * 2),
            ("prepare", ctypes.c_int, [ctypes.c_void_p] * 5),
            ("forward", ctypes.c_int, [ctypes.c_void_p] * 2),
            ("backward", ctypes.c_int, [ctypes.c_void_p] * 2),
            ("release_call", None, [ctypes.c_void_p]),
        ]:
            function = getattr(self.functions, "cudnn_rnn_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, "_" + name, function)

    def check(self, status):
        """Raises `CoreError` unless the status is 0."""
        if status != 0:
            raise CoreError(status, self._last_error().decode())

    def open_gpu(self, driver_name=None, cudnn_file=None):
        """Opens the driver and cuDNN; each argument a str or None, as in engine.h."""
        names = [name and name.encode() for name in (driver_name, cudnn_file)]
        self.check(self._open_gpu(ctypes.byref(LibrarySearch(*names))))

    def open_mock(self, path):
        """Opens the mock as driver and as cuDNN; models "on the GPU" then use host memory."""
        self._mock = ctypes.CDLL(path)
        self._mock.mock_violation_text.restype = ctypes.c_char_p
        self._mock.mock_set_any_memory(1)
        self.enter_thread()
        self.open_gpu(driver_name=path, cudnn_file=path)

    def enter_thread(self):
        """Must be called first on a thread: makes the context of the mock's device current."""
        if self._mock is not None:
            self._mock.mock_set_thread_device(0)

    def mock_violations(self):
        """Returns the violations that the mock found since the last call; empty without a mock."""
        if self._mock is None:
            return ""
        text = self._mock.mock_violation_text().decode()
        self._mock.mock_reset()
        self._mock.mock_set_any_memory(1)
        return text

    def synchronize_mock(self, stream):
        """Waits for the stream, after whose work its memory may be used on any other one."""
        if self._mock is not None:
            self.check(self._mock.cuStreamSynchronize(ctypes.c_void_p(stream)))

    def mock_handles(self):
        """Returns the number of cuDNN handles in the mock."""
        return self._mock.mock_live(b"handle")

    def is_on_gpu(self, device):
        """Returns whether models on a torch.device use the cuDNN plan."""
        return device.type == "cuda" or self._mock is not None

    def gpu_report(self):
        """Returns what is open, or why nothing is."""
        return self._gpu_report().decode()


def default_path():
    """Returns $CUDNN_RNN_CORE_LIBRARY, or the engine that this checkout builds."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    built = os.path.join(root, ".build/release/libraries/libcudnn_rnn_engine.so")
    return os.environ.get("CUDNN_RNN_CORE_LIBRARY", built)


class GuardedBuffer:
    """A tensor in memory that is filled with one byte, with guard bytes around the tensor.

    `tensor` starts `offset` bytes after an address that is aligned as cuDNN requires. `pointer` is
    None for an empty buffer.
    """

    offset = 0

    def __init__(self, shape, dtype, device):
        count = 1
        for size in shape:
            count *= size
        self._bytes = count * torch.empty([], dtype=dtype).element_size()
        self._memory = torch.full(
            [_GUARD_BYTES + _ALIGNMENT + self.offset + self._bytes + _GUARD_BYTES],
            _POISON,
            dtype=torch.uint8,
            device=device,
        )
        self._start = _GUARD_BYTES + self.offset
        self._start += -(self._memory.data_ptr() + _GUARD_BYTES) % _ALIGNMENT
        inside = self._memory[self._start : self._start + self._bytes]
        self.tensor = inside.view(dtype).view(shape) if count else inside.view(dtype).reshape(shape)

    @property
    def pointer(self):
        """The address, or None for an empty buffer."""
        return self._memory.data_ptr() + self._start if self._bytes else None

    def is_intact_around(self):
        """Returns whether nothing was written before or after the tensor."""
        before = self._memory[: self._start]
        behind = self._memory[self._start + self._bytes :]
        return bool((before == _POISON).all()) and bool((behind == _POISON).all())


# The results of a forward pass by name, and its data for the backward pass.
ForwardPass = namedtuple("ForwardPass", "results call inputs reserve_space sizes lengths")


class Model:
    """A model on one kind of device, where its tensors must be. Keeps its plans."""

    def __init__(self, library, description, device):
        self.library, self.description = library, description
        self.device = torch.device(device)
        self._planner = ctypes.c_void_p()
        values = description._asdict()
        self._options = {name: int(values.pop(name)) for name in ("deterministic", "allow_tf32")}
        self._options["algorithm"] = ALGORITHMS.index(values.pop("algorithm"))
        values["data_type"] = DTYPES.index(values.pop("dtype"))
        for name, known in [
            ("rnn_mode", RNN_MODES),
            ("input_mode", INPUT_MODES),
            ("direction", DIRECTIONS),
            ("precision", PRECISIONS),
        ]:
            values[name] = known.index(values[name])
        self._config = Config(**values)
        if library.is_on_gpu(self.device):
            status = library._create_gpu_planner(None, ctypes.byref(self._planner))
        else:
            status = library._create_cpu_planner(ctypes.byref(self._planner))
        library.check(status)

    def close(self):
        """Destroys the model after all its queued work."""
        if self._planner:
            self._synchronize()
            self.library._destroy_planner(self._planner)
            self._planner = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def params_size(self):
        """Returns the number of elements of the parameter buffer."""
        size = ctypes.c_int64()
        self.library.check(
            self.library._params_size(ctypes.byref(self._config), ctypes.byref(size))
        )
        return size.value

    @property
    def is_lstm(self):
        """Whether the model has a cell state."""
        return self.description.rnn_mode == "lstm"

    def make_call(self, num_steps, batch_size, **options):
        """Returns a `Call`.

        Options: time_major, is_training, dropout_call, lengths (ints or None), keeps_reserve_space,
        stream (a number; default: PyTorch's current stream). The Call keeps the array of lengths
        alive.
        """
        lengths = options.get("lengths")
        array = None if lengths is None else (ctypes.c_int32 * len(lengths))(*lengths)
        call = Call(
            num_steps=num_steps,
            batch_size=batch_size,
            time_major=options.get("time_major", True),
            is_training=options.get("is_training", True),
            dropout_call_index=options.get("dropout_call", 0),
            keeps_reserve_space=options.get("keeps_reserve_space", True),
            stream=options.get("stream", self._stream()),
            **self._options,
        )
        if array is not None:
            call.sequence_lengths = ctypes.cast(array, ctypes.POINTER(ctypes.c_int32))
        call.array = array
        return call

    @contextlib.contextmanager
    def prepared(self, call):
        """Finds or creates the plan of a call; yields the prepared call and its `Sizes`."""
        sizes, prepared = Sizes(), ctypes.c_void_p()
        self.library.check(self.library._prepare(*self.arguments_of_prepare(call, prepared, sizes)))
        try:
            yield prepared, sizes
        finally:
            self.library._release_call(prepared)

    def arguments_of_prepare(self, call, prepared, sizes):
        """Returns the arguments of cudnn_rnn_prepare, which sets `prepared` and `sizes`."""
        structures = [ctypes.byref(item) for item in (self._config, call, prepared, sizes)]
        return [self._planner] + structures

    def prepare(self, call):
        """Creates the plan; returns its `Sizes`."""
        with self.prepared(call) as (_, sizes):
            return sizes

    def output_shapes(self, call):
        """Returns the shapes of output, output_h and output_c (LSTM only) by name."""
        description = self.description
        directions = 2 if description.direction == "bidirectional" else 1
        cells, width = description.num_layers * directions, description.num_proj
        width = width or description.num_units
        steps, batch = call.num_steps, call.batch_size
        if call.time_major:
            shapes = {"output": (steps, batch, directions * width), "output_h": (cells, batch)}
        else:
            shapes = {"output": (batch, steps, directions * width), "output_h": (batch, cells)}
        if self.is_lstm:
            shapes["output_c"] = shapes["output_h"] + (description.num_units,)
        shapes["output_h"] += (width,)
        return shapes

    def forward(self, inputs, **options):
        """Runs the network.

        Args:
          inputs: a dict of contiguous tensors: input, input_h, input_c (LSTM), params.
          **options: see `make_call`.

        Returns:
          A `ForwardPass`; its results are output, output_h and output_c (LSTM).
        """
        steps, batch = inputs["input"].shape[:2]
        if not options.get("time_major", True):
            steps, batch = batch, steps
        call = self.make_call(steps, batch, **options)
        with self.prepared(call) as (prepared, sizes):
            buffers, written = self.make_forward_buffers(inputs, call, sizes)
            self.run_forward(prepared, buffers)
        self._finish(call, written)
        results = {name: written[name].tensor for name in self.output_shapes(call)}
        reserve_space = written["reserve_space"]
        return ForwardPass(results, call, inputs, reserve_space, sizes, options.get("lengths"))

    def make_forward_buffers(self, inputs, call, sizes):
        """Returns `ForwardBuffers`, and a dict of the `GuardedBuffer`s that a call writes."""
        written = {
            name: GuardedBuffer(shape, self.description.dtype, self.device)
            for name, shape in self.output_shapes(call).items()
        }
        reserve_space_bytes = sizes.reserve_space_bytes if call.is_training else 0
        written["reserve_space"] = self._bytes(reserve_space_bytes)
        written["workspace"] = self._bytes(sizes.forward_workspace_bytes)
        buffers = ForwardBuffers(
            reserve_space_bytes=reserve_space_bytes, workspace_bytes=sizes.forward_workspace_bytes
        )
        self._point(buffers, inputs)
        for name, buffer in written.items():
            setattr(buffers, name, buffer.pointer)
        return buffers, written

    def run_forward(self, prepared, buffers):
        """Queues the forward pass of a prepared call."""
        self.library.check(self.library._forward(prepared, ctypes.byref(buffers)))

    def backward(self, forward_pass, backprops, keeps_reserve_space=True, reserve_space_bytes=None):
        """Runs the backward pass of a training forward pass.

        Args:
          forward_pass: from `forward`.
          backprops: a dict of output gradients; keys are output names with the suffix _backprop.
          keeps_reserve_space: whether another backward pass will follow.
          reserve_space_bytes: the size to pass for the reserve space; None for the real size.

        Returns:
          A dict: input_backprop, input_h_backprop, input_c_backprop (LSTM), params_backprop.
        """
        call, inputs = forward_pass.call, forward_pass.inputs
        call.keeps_reserve_space = keeps_reserve_space
        buffers, written = self.make_backward_buffers(forward_pass, backprops)
        if reserve_space_bytes is not None:
            buffers.reserve_space_bytes = reserve_space_bytes
        with self.prepared(call) as (prepared, _):
            self.run_backward(prepared, buffers)
        self._finish(call, written)
        return {name + "_backprop": written[name + "_backprop"].tensor for name in inputs}

    def make_backward_buffers(self, forward_pass, backprops):
        """Returns `BackwardBuffers`, and a dict of the `GuardedBuffer`s that a call writes."""
        inputs, sizes = forward_pass.inputs, forward_pass.sizes
        written = {
            name + "_backprop": GuardedBuffer(tensor.shape, tensor.dtype, self.device)
            for name, tensor in inputs.items()
        }
        written["reserve_space"] = forward_pass.reserve_space
        written["workspace"] = self._bytes(sizes.backward_workspace_bytes)
        buffers = BackwardBuffers(
            reserve_space_bytes=sizes.reserve_space_bytes,
            workspace_bytes=sizes.backward_workspace_bytes,
        )
        outputs = {name: forward_pass.results[name] for name in ("output", "output_h")}
        self._point(buffers, dict(inputs, **outputs))
        self._point(buffers, backprops)
        for name, buffer in written.items():
            setattr(buffers, name, buffer.pointer)
        return buffers, written

    def run_backward(self, prepared, buffers):
        """Queues the backward pass of a prepared call."""
        self.library.check(self.library._backward(prepared, ctypes.byref(buffers)))

    def _bytes(self, size):
        return GuardedBuffer([size], torch.uint8, self.device)

    def _point(self, buffers, tensors):
        for name, tensor in tensors.items():
            # Access to memory of another device would make the GPU unusable for the process.
            assert tensor.device.type == self.device.type, name
            assert tensor.is_contiguous(), name
            setattr(buffers, name, tensor.data_ptr() if tensor.numel() else None)

    def _stream(self):
        on_gpu = self.device.type == "cuda"
        return torch.cuda.current_stream(self.device).cuda_stream if on_gpu else None

    def _synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _finish(self, call, buffers):
        self._synchronize()
        self.library.synchronize_mock(call.stream)
        for name, buffer in buffers.items():
            assert buffer.is_intact_around(), f"memory around {name} was written"
