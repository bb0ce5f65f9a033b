"""Gradients of the gradient ops, which gradient penalties need, for example.

`CudnnRNNBackprop` computes J(z)^T g from the model's inputs z = (input, input_h, input_c, params)
and the gradients g with respect to its outputs, where J is the Jacobian of the model. No kernel
computes the derivative of that. So this module rebuilds the model step by step from TensorFlow's
own ops and differentiates twice. This works for every mode, direction, number of layers, sequence
lengths and projection. The number of nodes grows with the number of steps, which must be known
when the graph is built.
"""

from cudnn_rnn._compat import projection_of, register_gradient, tf
from cudnn_rnn._core import canonical
from cudnn_rnn._core.config import (
    CUDNN_GRU,
    CUDNN_LSTM,
    CUDNN_RNN_BIDIRECTION,
    CUDNN_RNN_TANH,
    RnnConfig,
)

_NUM_MODEL_INPUTS = 4  # input, input_h, input_c, params


@register_gradient("CudnnRNNBackprop")
@register_gradient("CudnnRNNBackpropV2")
@register_gradient("CudnnRNNBackpropV3")
def _gradient_of_backprop(op, *gradients):
    inputs = list(op.inputs)
    has_lengths = op.type.endswith("V3")
    lengths = inputs[_NUM_MODEL_INPUTS] if has_lengths else None
    # The op's inputs: the model's inputs z, the lengths (V3), the model's three outputs (functions
    # of z, so without a gradient here), and the gradients with respect to those outputs.
    first = _NUM_MODEL_INPUTS + (1 if has_lengths else 0) + 3
    model = _Model(op, lengths)
    places = [0, 1, 2, 3] if model.is_lstm else [0, 1, 3]
    backprop_places = [first, first + 1] + ([first + 2] if model.is_lstm else [])
    model_inputs = [inputs[place] for place in places]
    backprops = [inputs[place] for place in backprop_places]
    upstream = [
        tf.zeros_like(inputs[place]) if gradients[place] is None else gradients[place]
        for place in places
    ]
    with tf.GradientTape() as outer:
        outer.watch(model_inputs + backprops)
        with tf.GradientTape() as inner:
            inner.watch(model_inputs)
            outputs = model.run(*model_inputs)
        first_order = inner.gradient(
            outputs, model_inputs, backprops, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
    found = outer.gradient(first_order, model_inputs + backprops, upstream)
    results = [None] * len(inputs)
    for place, gradient in zip(places + backprop_places, found):
        results[place] = gradient
    return results


class _Model:
    """The model of a gradient op, rebuilt from TensorFlow's own ops."""

    def __init__(self, op, lengths):
        """Reads attributes and static shapes; raises `LookupError` if there is no gradient."""
        is_v3 = op.type.endswith("V3")
        self._name = op.name if hasattr(op, "name") else op.type
        self._lengths = lengths
        self._time_major = op.get_attr("time_major") if is_v3 else True
        direction = tf.compat.as_str(op.get_attr("direction"))
        rnn_mode = tf.compat.as_str(op.get_attr("rnn_mode"))
        self.is_lstm = rnn_mode == CUDNN_LSTM
        steps, _, input_size = self._static_shape(op.inputs[0])
        states, _, width = self._static_shape(op.inputs[1])
        units = self._static_shape(op.inputs[2])[2] if self.is_lstm else width
        for what, size in (
            ("the number of time steps", steps),
            ("input_size", input_size),
            ("num_layers", states),
            ("num_units", units),
        ):
            if size is None:
                self._refuse(
                    "%s must be known when the graph is built, but is unknown: input has shape %s "
                    "and input_h has shape %s" % (what, op.inputs[0].shape, op.inputs[1].shape)
                )
        num_layers = states // (2 if direction == CUDNN_RNN_BIDIRECTION else 1)
        if op.get_attr("dropout") > 0 and num_layers > 1:
            self._refuse(
                "dropout is %g; expected 0, because the op does not return which inputs it "
                "dropped. Create the model without dropout" % op.get_attr("dropout")
            )
        dtype = op.inputs[0].dtype.base_dtype
        # 16-bit dtypes are computed in float32, as in the kernels.
        self._dtype = dtype if dtype in (tf.float32, tf.float64) else tf.float32
        self._outer_dtype = dtype
        self._steps = steps
        sizes = (num_layers, units, input_size)
        modes = (tf.compat.as_str(op.get_attr("input_mode")), direction)
        seeds = dict(seed=0, seed2=0, num_proj=projection_of(op))
        self._config = RnnConfig.checked(rnn_mode, *sizes, *modes, self._dtype, 0.0, **seeds)

    def _static_shape(self, tensor):
        """Returns the time-major sizes (first, batch, last) of a tensor; None for unknown ones."""
        shape = tensor.shape
        if shape.rank is None:
            return None, None, None
        sizes = shape.as_list()
        return sizes if self._time_major else [sizes[1], sizes[0], sizes[2]]

    def _refuse(self, reason):
        raise LookupError(
            "The second-order gradient of CudnnRNN is not available: %s. The gradient op is %r. If "
            "a first-order gradient suffices, wrap it in tf.stop_gradient." % (reason, self._name)
        )

    def run(self, *tensors):
        """Returns a list of output, output_h and (LSTM) output_c, in the dtype of the op.

        `tensors` are input, input_h, (LSTM) input_c and params.
        """
        inputs, *states, params = [tf.cast(tensor, self._dtype) for tensor in tensors]
        states = [self._swapped(state) for state in states]
        outputs, states = self._run(self._swapped(inputs), states, params)
        results = [self._swapped(tensor) for tensor in [outputs] + states]
        return [tf.cast(tensor, self._outer_dtype) for tensor in results]

    def _swapped(self, tensor):
        return tensor if self._time_major else tf.transpose(tensor, [1, 0, 2])

    def _run(self, inputs, initial, params):
        """Runs all layers on time-major tensors; returns (outputs, list of final states)."""
        config = self._config
        parts = config.num_layers * config.num_directions
        weights, biases = (
            canonical.chunks(values, len(values) // parts)
            for values in canonical.params_to_canonical(config, None, params)
        )
        valid = None
        if self._lengths is not None and self._steps:
            lengths = tf.reshape(self._lengths, [-1, 1])
            valid = [lengths > step for step in range(self._steps)]  # each [batch, 1]
            # Inputs beyond a sequence's end may be anything, even NaN.
            inputs = tf.where_v2(tf.stack(valid), inputs, tf.zeros_like(inputs))
        steps = tf.unstack(inputs, self._steps)
        final = []
        for layer in range(config.num_layers):
            of_directions = []
            for direction in range(config.num_directions):
                part = layer * config.num_directions + direction
                cell = _Cell(config, weights[part], biases[part], layer)
                state = tuple(values[part] for values in initial)
                outputs, state = self._one_direction(cell, steps, valid, state, direction == 1)
                of_directions.append(outputs)
                final.append(state)
            steps = [tf.concat(step, axis=1) for step in zip(*of_directions)]
        batch = tf.shape(inputs)[1]
        width = config.num_directions * config.output_units
        outputs = tf.stack(steps) if steps else tf.zeros([0, batch, width], self._dtype)
        return outputs, [tf.stack(values) for values in zip(*final)]

    def _one_direction(self, cell, steps, valid, state, backward):
        outputs = [None] * len(steps)
        order = range(len(steps))
        for step in reversed(order) if backward else order:
            new_state = cell(steps[step], state)
            output = new_state[0]
            if valid is not None:
                new_state = tuple(
                    tf.where_v2(valid[step], new, old) for new, old in zip(new_state, state)
                )
                output = tf.where_v2(valid[step], output, tf.zeros_like(output))
            outputs[step], state = output, new_state
        return outputs, state


class _Cell:
    """One layer and direction; `op_level.py` documents the formulas."""

    def __init__(self, config, weights, biases, layer):
        num_gates = len(config.gates)
        self._config = config
        self._num_gates = num_gates
        skips = layer == 0 and config.skips_input_projection
        # [num_gates * num_units, width] and [num_gates * num_units, output_units]
        self._input_weights = None if skips else tf.concat(weights[:num_gates], axis=0)
        self._recurrent_weights = tf.concat(weights[num_gates : 2 * num_gates], axis=0)
        self._projection = weights[-1] if config.num_proj else None
        self._input_bias = tf.concat(biases[:num_gates], axis=0)
        self._recurrent_bias = tf.concat(biases[num_gates:], axis=0)

    def __call__(self, x, state):
        """Returns the next state: (h,), or (h, c) for an LSTM, each `[batch, width]`."""
        from_input = (
            tf.tile(x, [1, self._num_gates])
            if self._input_weights is None
            else tf.matmul(x, self._input_weights, transpose_b=True)
        )
        from_input = self._gates(from_input + self._input_bias)
        recurrent = tf.matmul(state[0], self._recurrent_weights, transpose_b=True)
        recurrent = self._gates(recurrent + self._recurrent_bias)
        if self._config.rnn_mode == CUDNN_GRU:
            return (self._gru(from_input, recurrent, state[0]),)
        gates = [one + other for one, other in zip(from_input, recurrent)]
        if self._config.rnn_mode == CUDNN_LSTM:
            return self._lstm(gates, state[1])
        is_tanh = self._config.rnn_mode == CUDNN_RNN_TANH
        return (tf.tanh(gates[0]) if is_tanh else tf.nn.relu(gates[0]),)

    def _gates(self, values):
        return tf.split(values, self._num_gates, axis=1)

    def _gru(self, from_input, recurrent, h):
        reset, update = (tf.sigmoid(from_input[gate] + recurrent[gate]) for gate in range(2))
        new_memory = tf.tanh(from_input[2] + reset * recurrent[2])
        return (1 - update) * new_memory + update * h

    def _lstm(self, gates, c):
        input_gate, forget_gate, new_memory, output_gate = gates
        c = tf.sigmoid(forget_gate) * c + tf.sigmoid(input_gate) * tf.tanh(new_memory)
        h = tf.sigmoid(output_gate) * tf.tanh(c)
        if self._projection is not None:
            h = tf.matmul(h, self._projection, transpose_b=True)
        return h, c
