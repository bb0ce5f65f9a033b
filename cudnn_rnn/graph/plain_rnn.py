"""The RNNs in standard TensorFlow ops, with the parameters and the results of the fused ops.

They are slower than the fused ops, but run without this package, under XLA and in converters.
docs/reference.md has the formulas. `plain_ops` is a context in which `nodes.py` builds them.
"""

import contextlib
import threading
from typing import Any, Dict, Iterator

from cudnn_rnn._compat import tf
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import CUDNN_GRU, CUDNN_LSTM, CUDNN_RNN_TANH
from cudnn_rnn.model.weights import LayerWeights

_scope = threading.local()


@contextlib.contextmanager
def plain_ops() -> Iterator[None]:
    """Returns a context in which models build standard TensorFlow ops instead of `CudnnRNN` nodes.

    It affects all classes, functions and layers of this package, Keras layers too, in this thread.
    XLA compiles such a graph (`tf.function(jit_compile=True)`), and it runs without this package.
    The context must be active when a `tf.function` is traced; a function that was traced outside
    keeps its nodes.

    Sequence lengths must be at most the number of time steps; the plain ops do not check them.
    In TensorFlow 1, gradients need at least one time step, unless the number is statically 0.
    """
    before = builds_plain_ops()
    _scope.is_active = True
    try:
        yield
    finally:
        _scope.is_active = before


def builds_plain_ops():
    """Returns whether a `plain_ops` context is active in this thread."""
    return getattr(_scope, "is_active", False)


def params_to_canonical(config, params):
    """Returns `(weights, biases)`, lists of tensors with the shapes of the canonical form."""
    weights = layout.canonical_weights(config)
    regions = weights + layout.canonical_biases(config)
    parts = _split(params, [region.shape for region in regions])
    return parts[: len(weights)], parts[len(weights) :]


def canonical_to_params(weights, biases):
    """Returns the opaque buffer, `[params_size]`."""
    return tf.concat([tf.reshape(part, [-1]) for part in weights + biases], axis=0)


def rnn(config, tensors, sequence_lengths=None, time_major=True, masks=None, unroll=False):
    """Runs an RNN.

    Args:
      config: an `RnnConfig`; its dtype, dropout and seeds do not matter.
      tensors: input_data, `[time, batch, input_size]`; input_h, `[layers * directions, batch,
        output_units]`; input_c, `[layers * directions, batch, units]`, used only by an LSTM; and
        params, `[params_size]`, which may be longer or of another rank, as for the fused ops.
      sequence_lengths: `[batch]`, int32, or None if all sequences have `time` steps.
      time_major: if False, the first two dimensions of the data and the states are swapped.
      masks: from `dropout_masks`, or None.
      unroll: if True, builds nodes for every time step, whose number must be known, and no loop. In
        TensorFlow 1's graphs a loop has no gradient of the gradient.

    Returns:
      `(output, output_h, output_c)`: `[time, batch, directions * output_units]`, and the shapes of
      `input_h` and `input_c`; `output_c` is a scalar, as the ops declare, except for an LSTM.
    """
    input_data, input_h, input_c, params = tensors
    dtype = params.dtype
    # 16-bit dtypes are computed in float32, as in the kernels.
    computed = dtype if dtype in (tf.float32, tf.float64) else tf.float32

    def prepared(tensor):
        return _swapped(tf.cast(tensor, computed), time_major)

    is_lstm = config.rnn_mode == CUDNN_LSTM
    inputs, initial = prepared(input_data), [prepared(input_h)]
    if is_lstm:
        initial.append(prepared(input_c))
    _share_batch_size([inputs, *initial])
    valid = None
    if sequence_lengths is not None:
        valid = tf.range(tf.shape(inputs)[0])[:, None, None] < sequence_lengths[:, None]
        # Inputs beyond a sequence's end may be anything, even NaN.
        inputs = tf.where_v2(valid, inputs, tf.zeros_like(inputs))
    layers = _layers(config, tf.cast(params, computed))
    final = []
    for index in range(config.num_layers):
        if index and masks is not None:
            inputs *= tf.cast(masks[index - 1], computed)
        by_direction = []
        for place in range(index * config.num_directions, (index + 1) * config.num_directions):
            outputs, states = _run_layer(
                _Cell(config, layers[place]),
                inputs,
                tuple(state[place] for state in initial),
                valid,
                place % config.num_directions == 1,
                unroll,
            )
            by_direction.append(outputs)
            final.append(states)
        inputs = tf.concat(by_direction, axis=2) if len(by_direction) > 1 else by_direction[0]
    results = [inputs] + [tf.stack(states) for states in zip(*final)]
    results = [tf.cast(_swapped(result, time_major), dtype) for result in results]
    return tuple(results) if is_lstm else (*results, tf.zeros([], dtype))


def dropout_masks(config, input_data, time_major=True):
    """Returns factors for the inputs of all layers but the first, or None without dropout.

    They are 0 or 1 / (1 - dropout), `[layers - 1, time, batch, directions * output_units]`, drawn
    anew at each run.

    Args:
      config: an `RnnConfig`; `nodes.rnn` describes its seeds.
      input_data: `[time, batch, input_size]`, or batch-major.
      time_major: bool.
    """
    if not config.dropout or config.num_layers == 1:
        return None
    shape = tf.shape(input_data)
    time, batch = (shape[0], shape[1]) if time_major else (shape[1], shape[0])
    width = config.num_directions * config.output_units
    random = tf.raw_ops.RandomUniform(
        shape=tf.stack([config.num_layers - 1, time, batch, width]),
        dtype=tf.float32,
        seed=config.seed,
        seed2=config.seed2,
    )
    scale = 1.0 / (1.0 - config.dropout) if config.dropout < 1.0 else 0.0
    return tf.cast(tf.cast(random >= config.dropout, tf.float32) * scale, input_data.dtype)


def _swapped(tensor, time_major):
    return tensor if time_major else tf.transpose(tensor, [1, 0, 2])


def _share_batch_size(tensors):
    """Gives time-major tensors the static batch size that any of them has."""
    batch = tf.TensorShape([None])
    for tensor in tensors:
        batch = batch.merge_with(tensor.shape.with_rank(3)[1:2])
    for tensor in tensors:
        tensor.set_shape(tf.TensorShape([None]).concatenate(batch).concatenate([None]))


def _split(params, shapes):
    """Splits the front of a tensor, in row-major order, into tensors of these shapes."""
    if params.shape.rank != 1:
        params = tf.reshape(params, [-1])
    sizes = [_num_elements(shape) for shape in shapes]
    if params.shape.num_elements() != sum(sizes):
        params = tf.slice(params, [0], [sum(sizes)])
    return [tf.reshape(part, shape) for part, shape in zip(tf.split(params, sizes), shapes)]


def _num_elements(shape):
    return shape[0] * (shape[1] if len(shape) == 2 else 1)


def _layers(config, params):
    """Returns a `LayerWeights` of tensors for every layer and direction.

    Its input weights are None if the layer adds its input to every gate.
    """
    regions = [region for region in layout.joined_regions(config) if region.size]
    parts: Dict[Any, Dict[str, Any]] = {}
    for region, tensor in zip(regions, _split(params, [region.shape for region in regions])):
        parts.setdefault((region.layer, region.direction), {})[region.kind] = tensor
    return [
        LayerWeights(**dict({"input_weights": None}, **parts[place])) for place in sorted(parts)
    ]


def _run_layer(cell, inputs, states, valid, backward, unroll):
    """Runs one layer in one direction.

    Args:
      cell: a `_Cell`.
      inputs: `[time, batch, width]`.
      states: `(h,)` or `(h, c)`, each `[batch, width]`.
      valid: bool `[time, batch, 1]`, whether the step belongs to the sequence; None if all do.
      backward: whether to run from the last step to the first.
      unroll: as in `rnn`.

    Returns:
      The outputs and the final states, a tuple.
    """
    sequences = [cell.input_products(inputs)] + ([] if valid is None else [valid])
    if backward:
        sequences = [tf.reverse(sequence, [0]) for sequence in sequences]
    num_steps = inputs.shape.as_list()[0]
    if num_steps is None:
        num_steps = tf.shape(inputs)[0]
    is_unrolled = unroll or inputs.shape.as_list()[0] == 0  # a TensorArray must have elements
    outputs, states = (_unrolled if is_unrolled else _loop)(cell, sequences, states, num_steps)
    outputs.set_shape(inputs.shape[:2].concatenate([cell.output_units]))
    return tf.reverse(outputs, [0]) if backward else outputs, states


def _step(cell, states, x, valid=None):
    """Returns the output and the next states of one step."""
    new_states = cell(x, states)
    if valid is None:
        return new_states[0], new_states
    output = tf.where_v2(valid, new_states[0], tf.zeros_like(new_states[0]))
    return output, tuple(tf.where_v2(valid, new, old) for new, old in zip(new_states, states))


def _unrolled(cell, sequences, states, num_steps):
    outputs = []
    for time in range(num_steps):
        output, states = _step(cell, states, *[sequence[time] for sequence in sequences])
        outputs.append(output)
    return tf.stack(outputs) if outputs else sequences[0][:, :, : cell.output_units], states


def _loop(cell, sequences, states, num_steps):
    # The outputs are in a list, not in a TensorArray: the shape of its elements is a tensor, which
    # converters can compute from the shape of the input. Reads and writes are in the order of the
    # loop, as ONNX requires: tf2onnx ignores their indices.
    shape, dtype = tf.shape(states[0]), states[0].dtype
    arrays = [tf.TensorArray(sequence.dtype, num_steps).unstack(sequence) for sequence in sequences]
    outputs = tf.raw_ops.TensorListReserve(
        element_shape=shape, num_elements=num_steps, element_dtype=dtype
    )

    def step(time, outputs, *states):
        output, states = _step(cell, states, *[array.read(time) for array in arrays])
        outputs = tf.raw_ops.TensorListSetItem(input_handle=outputs, index=time, item=output)
        return (time + 1, outputs, *states)

    _, outputs, *states = tf.while_loop(
        lambda *_: True,  # the number of steps in a condition makes tf2onnx mix up its dtype
        step,
        (tf.constant(0), outputs, *states),
        maximum_iterations=num_steps,
    )
    outputs = tf.raw_ops.TensorListStack(
        input_handle=outputs,
        element_shape=shape,
        element_dtype=dtype,
        # TFLite's converter refuses a list of a known length without it.
        num_elements=num_steps if isinstance(num_steps, int) else -1,
    )
    return outputs, tuple(states)


class _Cell:
    """One layer in one direction."""

    def __init__(self, config, weights):
        self._mode, self._num_gates = config.rnn_mode, len(config.gates)
        self._weights = weights
        self.output_units = config.output_units

    def input_products(self, inputs):
        """Returns `W x + bW`, or `W x + bW + bR` except for a GRU, for all steps."""
        weights = self._weights
        if weights.input_weights is None:
            products = tf.tile(inputs, [1, 1, self._num_gates])
        else:
            products = tf.einsum("tbi,gi->tbg", inputs, weights.input_weights)
        if self._mode == CUDNN_GRU:  # multiplies R h' + bR by the reset gate
            return products + weights.input_bias
        return products + (weights.input_bias + weights.recurrent_bias)

    def __call__(self, x, states):
        """Returns the next states, (h,) or (h, c), each `[batch, width]`; x is of one step."""
        recurrent = tf.matmul(states[0], self._weights.recurrent_weights, transpose_b=True)
        if self._mode == CUDNN_LSTM:
            return self._lstm(x + recurrent, states[1])
        if self._mode == CUDNN_GRU:
            return self._gru(x, recurrent + self._weights.recurrent_bias, states[0])
        return ((tf.tanh if self._mode == CUDNN_RNN_TANH else tf.nn.relu)(x + recurrent),)

    def _gru(self, x, recurrent, h):
        x_reset, x_update, x_new = tf.split(x, 3, axis=1)
        h_reset, h_update, h_new = tf.split(recurrent, 3, axis=1)
        update = tf.sigmoid(x_update + h_update)
        new_memory = tf.tanh(x_new + tf.sigmoid(x_reset + h_reset) * h_new)
        return ((1.0 - update) * new_memory + update * h,)

    def _lstm(self, gates, c):
        input_gate, forget_gate, new_memory, output_gate = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(forget_gate) * c + tf.sigmoid(input_gate) * tf.tanh(new_memory)
        h = tf.sigmoid(output_gate) * tf.tanh(c)
        if self._weights.projection is not None:
            h = tf.matmul(h, self._weights.projection, transpose_b=True)
        return h, c
