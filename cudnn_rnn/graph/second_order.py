"""Gradients of the gradient ops, which gradient penalties need, for example.

`CudnnRNNBackprop` computes J(z)^T g from the model's inputs z = (input, input_h, input_c, params)
and the gradients g with respect to its outputs, where J is the Jacobian of the model. No kernel
computes the derivative of that. So this module rebuilds the model step by step from TensorFlow's
own ops and differentiates twice. This works for every mode, direction, number of layers, sequence
lengths and projection. The number of nodes grows with the number of steps, which must be known
when the graph is built.
"""

from cudnn_rnn._compat import register_gradient, tf
from cudnn_rnn.graph import model_sizes, plain_rnn
from cudnn_rnn.model.spec import CUDNN_LSTM

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
    # Copies, because of loops: in the gradient of a body, the op's inputs are what the loop
    # accumulated, and a tape does not see that they are the outputs of a tf.cond in that body.
    model_inputs = [tf.identity(inputs[place]) for place in places]
    backprops = [tf.identity(inputs[place]) for place in backprop_places]
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
        self._name = op.name if hasattr(op, "name") else op.type
        self._lengths = lengths
        self._config, self._time_major = model_sizes.model_of_operation(op)
        self.is_lstm = self._config.rnn_mode == CUDNN_LSTM
        rank, axis = op.inputs[0].shape.rank, 0 if self._time_major else 1
        for what, size in (
            ("the number of time steps", rank and op.inputs[0].shape.as_list()[axis]),
            ("input_size", self._config.input_size),
            ("num_layers", self._config.num_layers),
            ("num_units", self._config.num_units),
        ):
            if size is None:
                self._refuse(
                    "%s must be known when the graph is built, but is unknown: input has shape %s "
                    "and input_h has shape %s" % (what, op.inputs[0].shape, op.inputs[1].shape)
                )
        if self._config.dropout > 0 and self._config.num_layers > 1:
            self._refuse(
                "dropout is %g; expected 0, because the op does not return which inputs it "
                "dropped. Create the model without dropout" % self._config.dropout
            )

    def _refuse(self, reason):
        raise LookupError(
            "The second-order gradient of CudnnRNN is not available: %s. The gradient op is %r. If "
            "a first-order gradient suffices, wrap it in tf.stop_gradient." % (reason, self._name)
        )

    def run(self, *tensors):
        """Returns a list of output, output_h and (LSTM) output_c, in the dtype of the op.

        `tensors` are input, input_h, (LSTM) input_c and params.
        """
        if not self.is_lstm:
            tensors = (*tensors[:2], None, tensors[2])
        results = plain_rnn.rnn(self._config, tensors, self._lengths, self._time_major, unroll=True)
        return list(results if self.is_lstm else results[:2])
