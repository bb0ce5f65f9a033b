"""Gradients of the ops `LSTMBlockCell` and `GRUBlockCell` in TensorFlow 2.

TensorFlow has the ops `LSTMBlockCellGrad` and `GRUBlockCellGrad`, which compute the gradients of
the state and of the pre-activations. In TensorFlow 1, `tf.contrib.rnn` registered the functions
that complete them. TensorFlow 2 registers none.

Only the gradients of the outputs that the cells use are taken into account: `cs` and `h`.
"""

from cudnn_rnn._compat import IS_TENSORFLOW_1, register_gradient, tf


def register():
    """Registers both gradients in TensorFlow 2, unless another library has done so."""
    if not IS_TENSORFLOW_1:  # tf.contrib.rnn would fail on a second registration
        register_gradient("LSTMBlockCell")(gradient_of_lstm_block_cell)
        register_gradient("GRUBlockCell")(gradient_of_gru_block_cell)


def gradient_of_lstm_block_cell(op, *gradients):
    """Returns the gradients of x, cs_prev, h_prev, w, wci, wcf, wco and b.

    `gates = [x, h_prev] w + b`, so the gradient of the gates determines those of x, h_prev, w, b.
    """
    of_outputs = dict(zip(("i", "cs", "f", "o", "ci", "co", "h"), gradients))
    names = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
    inputs = dict(zip(names, op.inputs))
    activations = dict(zip(("i", "cs", "f", "o", "ci", "co"), op.outputs))
    found = tf.raw_ops.LSTMBlockCellGrad(
        cs_grad=of_outputs["cs"],
        h_grad=of_outputs["h"],
        use_peephole=op.get_attr("use_peephole"),
        **inputs,
        **activations,
    )
    x, h_prev = inputs["x"], inputs["h_prev"]
    of_x, of_h_prev = _of_factors(found.dicfo, inputs["w"], x, h_prev)
    of_w, of_b = _of_parameters(found.dicfo, x, h_prev)
    of_peepholes = (found.wci_grad, found.wcf_grad, found.wco_grad)
    return (of_x, found.cs_prev_grad, of_h_prev, of_w, *of_peepholes, of_b)


def gradient_of_gru_block_cell(op, *gradients):
    """Returns the gradients of x, h_prev, w_ru, w_c, b_ru and b_c.

    The pre-activations are `[x, h_prev] w_ru + b_ru` and `[x, r * h_prev] w_c + b_c`.
    """
    inputs = dict(zip(("x", "h_prev", "w_ru", "w_c", "b_ru", "b_c"), op.inputs))
    activations = dict(zip("ruc", op.outputs))
    found = tf.raw_ops.GRUBlockCellGrad(d_h=gradients[3], **inputs, **activations)
    x, h_prev = inputs["x"], inputs["h_prev"]
    of_w_ru, of_b_ru = _of_parameters(found.d_r_bar_u_bar, x, h_prev)
    of_w_c, of_b_c = _of_parameters(found.d_c_bar, x, activations["r"] * h_prev)
    return (found.d_x, found.d_h_prev, of_w_ru, of_w_c, of_b_ru, of_b_c)


def _of_factors(of_product, matrix, left, right):
    """Returns the gradients of `left` and `right` in the product `[left, right] matrix`."""
    widths = [_width(left), _width(right)]
    return tf.split(tf.matmul(of_product, matrix, transpose_b=True), widths, axis=1)


def _of_parameters(of_product, left, right):
    """Returns the gradients of `matrix` and `bias` in `[left, right] matrix + bias`."""
    of_matrix = tf.matmul(tf.concat([left, right], 1), of_product, transpose_a=True)
    return of_matrix, tf.reduce_sum(of_product, axis=0)


def _width(tensor):
    """Returns the last dimension, an int if it is known when the graph is built."""
    known = tf.TensorShape(tensor.shape).as_list()[-1] if tensor.shape.ndims else None
    return tf.shape(tensor)[-1] if known is None else known
