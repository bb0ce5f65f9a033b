"""Serves a checkpoint that tf.contrib.cudnn_rnn of TensorFlow 1.4 to 1.15 wrote, on a CPU.

The program that trained the model, on a GPU, is not needed: only its checkpoint, the sizes of the
layer, and the scope that precedes the keys. (tf.train.list_variables(path) lists the keys.) Step 1
builds the inference graph, restores the canonical weights and exports a SavedModel. Step 2, for
which only `import cudnn_rnn` is necessary, loads the SavedModel and answers a request.

The default is a checkpoint in this repository, written by the original code of TensorFlow 1.15.5;
the outputs that TensorFlow 1.15.5 computed from it are known, and are compared with ours.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(ROOT, "tests", "golden", "tf1.15.5", "lstm_L3_H16_I8_bi")
CHECKPOINT = os.path.join(GOLDEN, "model.ckpt")
CLASSES = {
    "lstm": cudnn_rnn.layers.CudnnLSTM,
    "gru": cudnn_rnn.layers.CudnnGRU,
    "rnn_tanh": cudnn_rnn.layers.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.layers.CudnnRNNRelu,
}


def export(options, folder):
    """Restores the checkpoint into an inference graph, and writes a SavedModel."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer = CLASSES[options.cell](options.layers, options.units, direction=options.direction)
        with tf.variable_scope(options.scope or tf.get_variable_scope()):
            layer.build([None, None, options.input_size])  # creates the saveable
        # [time, batch, input_size]
        inputs = tf.placeholder(tf.float32, [None, None, options.input_size])
        outputs, _ = layer(inputs, training=False)
        # Restores the canonical weights, whose keys do not depend on where the variable was.
        tf.train.Saver([layer.saveable]).restore(session, options.checkpoint)
        tf.saved_model.simple_save(session, folder, {"inputs": inputs}, {"outputs": outputs})


def answer(folder, inputs):
    """Loads a SavedModel; returns its outputs for `inputs`, an array."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = tf.saved_model.load(session, ["serve"], folder)
        signature = model.signature_def["serving_default"]
        feed = {signature.inputs["inputs"].name: inputs}
        return session.run(signature.outputs["outputs"].name, feed)


def parse_options(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--checkpoint", metavar="PATH", default=CHECKPOINT, help="prefix of its files")
    add("--cell", choices=sorted(CLASSES), default="lstm", help="kind of RNN")
    add("--layers", type=int, default=3, help="num_layers")
    add("--units", type=int, default=16, help="num_units")
    add("--input-size", type=int, default=8, help="width of the inputs")
    add("--direction", default="bidirectional", help="unidirectional or bidirectional")
    add("--scope", default="", help="precedes /rnn/ or /stack_bidirectional_rnn/ in the keys")
    add("--expected", metavar="FILE", help="NumPy archive of 'inputs' and 'outputs' to compare")
    add("--output", metavar="FOLDER", help="new folder for the SavedModel; temporary if omitted")
    add("--quick", action="store_true", help="changes nothing: the program is quick")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_options(arguments)
    expected = options.expected
    if expected is None and options.checkpoint == CHECKPOINT:
        expected = os.path.join(GOLDEN, "expected.npz")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output or os.path.join(temporary, "saved_model")
        export(options, folder)
        if expected is None:
            outputs = answer(folder, np.ones([1, 1, options.input_size], np.float32))
            print("outputs for ones:\n%s" % outputs[0, 0])
            return
        with np.load(expected) as arrays:
            outputs = answer(folder, arrays["inputs"])
            difference = np.abs(outputs - arrays["outputs"]).max()
    print("outputs %s, for example %s" % (outputs.shape, outputs[0, 0, :4]))
    print("largest difference from the recorded outputs: %.1e" % difference)


if __name__ == "__main__":
    main()
