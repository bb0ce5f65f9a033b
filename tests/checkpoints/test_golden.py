"""Checkpoints of the original code are restored bit for bit and written back unchanged."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import cudnn_rnn
from helpers.golden import GoldenCheckpoint, golden_cases, read_checkpoint
from helpers.rnn_models import CLASSES, initialize, make_params, saveable_a, saveable_b

CASES = [case for release in ("1.2.1", "1.3.0") for case in golden_cases(release)]


class Golden(GoldenCheckpoint):
    """A checkpoint, with a matching model and saveable in the default graph."""

    def __init__(self, name, use_resource=None):
        super().__init__(name)
        self.model = CLASSES[self.case["rnn_mode"]](
            *self.sizes, self.case["input_mode"], self.case["direction"]
        )
        self.global_step = tf.Variable(
            0, name="global_step", trainable=False, use_resource=use_resource
        )
        value = np.zeros([self.opaque.size], np.float32)
        self.variable = make_params(self.model, value, self.case["variable"], use_resource)
        if self.case["tensorflow"] == "1.2.1":
            self.saveable = saveable_a(self.model, self.variable)
        else:
            self.saveable = saveable_b(self.model, self.variable, self.case["scope"])

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
    saveable = saveable_b(model, make_params(model), golden.case["scope"])
    initialize(session)
    message = "dtype float32; expected .* dtype float64"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.train.Saver([saveable]).restore(session, golden.path)
