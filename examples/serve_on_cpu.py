"""Serves a checkpoint that tf.contrib.cudnn_rnn of TensorFlow 1.4 to 1.15 wrote, on a CPU.

The program that trained the model, on a GPU, is not needed: only its checkpoint, the sizes of the
layer, and the scope that precedes the keys. (tf.train.list_variables(path) lists the keys.) Step 1
builds the inference graph, restores the canonical weights and exports a SavedModel. Step 2, for
which only `import cudnn_rnn` is necessary, loads the SavedModel and answers a request.

Without --checkpoint, the program writes one of a layer with random weights first, with the keys of
TensorFlow 1.15, and compares the answer with the outputs of that layer.
"""

import argparse
import os
import sys
import tempfile
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf

import cudnn_rnn

CLASSES = {
    "lstm": cudnn_rnn.layers.CudnnLSTM,
    "gru": cudnn_rnn.layers.CudnnGRU,
    "rnn_tanh": cudnn_rnn.layers.CudnnRNNTanh,
    "rnn_relu": cudnn_rnn.layers.CudnnRNNRelu,
}


def make_layer(options):
    """Builds the layer; returns it, the placeholder of its inputs, and its outputs."""
    layer = CLASSES[options.cell](options.layers, options.units, direction=options.direction)
    with tf.variable_scope(options.scope or tf.get_variable_scope()):
        layer.build([None, None, options.input_size])  # creates the saveable
    # [time, batch, input_size]
    inputs = tf.placeholder(tf.float32, [None, None, options.input_size])
    outputs, _ = layer(inputs, training=False)
    return layer, inputs, outputs


def write_example(options, folder):
    """Writes a checkpoint of a layer with random weights; returns its path, inputs and outputs."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer, placeholder, outputs = make_layer(options)
        session.run(tf.global_variables_initializer())
        inputs = np.random.RandomState(1).randn(6, 3, options.input_size).astype(np.float32)
        path = tf.train.Saver([layer.saveable]).save(session, os.path.join(folder, "model.ckpt"))
        return path, inputs, session.run(outputs, {placeholder: inputs})


def export(options, checkpoint, folder):
    """Restores the checkpoint into an inference graph, and writes a SavedModel."""
    with tf.Graph().as_default(), tf.Session() as session:
        layer, inputs, outputs = make_layer(options)
        # Restores the canonical weights, whose keys do not depend on where the variable was.
        tf.train.Saver([layer.saveable]).restore(session, checkpoint)
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
    add("--checkpoint", metavar="PATH", help="prefix of its files; if omitted, one is written")
    add("--cell", choices=sorted(CLASSES), default="lstm", help="kind of RNN")
    add("--layers", type=int, default=3, help="num_layers")
    add("--units", type=int, default=16, help="num_units")
    add("--input-size", type=int, default=8, help="width of the inputs")
    add("--direction", default="bidirectional", help="unidirectional or bidirectional")
    add("--scope", default="", help="precedes /rnn/ or /stack_bidirectional_rnn/ in the keys")
    add("--expected", metavar="FILE", help="NumPy archive of 'inputs' and 'outputs' to compare")
    add("--output", metavar="FOLDER", help="new folder for the SavedModel; temporary if omitted")
    add("--quick", action="store_true", help="changes nothing: the program is quick")
    options = parser.parse_args(arguments)
    if options.expected and not options.checkpoint:
        parser.error("--expected requires --checkpoint: the outputs of which checkpoint are these?")
    return options


def read_expected(path):
    """Returns the arrays 'inputs' and 'outputs' of a file; ends the program if it has none."""
    try:
        with np.load(path) as arrays:
            return arrays["inputs"], arrays["outputs"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error).rstrip(".")
    except (AttributeError, TypeError):  # `with` and a single array
        reason = "it has one array without a name"
    sys.exit(
        "serve_on_cpu.py: error: cannot read 'inputs' and 'outputs' in %s: %s. Expected an archive "
        "of both that numpy.savez wrote." % (path, reason)
    )


def largest_difference(outputs, expected):
    """Returns the largest absolute difference; ends the program if the shapes differ."""
    if outputs.shape != expected.shape:
        sys.exit(
            "serve_on_cpu.py: error: the recorded outputs have the shape %s, but the model's have "
            "the shape %s. Compare 'outputs' that belong to 'inputs', [time, batch, width]."
            % (expected.shape, outputs.shape)
        )
    return np.abs(outputs - expected).max()


def main(arguments=None):
    options = parse_options(arguments)
    checkpoint, inputs, expected = options.checkpoint, None, None
    if options.expected:
        inputs, expected = read_expected(options.expected)
    with tempfile.TemporaryDirectory() as temporary:
        if checkpoint is None:
            checkpoint, inputs, expected = write_example(options, temporary)
        folder = options.output or os.path.join(temporary, "saved_model")
        export(options, checkpoint, folder)
        if inputs is None:
            outputs = answer(folder, np.ones([1, 1, options.input_size], np.float32))
            print("outputs for ones:\n%s" % outputs[0, 0])
            return
        outputs = answer(folder, inputs)
    difference = largest_difference(outputs, expected)
    print("outputs %s, for example %s" % (outputs.shape, outputs[0, 0, :4]))
    print("largest difference from the recorded outputs: %.1e" % difference)


if __name__ == "__main__":
    main()
