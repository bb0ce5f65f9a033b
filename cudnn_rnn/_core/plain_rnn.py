"""The RNNs in standard TensorFlow ops, with the same parameters and results as the fused ops.

Slower than the fused ops, but these graphs run without this package, under XLA, in TFLite, and
convert to ONNX. docs/reference.md has the formulas.
"""

from cudnn_rnn._compat import tf
from cudnn_rnn._core.config import CUDNN_GRU, CUDNN_INPUT_SKIP_MODE, CUDNN_LSTM, GATES


class _Layer:
    """The parameters of one layer and direction.

    Attributes:
      w: `[gates * units, width]`, or None if the layer skips its input product.
      r: `[gates * units, output_width]`.
      projection: `[num_proj, units]`, or None.
      input_bias, recurrent_bias: `[gates * units]`.
    """

    w = r = projection = input_bias = recurrent_bias = None


def split_params(config, params):
    """Returns a `_Layer` for every layer and direction, from the opaque buffer `[params_size]`.

    Args:
      config: an object with rnn_mode, num_layers, num_units, input_size, input_mode,
        num_directions and num_proj, as `RnnConfig` has.
      params: `[params_size]`.
    """
    rows = len(GATES[config.rnn_mode]) * config.num_units
    output_width = config.num_proj or config.num_units
    layers, shapes = [], []

    def plan(layer, name, shape):
        shapes.append((layer, name, shape))

    for index in range(config.num_layers * config.num_directions):
        layer = _Layer()
        is_first = index < config.num_directions
        width = config.input_size if is_first else config.num_directions * output_width
        if not (is_first and config.input_mode == CUDNN_INPUT_SKIP_MODE):
            plan(layer, "w", [rows, width])
        plan(layer, "r", [rows, output_width])
        if config.num_proj:
            plan(layer, "projection", [config.num_proj, config.num_units])
        layers.append(layer)
    for layer in layers:
        plan(layer, "input_bias", [rows])
        plan(layer, "recurrent_bias", [rows])
    sizes = [shape[0] * (shape[1] if len(shape) == 2 else 1) for _, _, shape in shapes]
    for (layer, name, shape), part in zip(shapes, tf.split(params, sizes)):
        setattr(layer, name, tf.reshape(part, shape))
    return layers


def rnn(config, input_data, input_h, input_c, params, lengths=None, dropout=0.0, seed=None):
    """Runs the RNN.

    Args:
      config: as in `split_params`.
      input_data: `[time, batch, input_size]`.
      input_h: `[layers * directions, batch, units]` (`num_proj` with a projection).
      input_c: `[layers * directions, batch, units]`; used only by an LSTM.
      params: `[params_size]`.
      lengths: `[batch]`, int32, or None if all sequences have `time` steps.
      dropout: fraction of the outputs of every layer but the last that is dropped.
      seed: seed of the dropout, int or None.

    Returns:
      `(output, output_h, output_c)`: `[time, batch, directions * units]`, and the shapes of
      `input_h` and `input_c`; `output_c` is None except for an LSTM.
    """
    layers = split_params(config, params)
    final_h, final_c = [], []
    output = input_data
    for index in range(config.num_layers):
        if index and dropout:
            output = tf.nn.dropout(
                output, rate=dropout, seed=None if seed is None else seed + index
            )
        by_direction = []
        for direction in range(config.num_directions):
            number = index * config.num_directions + direction
            c = input_c[number] if config.rnn_mode == CUDNN_LSTM else None
            found, h, c = _run_layer(
                config, layers[number], output, input_h[number], c, lengths, direction == 1
            )
            by_direction.append(found)
            final_h.append(h)
            final_c.append(c)
        output = by_direction[0] if len(by_direction) == 1 else tf.concat(by_direction, axis=2)
    output_c = tf.stack(final_c) if config.rnn_mode == CUDNN_LSTM else None
    return output, tf.stack(final_h), output_c


def _run_layer(config, layer, inputs, h, c, lengths, backward):
    """Runs one layer in one direction; returns its outputs and its final h and c."""
    if backward:
        inputs = _reversed(inputs, lengths)
    # x W^T + bW for all steps at once: [time, batch, gates * units].
    if layer.w is None:
        products = tf.tile(inputs, [1, 1, len(GATES[config.rnn_mode])]) + layer.input_bias
    else:
        products = tf.einsum("tbi,gi->tbg", inputs, layer.w) + layer.input_bias
    num_steps = inputs.shape[0] if isinstance(inputs.shape[0], int) else tf.shape(inputs)[0]
    outputs = tf.TensorArray(inputs.dtype, size=num_steps, element_shape=h.shape)
    states = [h] if c is None else [h, c]

    def step(time, outputs, *states):
        new_states = _cell(config.rnn_mode, layer, products[time], *states)
        output = new_states[0]
        if lengths is not None:
            runs = (time < lengths)[:, None]
            new_states = [_select(runs, new, old) for new, old in zip(new_states, states)]
            output = _select(runs, output, tf.zeros_like(output))
        return [time + 1, outputs.write(time, output)] + list(new_states)

    results = tf.while_loop(
        lambda time, *_: time < num_steps,
        step,
        [tf.constant(0), outputs] + states,
        maximum_iterations=num_steps,
    )
    output = results[1].stack()
    output.set_shape(inputs.shape[:2].concatenate(output.shape[2:]))
    if backward:
        output = _reversed(output, lengths)
    return output, results[2], results[3] if c is not None else None


def _select(condition, left, right):
    """`tf.where` with a condition `[batch, 1]`, also in TensorFlow 1."""
    return tf.where(tf.logical_and(condition, tf.ones_like(left, tf.bool)), left, right)


def _reversed(sequences, lengths):
    """Reverses the steps of each sequence `[time, batch, width]` within its length."""
    if lengths is None:
        return tf.reverse(sequences, [0])
    return tf.reverse_sequence(sequences, lengths, seq_axis=0, batch_axis=1)


def _cell(rnn_mode, layer, x, h, c=None):
    """Computes one step; `x` is `x W^T + bW`, `[batch, gates * units]`. Returns the new states."""
    recurrent = tf.matmul(h, layer.r, transpose_b=True) + layer.recurrent_bias
    if rnn_mode == CUDNN_LSTM:
        i, f, new, o = tf.split(x + recurrent, 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(new)
        h = tf.sigmoid(o) * tf.tanh(c)
        return [
            h if layer.projection is None else tf.matmul(h, layer.projection, transpose_b=True),
            c,
        ]
    if rnn_mode == CUDNN_GRU:
        x_r, x_z, x_new = tf.split(x, 3, axis=1)
        h_r, h_z, h_new = tf.split(recurrent, 3, axis=1)
        z = tf.sigmoid(x_z + h_z)
        new = tf.tanh(x_new + tf.sigmoid(x_r + h_r) * h_new)
        return [(1.0 - z) * new + z * h]
    activation = tf.tanh if rnn_mode == "rnn_tanh" else tf.nn.relu
    return [activation(x + recurrent)]
