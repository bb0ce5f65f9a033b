"""Random graphs with several RNNs, whose names contain each other."""

import numpy as np
import tensorflow.compat.v1 as tf

from cudnn_rnn import cudnn_rnn_ops
from cudnn_rnn._compat import has_projection
from cudnn_rnn.model import layout
from cudnn_rnn.model.spec import RnnConfig

STEPS, BATCH, WIDTH = 5, 3, 4
_FUNCTIONS = {
    "lstm": cudnn_rnn_ops.cudnn_lstm,
    "gru": cudnn_rnn_ops.cudnn_gru,
    "rnn_relu": cudnn_rnn_ops.cudnn_rnn_relu,
    "rnn_tanh": cudnn_rnn_ops.cudnn_rnn_tanh,
}


def random_graph(seed, is_training=False):
    """Returns a graph and the names of its outputs.

    The placeholder `inputs` is float32, `[STEPS, batch, WIDTH]`. The outputs of each RNN may be the
    inputs of the next ones. With `is_training`, the last output is the gradient for the inputs.
    """
    random = np.random.RandomState(seed)
    with tf.Graph().as_default() as graph:
        inputs = tf.placeholder(tf.float32, [STEPS, None, WIDTH], "inputs")
        sequences, outputs = [inputs], []
        for _ in range(random.randint(2, 5)):
            scope = ["", "a/", "b/", "a/b/", "b/a/", "a/b/a/"][random.randint(6)]
            sequence = sequences[random.randint(len(sequences))]
            with tf.name_scope(scope):
                results = _random_rnn(random, sequence, is_training)
            sequences.append(results[0])
            outputs += results
        outputs = [tf.identity(output, "output_%d" % i) for i, output in enumerate(outputs)]
        if is_training:
            total = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
            outputs.append(tf.identity(tf.gradients(total, inputs)[0], "gradient"))
    return graph, [output.op.name for output in outputs]


def random_inputs(seed):
    random = np.random.RandomState(seed)
    return random.standard_normal([STEPS, BATCH, WIDTH]).astype(np.float32)


def _random_rnn(random, inputs, is_training):
    """Adds an RNN with constant parameters; returns a list of all its outputs."""
    config = _random_config(random, inputs.shape.as_list()[-1])
    size = layout.params_size(config) + 3 * random.randint(2)  # a buffer may be too long
    params = tf.constant(random.uniform(-0.5, 0.5, size).astype(np.float32))
    batch = tf.shape(inputs)[1]
    count = config.num_layers * config.num_directions
    states = [tf.zeros([count, batch, config.output_units])]
    if config.rnn_mode == "lstm":
        states.append(tf.ones([count, batch, config.num_units]))
    named = {name: getattr(config, name) for name in ("input_mode", "direction")}
    if config.num_proj:
        named["num_proj"] = config.num_proj
    if random.randint(2):
        named["sequence_lengths"] = random.randint(0, STEPS + 1) * tf.ones([batch], tf.int32)
    name = [None, "CudnnRNN", "a"][random.randint(3)]
    function = _FUNCTIONS[config.rnn_mode]
    return list(function(inputs, *states, params, is_training, name=name, **named))


def _random_config(random, width):
    rnn_mode = sorted(_FUNCTIONS)[random.randint(4)]
    skips = bool(random.randint(2))
    units = width if skips else int(random.randint(1, 6))
    num_proj = 0
    if rnn_mode == "lstm" and units > 1 and not skips and has_projection() and random.randint(2):
        num_proj = int(random.randint(1, units))
    return RnnConfig(
        rnn_mode=rnn_mode,
        num_layers=int(random.randint(1, 4)),
        num_units=units,
        input_size=width,
        input_mode="skip_input" if skips else "linear_input",
        direction=["unidirectional", "bidirectional"][random.randint(2)],
        num_proj=num_proj,
    )
