"""Platform-independent RNN cells that compute the same as cuDNN's LSTM and GRU.

These cells run a model that was trained with `CudnnLSTM` or `CudnnGRU` and saved in canonical form.
They run one step at a time, on any device, and use only TensorFlow's own ops:

    cells = [CudnnCompatibleLSTMCell(num_units) for _ in range(num_layers)]
    outputs, state = tf.nn.dynamic_rnn(MultiRNNCell(cells), inputs, dtype=tf.float32)
    tf.train.Saver().restore(session, path)

The formulas per layer; `W` multiplies a step's input, `R` the previous output `h'`:

    LSTM  c = sigmoid(f) * c' + sigmoid(i) * tanh(g);  h = sigmoid(o) * tanh(c)
    GRU   n = tanh(W_n x + bW_n + r * (R_n h' + bR_n));  h = (1 - u) * n + u * h'

Unlike `tf.nn.rnn_cell.GRUCell`, the GRU applies its reset gate after the recurrent product.

If TensorFlow has `tf.nn.rnn_cell` (1.x, and 2.x with Keras 2), the cells are subclasses of its
`RNNCell`, otherwise of this library's own; see `cudnn_rnn/tf1_layers/cell_base.py`.
"""

from __future__ import annotations

from typing import Any, Tuple, Union

from cudnn_rnn._compat import tf
from cudnn_rnn.graph.old_names import OldName
from cudnn_rnn.graph.types import Initializer, Nested, SizeLike
from cudnn_rnn.tf1_layers.cell_base import LSTMStateTuple, MultiRNNCell, RNNCell
from cudnn_rnn.tf1_layers.checked_cell import CheckedCell
from cudnn_rnn.tf1_layers.layer_record import snake_case

__all__ = [
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
]


class CudnnCompatibleLSTMCell(CheckedCell):
    """An LSTM cell that computes what one layer of `CudnnLSTM` computes.

    Variables, in the scope `cudnn_compatible_lstm_cell`, also of a subclass:

    - `kernel` `[input_size + num_units, 4 * num_units]`: rows of the inputs, then of the previous
      output; columns in the gate order input, new memory, forget, output;
    - `bias` `[4 * num_units]`, initially zero; the sum of cuDNN's two biases.

    The cell has no forget bias, no clipping and no peepholes.

    Args:
      num_units: number of units, at least 1.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.

    Raises:
      TypeError: `num_units` is not an integer.
      ValueError: `num_units` is below 1.
    """

    def __init__(self, num_units: SizeLike, reuse: Any = None) -> None:
        # As in tf.contrib, the variables of a subclass keep this scope, and with it their keys.
        is_subclass = type(self) is not CudnnCompatibleLSTMCell
        name = snake_case(CudnnCompatibleLSTMCell.__name__) if is_subclass else None
        super().__init__(num_units, reuse, name)

    _kernel, _bias = OldName("kernel"), OldName("bias")

    @property
    def state_size(self) -> LSTMStateTuple:
        """The state is `LSTMStateTuple(c, h)`, both `[batch, num_units]`."""
        return LSTMStateTuple(self._num_units, self._num_units)

    def _make_variables(self, input_size):
        num_units = self._num_units
        self._make_variable("kernel", [input_size + num_units, 4 * num_units])
        self._make_variable("bias", [4 * num_units], tf.zeros_initializer())

    def call(self, inputs: tf.Tensor, state: Nested) -> Tuple[tf.Tensor, LSTMStateTuple]:
        """Computes one step from `inputs`, `[batch, input_size]`.

        `state` is `LSTMStateTuple(c, h)` or a pair, both `[batch, num_units]`; so is the second
        part of the result, `(h, LSTMStateTuple(c, h))`. Raises the errors of `__call__`.
        """
        memory, previous = self._pair_of_states(inputs, state)
        gates = tf.nn.bias_add(tf.matmul(tf.concat([inputs, previous], 1), self.kernel), self.bias)
        input_gate, new_memory, forget_gate, output_gate = tf.split(gates, 4, axis=1)
        memory = memory * tf.sigmoid(forget_gate) + tf.sigmoid(input_gate) * tf.tanh(new_memory)
        output = tf.sigmoid(output_gate) * tf.tanh(memory)
        return output, LSTMStateTuple(memory, output)


class CudnnCompatibleGRUCell(CheckedCell):
    """A GRU cell that computes what one layer of `CudnnGRU` computes.

    Unlike in `tf.nn.rnn_cell.GRUCell`, the reset gate multiplies the recurrent product including
    its bias, not the previous output before that product.

    Variables, in the scope `cudnn_compatible_gru_cell`:

    - `gates/kernel` `[input_size + num_units, 2 * num_units]`: rows of the inputs, then of the
      previous output; columns of the reset gate, then of the update gate;
    - `gates/bias` `[2 * num_units]`, initially one;
    - `candidate/input_projection/kernel` `[input_size, num_units]`;
    - `candidate/hidden_projection/kernel` `[num_units, num_units]`;
    - `candidate/input_projection/bias` and `candidate/hidden_projection/bias`, `[num_units]`.

    Args:
      num_units: number of units, at least 1.
      reuse: True to use the existing variables of the scope, `tf.AUTO_REUSE` to create only missing
        ones; by default, all are created.
      kernel_initializer: initializer of the kernels, or the name of one, such as "orthogonal"; by
        default that of the variable scope.

    Raises:
      TypeError: `num_units` is not an integer.
      ValueError: `num_units` is below 1.
    """

    def __init__(
        self,
        num_units: SizeLike,
        reuse: Any = None,
        kernel_initializer: Union[None, str, Initializer] = None,
    ) -> None:
        super().__init__(num_units, reuse)
        self._kernel_initializer = kernel_initializer

    _gate_kernel, _gate_bias = OldName("gates/kernel"), OldName("gates/bias")
    _candidate_input_kernel = OldName("candidate/input_projection/kernel")
    _candidate_hidden_kernel = OldName("candidate/hidden_projection/kernel")
    _candidate_input_bias = OldName("candidate/input_projection/bias")
    _candidate_hidden_bias = OldName("candidate/hidden_projection/bias")

    @property
    def state_size(self) -> int:
        """The state is one tensor `[batch, num_units]`."""
        return self._num_units

    def _make_variables(self, input_size):
        num_units, kernels = self._num_units, self._kernel_initializer
        # This order is that of `variables`; seeds of the initial values depend on it.
        for name, shape, initializer in [
            ("gates/kernel", [input_size + num_units, 2 * num_units], kernels),
            ("gates/bias", [2 * num_units], tf.ones_initializer()),
            ("candidate/input_projection/kernel", [input_size, num_units], kernels),
            ("candidate/hidden_projection/kernel", [num_units, num_units], kernels),
            ("candidate/input_projection/bias", [num_units], tf.zeros_initializer()),
            ("candidate/hidden_projection/bias", [num_units], tf.zeros_initializer()),
        ]:
            self._make_variable(name, shape, initializer)

    def _project(self, name, values):
        kernel, bias = getattr(self, name + "/kernel"), getattr(self, name + "/bias")
        return tf.nn.bias_add(tf.matmul(values, kernel), bias)

    def call(self, inputs: tf.Tensor, state: Nested) -> Tuple[tf.Tensor, tf.Tensor]:
        """Computes one step from `inputs`, `[batch, input_size]`.

        `state` is the previous output, `[batch, num_units]`; so are both parts of the result,
        `(h, h)`. Raises the errors of `__call__`.
        """
        previous = self._single_state(inputs, state)
        gates = tf.sigmoid(self._project("gates", tf.concat([inputs, previous], 1)))
        reset_gate, update_gate = tf.split(gates, 2, axis=1)
        from_input = self._project("candidate/input_projection", inputs)
        from_output = self._project("candidate/hidden_projection", previous)
        candidate = tf.tanh(from_input + reset_gate * from_output)
        output = (1 - update_gate) * candidate + update_gate * previous
        return output, output
