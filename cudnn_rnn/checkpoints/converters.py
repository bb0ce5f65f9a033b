"""Converters between the opaque buffer and the variables of platform-independent cells.

Since TensorFlow 1.4 a checkpoint holds, for every layer and direction, the variables of a cell: the
kernels, and one bias that is the sum of cuDNN's two (the candidate of a GRU keeps both). Restoring
gives half of the sum to each of the two. `checkpoints/cell_layout.py` describes the order of gates.

Every step is a method, so a subclass can change the order of gates, the rule for the biases, or the
kernels:

    class ForgetBiasOne(CudnnParamsFormatConverterLSTM):
        def _cudnn_to_tf_biases(self, *biases):
            (bias,) = super()._cudnn_to_tf_biases(*biases)
            ...
            return (bias,)
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

from cudnn_rnn._compat import tf
from cudnn_rnn.checkpoints.cell_layout import (
    GRUFormat,
    gates_from_kernel,
    gates_to_kernel,
    join_gates,
    reorder_lstm_gates,
    split_gates,
    with_input_weights,
    without_input_weights,
)
from cudnn_rnn.graph import canonical
from cudnn_rnn.graph.canonical import chunks
from cudnn_rnn.graph.config import rnn_config
from cudnn_rnn.graph.types import SizeLike, TensorLike
from cudnn_rnn.model import layout
from cudnn_rnn.model.keys import CELL_NAMES
from cudnn_rnn.model.spec import (
    CUDNN_GRU,
    CUDNN_GRU_PARAMS_PER_LAYER,
    CUDNN_INPUT_LINEAR_MODE,
    CUDNN_LSTM,
    CUDNN_LSTM_PARAMS_PER_LAYER,
    CUDNN_RNN_RELU,
    CUDNN_RNN_RELU_PARAMS_PER_LAYER,
    CUDNN_RNN_TANH,
    CUDNN_RNN_TANH_PARAMS_PER_LAYER,
    CUDNN_RNN_UNIDIRECTION,
    DIRECTIONS,
)

# Methods of a converter that handle all cells at once.
_STEPS_OF_ALL_CELLS = (
    "opaque_to_tf_canonical",
    "_opaque_to_cu_canonical",
    "_cu_canonical_to_tf_canonical",
    "_cu_canonical_to_tf_canonical_single_layer",
)


class CudnnParamsFormatConverter:
    """Base class of the four converters.

    In arguments and results, "cuDNN's" tensors are the canonical ones of `RnnConfig`, and "the
    cell's" tensors are those of the platform-independent cells. The cell's form of an LSTM's
    projection is `[num_units, num_proj]`.
    """

    _rnn_mode: Any = None  # a str in subclasses
    _num_params_per_layer: Any = None  # an int in subclasses

    def __init__(
        self,
        num_layers: SizeLike,
        num_units: SizeLike,
        input_size: SizeLike,
        num_proj: Union[int, str, None] = None,
        input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION,
    ) -> None:
        """Takes the description of an RNN, as `CudnnLSTM` does.

        Up to TensorFlow 1.14 there was no `num_proj`: a string in its position is the input mode,
        and the direction follows it.
        """
        if isinstance(num_proj, str):
            if input_mode in DIRECTIONS:
                direction = input_mode
            input_mode, num_proj = num_proj, None
        sizes = (num_layers, num_units, input_size)
        others = (input_mode, direction, tf.float32, 0.0, 0, num_proj)
        self._config = rnn_config(self._rnn_mode, *sizes, *others)
        self._num_layers = self._config.num_layers
        self._num_units = self._config.num_units
        self._input_size = self._config.input_size
        self._num_proj = self._config.num_proj or None
        self._input_mode = input_mode
        self._direction = direction
        self._num_dirs = self._config.num_directions
        self._num_params = len(layout.canonical_biases(self._config))

    def tf_canonical_to_opaque(
        self,
        tf_canonicals: Sequence[TensorLike],
        weights_proj: Optional[Sequence[TensorLike]] = None,
    ) -> tf.Tensor:
        """Returns the opaque buffer for the cells' tensors.

        Args:
          tf_canonicals: list of all weights, then all biases, of the cells: layer by layer, and
            within a layer forward before backward.
          weights_proj: list of the projections in that order, or None.

        Raises:
          ValueError: a list has the wrong length, or a tensor the wrong number of elements.
        """
        return self._cu_canonical_to_opaque(
            *self._tf_canonical_to_cu_canonical(tf_canonicals, weights_proj)
        )

    def opaque_to_tf_canonical(self, opaque_param: TensorLike) -> Tuple[List[tf.Tensor], ...]:
        """Returns the cells' tensors for the opaque buffer, `[params_size]`.

        Returns:
          `(weights, biases)`, or with a projection `(weights, biases, weights_proj)`: lists in the
          form of the arguments of `tf_canonical_to_opaque`.
        """
        return self._cu_canonical_to_tf_canonical(*self._opaque_to_cu_canonical(opaque_param))

    def _opaque_to_cell(self, opaque_param, cell):
        """Returns two functions without arguments: of one cell's weights, and of its biases.

        They return lists, the cell's share of the lists of `opaque_to_tf_canonical`, and read no
        other parameters. `cell` is the cell's index: layer by layer, forward before backward.

        Returns None if a subclass changes how the tensors of all cells are collected.
        """
        if self._num_proj or any(
            getattr(type(self), name) is not getattr(CudnnParamsFormatConverter, name)
            for name in _STEPS_OF_ALL_CELLS
        ):
            return None
        place = divmod(cell, self._num_dirs)

        def read(regions):
            own = [region for region in regions if (region.layer, region.direction) == place]
            return canonical.slices_of_params(self._config, opaque_param, own)

        def weights():
            own = read(layout.canonical_weights(self._config))
            return list(self._cudnn_to_tf_weights(*with_input_weights(self._config, place[0], own)))

        def biases():
            return list(self._cudnn_to_tf_biases(*read(layout.canonical_biases(self._config))))

        return weights, biases

    def _opaque_to_cu_canonical(self, opaque_param):
        """Returns cuDNN's (weights, biases)."""
        return canonical.params_to_canonical(self._config, None, opaque_param)

    def _cu_canonical_to_opaque(self, cu_weights, cu_biases):
        """Returns the opaque buffer for cuDNN's tensors."""
        return canonical.canonical_to_params(self._config, None, list(cu_weights), list(cu_biases))

    def _cu_canonical_to_tf_canonical(self, cu_weights, cu_biases):
        """Returns the result of `opaque_to_tf_canonical` for cuDNN's tensors."""
        parts = self._num_layers * self._num_dirs
        tf_weights: List[tf.Tensor] = []
        tf_biases: List[tf.Tensor] = []
        tf_weights_proj: List[tf.Tensor] = []
        weights_of_parts = chunks(cu_weights, len(cu_weights) // parts)
        biases_of_parts = chunks(cu_biases, len(cu_biases) // parts)
        for part, (weights, biases) in enumerate(zip(weights_of_parts, biases_of_parts)):
            weights = with_input_weights(self._config, part // self._num_dirs, weights)
            self._cu_canonical_to_tf_canonical_single_layer(
                weights, biases, tf_weights, tf_biases, tf_weights_proj
            )
        if self._num_proj:
            return tf_weights, tf_biases, tf_weights_proj
        return tf_weights, tf_biases

    def _cu_canonical_to_tf_canonical_single_layer(
        self, cu_weights, cu_biases, tf_weights, tf_biases, tf_weights_proj=None
    ):
        """Appends the cell's tensors of one layer and direction to the three lists."""
        weights = list(self._cudnn_to_tf_weights(*cu_weights))
        if self._num_proj:
            tf_weights_proj.append(weights.pop())
        tf_weights.extend(weights)
        tf_biases.extend(self._cudnn_to_tf_biases(*cu_biases))

    def _tf_canonical_to_cu_canonical(self, tf_canonicals, weights_proj=None):
        """Returns cuDNN's (weights, biases) for the arguments of `tf_canonical_to_opaque`."""
        parts = self._num_layers * self._num_dirs
        tf_canonicals = list(tf_canonicals)
        if not tf_canonicals or len(tf_canonicals) % (2 * parts):
            raise ValueError(
                "tf_canonicals must be a list of weights and biases whose length is a multiple of "
                "2 * num_layers %d * directions %d, but has %d tensors."
                % (self._num_layers, self._num_dirs, len(tf_canonicals))
            )
        per_part = len(tf_canonicals) // (2 * parts)
        of_parts = chunks(tf_canonicals, per_part)
        cu_weights: List[tf.Tensor] = []
        cu_biases: List[tf.Tensor] = []
        for part in range(parts):
            layer = part // self._num_dirs
            weights = list(self._tf_to_cudnn_weights(layer, *of_parts[part]))
            cu_weights += without_input_weights(self._config, layer, weights)
            if weights_proj is not None:
                cu_weights.append(tf.transpose(weights_proj[part]))
            cu_biases += self._tf_to_cudnn_biases(*of_parts[parts + part])
        return cu_weights, cu_biases

    def _cudnn_to_tf_weights(self, *cu_weights: tf.Tensor) -> Sequence[tf.Tensor]:
        """Converts cuDNN's weights of one layer and direction to a tuple of the cell's."""
        raise NotImplementedError("%s has no _cudnn_to_tf_weights" % type(self).__name__)

    def _tf_to_cudnn_weights(self, layer: int, *tf_weights: tf.Tensor) -> Sequence[tf.Tensor]:
        """Converts the cell's weights to cuDNN's, without the projection."""
        raise NotImplementedError("%s has no _tf_to_cudnn_weights" % type(self).__name__)

    def _cudnn_to_tf_biases(self, *biases: tf.Tensor) -> Sequence[tf.Tensor]:
        """Converts cuDNN's biases of one layer and direction to a tuple of the cell's."""
        raise NotImplementedError("%s has no _cudnn_to_tf_biases" % type(self).__name__)

    def _tf_to_cudnn_biases(self, *tf_biases: tf.Tensor) -> Sequence[tf.Tensor]:
        """Converts the cell's biases to cuDNN's."""
        raise NotImplementedError("%s has no _tf_to_cudnn_biases" % type(self).__name__)


class _OneKernel(CudnnParamsFormatConverter):
    """Base of converters for cells with one kernel and one bias, with any order of gates."""

    def _cudnn_to_tf_gate_params(self, *cu_gate_order: tf.Tensor) -> List[tf.Tensor]:
        """Reorders gates from cuDNN's order to the cell's; returns a list."""
        return list(cu_gate_order)

    def _tf_to_cudnn_gate_params(self, *tf_gate_order: tf.Tensor) -> List[tf.Tensor]:
        """Reorders gates from the cell's order to cuDNN's; returns a list."""
        return list(tf_gate_order)

    def _cudnn_to_tf_weights(self, *cu_weights):
        num_gates = len(self._config.gates)
        gates = join_gates(cu_weights[:num_gates], cu_weights[num_gates : 2 * num_gates])
        kernel = gates_to_kernel(self._cudnn_to_tf_gate_params(*gates))
        return (kernel,) + tuple(tf.transpose(matrix) for matrix in cu_weights[2 * num_gates :])

    def _tf_to_cudnn_weights(self, layer, *tf_weights):
        (kernel,) = tf_weights
        gates = self._tf_to_cudnn_gate_params(*gates_from_kernel(kernel, len(self._config.gates)))
        input_weights, recurrent_weights = split_gates(gates, self._config.output_units)
        return tuple(input_weights + recurrent_weights)

    def _cudnn_to_tf_biases(self, *cu_biases):
        num_gates = len(self._config.gates)
        sums = [pair[0] + pair[1] for pair in zip(cu_biases[:num_gates], cu_biases[num_gates:])]
        return (tf.concat(self._cudnn_to_tf_gate_params(*sums), axis=0),)

    def _tf_to_cudnn_biases(self, *tf_biases):
        (bias,) = tf_biases
        gates = tf.split(bias, len(self._config.gates), axis=0)
        halves = tuple(0.5 * gate for gate in self._tf_to_cudnn_gate_params(*gates))
        return halves + halves


class CudnnParamsFormatConverterLSTM(_OneKernel):
    """For `CudnnCompatibleLSTMCell`: kernel `[width + num_units, 4 * num_units]`, i, g, f, o."""

    _rnn_mode = CUDNN_LSTM
    _num_params_per_layer = CUDNN_LSTM_PARAMS_PER_LAYER

    def _cudnn_to_tf_gate_params(self, *cu_gate_order):
        return reorder_lstm_gates(cu_gate_order)

    def _tf_to_cudnn_gate_params(self, *tf_gate_order):
        return reorder_lstm_gates(tf_gate_order)


class CudnnParamsFormatConverterGRU(CudnnParamsFormatConverter):
    """For `CudnnCompatibleGRUCell`: three kernels and three biases."""

    _rnn_cell_name = CELL_NAMES[CUDNN_GRU].cell
    _rnn_mode = CUDNN_GRU
    _num_params_per_layer = CUDNN_GRU_PARAMS_PER_LAYER

    def _cudnn_to_tf_weights(self, *cu_weights):
        return tuple(GRUFormat.weights_to_cell(cu_weights))

    def _tf_to_cudnn_weights(self, layer, *tf_weights):
        return tuple(GRUFormat.weights_from_cell(tf_weights, self._num_units))

    def _cudnn_to_tf_biases(self, *biases):
        return tuple(GRUFormat.biases_to_cell(biases)[:3])

    def _tf_to_cudnn_biases(self, *tf_biases):
        half = 0.5 * tf_biases[0]
        return tuple(GRUFormat.biases_from_cell([*tf_biases, half, half]))


class CudnnParamsFormatConverterTanh(_OneKernel):
    """For `BasicRNNCell` with tanh: kernel `[width + num_units, num_units]`."""

    _rnn_mode = CUDNN_RNN_TANH
    _num_params_per_layer = CUDNN_RNN_TANH_PARAMS_PER_LAYER


class CudnnParamsFormatConverterRelu(_OneKernel):
    """For `BasicRNNCell` with ReLU: kernel `[width + num_units, num_units]`."""

    _rnn_mode = CUDNN_RNN_RELU
    _num_params_per_layer = CUDNN_RNN_RELU_PARAMS_PER_LAYER
