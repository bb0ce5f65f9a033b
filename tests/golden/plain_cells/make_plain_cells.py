"""Makes the checkpoints of this folder, with TensorFlow 1.15.5 alone.

    python make_plain_cells.py FOLDER

See README.md. Run it again only for a case that is new.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn as contrib_rnn

STEPS, BATCH, WIDTH, UNITS = 4, 2, 3, 4
STACK = tf.nn.rnn_cell.MultiRNNCell
basic, lstm = tf.nn.rnn_cell.BasicLSTMCell, tf.nn.rnn_cell.LSTMCell
block, fused = contrib_rnn.LSTMBlockCell, contrib_rnn.LSTMBlockFusedCell
GRU, BLOCK_GRU = tf.nn.rnn_cell.GRUCell, contrib_rnn.GRUBlockCellV2


def one_rnn(scope, num_layers, forget_biases, direction="unidirectional", num_proj=0):
    """Returns what a test expects of an RNN: a forget bias for each layer and direction."""
    named = dict(scope=scope, num_layers=num_layers, forget_biases=forget_biases)
    return dict(named, direction=direction, num_proj=num_proj)


def run(cells, inputs):
    return tf.nn.dynamic_rnn(cells, inputs, dtype=tf.float32, time_major=True)[0]


# Each case returns (the expected RNNs, their outputs). No RNN: the case is refused.


def basic_trained(inputs):
    with tf.variable_scope("encoder"):
        outputs = run(STACK([basic(UNITS) for _ in range(2)]), inputs)
    return [one_rnn("encoder", 2, [1.0, 1.0])], [outputs]


def momentum(inputs):
    return [one_rnn("", 1, [1.0])], [run(lstm(UNITS), inputs)]


def projected(inputs):
    cells = [lstm(UNITS, num_proj=2, forget_bias=value) for value in (0.25, 0.0)]
    return [one_rnn("", 2, [0.25, 0.0], num_proj=2)], [run(STACK(cells), inputs)]


def one_bidirectional_layer(inputs):
    cells = [basic(UNITS, forget_bias=2.0), basic(UNITS, forget_bias=2.0)]
    with tf.variable_scope("encoder"):
        outputs, _ = tf.nn.bidirectional_dynamic_rnn(
            *cells, inputs, dtype=tf.float32, time_major=True
        )
    return [one_rnn("encoder", 1, [2.0, 2.0], "bidirectional")], [tf.concat(outputs, 2)]


def own_scope_of_ways(inputs):
    cells = [lstm(UNITS), lstm(UNITS)]
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(
        *cells, inputs, dtype=tf.float32, time_major=True, scope="reader"
    )
    return [one_rnn("reader", 1, [1.0, 1.0], "bidirectional")], [tf.concat(outputs, 2)]


def two_stacks(inputs):
    stacks = [STACK([lstm(UNITS) for _ in range(2)]) for _ in range(2)]
    (forward, backward), _ = tf.nn.bidirectional_dynamic_rnn(
        *stacks, inputs, dtype=tf.float32, time_major=True
    )
    rnns = [one_rnn("bidirectional_rnn/" + way, 2, [1.0, 1.0]) for way in ("bw", "fw")]
    return rnns, [backward[::-1], forward]


def bidirectional_stack(inputs):
    cells = [[block(UNITS, forget_bias=0.5) for _ in range(2)] for _ in range(2)]
    outputs, _, _ = contrib_rnn.stack_bidirectional_dynamic_rnn(
        *cells, inputs, dtype=tf.float32, time_major=True
    )
    return [one_rnn("", 2, [0.5] * 4, "bidirectional")], [outputs]


def own_scope_of_a_bidirectional_stack(inputs):
    cells = [[basic(UNITS) for _ in range(2)] for _ in range(2)]
    outputs, _, _ = contrib_rnn.stack_bidirectional_dynamic_rnn(
        *cells, inputs, dtype=tf.float32, time_major=True, scope="reader"
    )
    return [one_rnn("reader", 2, [1.0] * 4, "bidirectional")], [outputs]


def fused_cells(inputs):
    with tf.variable_scope("encoder"):
        below, _ = fused(UNITS)(inputs, dtype=tf.float32)
        above, _ = fused(UNITS, forget_bias=0.0)(below, dtype=tf.float32)
    rnns = [one_rnn("encoder", 1, [1.0]), one_rnn("encoder/lstm_fused_cell_1", 1, [0.0])]
    return rnns, [below, above]


def static(inputs):
    outputs, _ = tf.nn.static_rnn(
        STACK([block(UNITS), block(UNITS, forget_bias=3.0)]), tf.unstack(inputs), dtype=tf.float32
    )
    return [one_rnn("", 2, [1.0, 3.0])], [tf.stack(outputs)]


def refused(make_cell):
    def case(inputs):
        with tf.variable_scope("encoder"):
            cell = make_cell()
            cell(inputs[0], cell.zero_state(BATCH, tf.float32))
        return [], []

    return case


CASES = {
    function.__name__: function
    for function in (
        basic_trained,
        momentum,
        projected,
        one_bidirectional_layer,
        own_scope_of_ways,
        two_stacks,
        bidirectional_stack,
        own_scope_of_a_bidirectional_stack,
        fused_cells,
        static,
    )
}
CASES.update(
    refused_peepholes=refused(lambda: lstm(UNITS, use_peepholes=True)),
    refused_block_peepholes=refused(lambda: block(UNITS, use_peephole=True)),
    refused_clip=refused(lambda: lstm(UNITS, cell_clip=1.5)),
    refused_block_clip=refused(lambda: block(UNITS, cell_clip=1.5)),
    refused_projection_clip=refused(lambda: lstm(UNITS, num_proj=2, proj_clip=1.5)),
    refused_activation=refused(lambda: basic(UNITS, activation=tf.nn.relu)),
    refused_gru=refused(lambda: GRU(UNITS)),
    refused_block_gru=refused(lambda: BLOCK_GRU(UNITS)),
)
OPTIMIZERS = {
    "basic_trained": lambda: tf.train.AdamOptimizer(0.01),
    "momentum": lambda: tf.train.MomentumOptimizer(0.01, 0.9),
}
# The test gives the forget bias of these.
WITHOUT_GRAPH = (
    "own_scope_of_ways",
    "two_stacks",
    "bidirectional_stack",
    "own_scope_of_a_bidirectional_stack",
)


def make(name, folder):
    """Saves the case; of a trained one, also the variables after another step."""
    os.makedirs(folder)
    random = np.random.RandomState(sorted(CASES).index(name))
    expected = {"inputs": random.uniform(-1, 1, [STEPS, BATCH, WIDTH]).astype(np.float32)}
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = tf.placeholder(tf.float32, [STEPS, BATCH, WIDTH], name="inputs")
        feed = {inputs: expected["inputs"]}
        rnns, outputs = CASES[name](inputs)
        variables = tf.trainable_variables()
        if name in OPTIMIZERS:
            loss = tf.reduce_sum(tf.square(outputs[0]))
            train = OPTIMIZERS[name]().minimize(loss)
        session.run(tf.global_variables_initializer())
        for variable in variables:
            shape = variable.shape.as_list()
            variable.load(random.uniform(-0.7, 0.7, shape).astype(np.float32), session)
        for _ in range(2 if name in OPTIMIZERS else 0):
            session.run(train, feed)
        tf.train.Saver().save(
            session,
            os.path.join(folder, "model.ckpt"),
            write_meta_graph=name not in WITHOUT_GRAPH,
            strip_default_attrs=name != "basic_trained",
        )
        for number, value in enumerate(session.run(outputs, feed)):
            expected["outputs_%d" % number] = value
        if name in OPTIMIZERS:
            session.run(train, feed)
            after = session.run({variable.op.name: variable for variable in variables})
            expected.update({"after/" + key: value for key, value in after.items()})
        keys = {variable.op.name: variable.shape.as_list() for variable in variables}
    os.remove(os.path.join(folder, "checkpoint"))
    np.savez(os.path.join(folder, "expected.npz"), **expected)
    case = dict(tensorflow=tf.__version__, rnns=rnns, keys=keys, num_units=UNITS, input_size=WIDTH)
    with open(os.path.join(folder, "case.json"), "w") as file:
        json.dump(case, file, indent=1, sort_keys=True)
        file.write("\n")


def main():
    for name in CASES:
        folder = os.path.join(sys.argv[1], name)
        if not os.path.exists(folder):
            make(name, folder)


if __name__ == "__main__":
    main()
