"""Checkpoints of the original code are restored bit for bit and written back unchanged."""

import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.golden import golden_cases, read_checkpoint
from helpers.paths import GOLDEN
from helpers.rnn_models import CLASSES, initialize

RELEASES = ("1.2.1", "1.3.0")
CASES = [case for release in RELEASES for case in golden_cases(release)]


class Golden:
    """A checkpoint, with a matching model and saveable in the default graph."""

    def __init__(self, name, use_resource=None):
        folder = os.path.join(GOLDEN, name)
        with open(os.path.join(folder, "case.json")) as file:
            self.case = json.load(file)
        self.path = os.path.join(folder, "model.ckpt")
        self.opaque = np.load(os.path.join(folder, "expected.npz"))["opaque"]
        self.model = CLASSES[self.case["rnn_mode"]](
            self.case["num_layers"],
            self.case["num_units"],
            self.case["input_size"],
            self.case["input_mode"],
            self.case["direction"],
        )
        self.global_step = tf.Variable(
            0, name="global_step", trainable=False, use_resource=use_resource
        )
        self.variable = tf.Variable(
            tf.zeros([self.model.params_size()]),
            name=self.case["variable"],
            use_resource=use_resource,
        )
        conversions = [self.model.params_to_canonical, self.model.canonical_to_params]
        if self.case["tensorflow"] == "1.2.1":
            self.saveable = cudnn_rnn.RNNParamsSaveable(*conversions + [[self.variable]])
        else:
            self.saveable = cudnn_rnn.RNNParamsSaveable(
                *[self.model] + conversions + [[self.variable], self.case["scope"]]
            )

    def saver(self):
        """Returns a Saver of the objects that the case names."""
        if self.case["saver"] == "all":
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, self.saveable)
            return tf.train.Saver()
        assert self.case["saver"] == "global_step+saveable"
        return tf.train.Saver([self.global_step, self.saveable])


def test_all_cases_exist():
    assert len(CASES) == 24


@pytest.mark.sampled(3)
@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_restored_bit_for_bit_and_written_back_the_same(session, tmp_path, name, use_resource):
    golden = Golden(name, use_resource)
    saver = golden.saver()
    initialize(session)
    saver.restore(session, golden.path)
    assert session.run(golden.variable).tobytes() == golden.opaque.tobytes()
    path = saver.save(session, str(tmp_path / "model"))
    original, written = read_checkpoint(golden.path), read_checkpoint(path)
    assert set(written) == set(original) == set(golden.case["keys"])
    for key in original:
        # The original stored some matrices flat or with reversed shapes, over the same memory.
        assert written[key].size == original[key].size, key
        assert written[key].dtype == original[key].dtype, key
        assert written[key].tobytes() == original[key].tobytes(), key
        if "CudnnRNNParamsToCanonical" not in key:
            assert written[key].shape == original[key].shape, key


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_restored_from_canonical_tensors_alone(session, name):
    golden = Golden(name)
    saver = tf.train.Saver([golden.saveable])
    for _ in range(2):
        initialize(session)
        saver.restore(session, golden.path)
        assert session.run(golden.variable).tobytes() == golden.opaque.tobytes()


def test_a_checkpoint_of_another_dtype_is_refused(session):
    golden = Golden("tf1.3.0/gru_L1_H4_I3_un")
    model = cudnn_rnn.CudnnGRU(1, 4, 3, dtype=tf.float64)
    variable = tf.Variable(tf.zeros([model.params_size()], tf.float64))
    saveable = cudnn_rnn.RNNParamsSaveable(
        model,
        model.params_to_canonical,
        model.canonical_to_params,
        [variable],
        golden.case["scope"],
    )
    initialize(session)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="dtype float32; expected .* dtype float64"
    ):
        tf.train.Saver([saveable]).restore(session, golden.path)
