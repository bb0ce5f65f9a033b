"""Runs every op of one build of the op library and saves the results.

    python tests/bazel/run_library.py LIBRARY.so RESULTS.npz
    python tests/bazel/run_library.py --compare RESULTS.npz OTHER_RESULTS.npz

A process can load only one library, so two builds are compared through their result files.
"""

import sys

import numpy as np

NUM_LAYERS, NUM_UNITS, INPUT_SIZE, BATCH, STEPS = 2, 7, 5, 3, 4
MODES = ["lstm", "gru", "rnn_tanh", "rnn_relu"]


def run_mode(mode, dtype, results):
    """Adds the results of the ops in one mode and dtype to `results`, by name."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python.ops import gen_cudnn_rnn_ops as ops

    attributes = {
        "rnn_mode": mode,
        "input_mode": "linear_input",
        "direction": "bidirectional",
        "dropout": 0.3,
        "seed": 5,
    }
    sizes = {"num_layers": NUM_LAYERS, "num_units": NUM_UNITS, "input_size": INPUT_SIZE}
    random = np.random.RandomState(3)
    states = (NUM_LAYERS * 2, BATCH, NUM_UNITS)
    with tf.Graph().as_default(), tf.Session() as session:
        size_op = ops.cudnn_rnn_params_size(T=dtype, S=tf.int32, **sizes, **attributes)
        size = int(session.run(size_op)[0])
        params = tf.constant(random.uniform(-0.5, 0.5, size), dtype)
        inputs = tf.constant(random.standard_normal((STEPS, BATCH, INPUT_SIZE)), dtype)
        input_h = tf.constant(random.standard_normal(states), dtype)
        input_c = tf.constant(random.standard_normal(states), dtype)
        rnn = ops.cudnn_rnn(
            inputs,
            input_h,
            input_c if mode == "lstm" else tf.zeros([0], dtype),
            params,
            is_training=True,
            **attributes,
        )
        loss = tf.reduce_sum(tf.square(rnn.output)) + tf.reduce_sum(rnn.output_h)
        num_params = {"lstm": 8, "gru": 6}.get(mode, 2) * NUM_LAYERS * 2
        canonical = ops.cudnn_rnn_params_to_canonical(
            params=params, num_params=num_params, **sizes, **attributes
        )
        back = ops.cudnn_rnn_canonical_to_params(
            weights=canonical.weights, biases=canonical.biases, **sizes, **attributes
        )
        values = session.run(
            {
                "output": rnn.output,
                "output_h": rnn.output_h,
                "gradients": tf.gradients(loss, [inputs, input_h, params]),
                "weights": canonical.weights,
                "params": back,
            }
        )
    results[mode + dtype.name + "_size"] = np.array(size)
    for name, value in values.items():
        for index, array in enumerate(value if isinstance(value, list) else [value]):
            results["%s_%s_%s_%d" % (mode, dtype.name, name, index)] = array


def run(library_path, results_path):
    import tensorflow.compat.v1 as tf

    tf.load_op_library(library_path)
    results = {}
    for mode in MODES:
        for dtype in [tf.float32, tf.float64]:
            run_mode(mode, dtype, results)
    np.savez(results_path, **results)


def compare(one_path, other_path):
    """Compares two result files within a tolerance, as compilers may round sums differently."""
    one, other = np.load(one_path), np.load(other_path)
    assert sorted(one.files) == sorted(other.files)
    assert len(one.files) > 100, len(one.files)
    for name in one.files:
        tolerance = 1e-5 if one[name].dtype == np.float32 else 1e-13
        np.testing.assert_allclose(
            one[name], other[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
    print("%d results of both builds agree" % len(one.files))


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(sys.argv[2], sys.argv[3])
    else:
        run(sys.argv[1], sys.argv[2])
