"""Makes the checkpoint of this folder, with TensorFlow 1.15.5 alone.

    python make_contrib_cells.py FOLDER

See README.md. The cases are those of tests/helpers/contrib_cells.py.
"""

import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib import rnn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from helpers.contrib_cells import CASES, Network, random_inputs  # noqa: E402


def main(folder):
    random = np.random.RandomState(1)
    expected = {"inputs": random_inputs()}
    with tf.Graph().as_default(), tf.Session() as session:
        networks = {name: Network(name, rnn) for name in sorted(CASES)}
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            values = random.uniform(-0.7, 0.7, variable.shape.as_list())
            variable.load(values.astype(np.float32), session)
        tf.train.Saver().save(session, os.path.join(folder, "model.ckpt"), write_meta_graph=False)
        for name, network in networks.items():
            for key, value in network.run(session, expected["inputs"]).items():
                expected["%s/%s" % (name, key)] = value
    os.remove(os.path.join(folder, "checkpoint"))
    np.savez_compressed(os.path.join(folder, "expected.npz"), **expected)


if __name__ == "__main__":
    main(sys.argv[1])
