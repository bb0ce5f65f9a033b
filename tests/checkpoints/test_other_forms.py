"""Savers on checkpoints of another form or scope: the error says what to write."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from helpers.golden import read_checkpoint
from helpers.layer_models import LAYERS, built_layer, make_inputs, run_cells, set_params
from helpers.rnn_models import initialize

MODES = sorted(LAYERS)


def make(session, rnn_mode):
    """Returns a layer with random parameters and the tensor of its outputs."""
    layer = built_layer(rnn_mode, 2, direction="bidirectional")
    outputs = layer(make_inputs())[0]
    initialize(session)
    set_params(session, layer)
    return layer, outputs


def message_of(session, saver, path):
    with pytest.raises(tf.errors.NotFoundError) as caught:
        saver.restore(session, path)
    message = caught.value.message
    assert message.startswith("The checkpoint %s cannot be restored:" % path)
    return message


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_only_the_opaque_variable(session, tmp_path, rnn_mode):
    layer, _ = make(session, rnn_mode)
    path = tf.train.Saver([layer.kernel]).save(session, str(tmp_path / "model"))
    expected = session.run(layer.kernel)
    for saver in (tf.train.Saver(), tf.train.Saver([layer.saveable])):
        message = message_of(session, saver, path)
        assert message.splitlines()[-1] == (
            "It has the opaque variable itself, %s. Restore that with "
            "tf.train.Saver([layer.kernel])." % layer.kernel.op.name
        )
        assert "/kernel: missing" in message and "expected shape [" in message
    initialize(session)
    assert (session.run(layer.kernel) != expected).any()
    tf.train.Saver([layer.kernel]).restore(session, path)
    np.testing.assert_array_equal(session.run(layer.kernel), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rnn_mode", MODES)
def test_only_the_variables_of_cells(session, tmp_path, rnn_mode):
    layer, outputs = make(session, rnn_mode)
    path = tf.train.Saver([layer.saveable]).save(session, str(tmp_path / "model"))
    expected, key = session.run(outputs), sorted(read_checkpoint(path))[0]
    for saver in (tf.train.Saver(), tf.train.Saver([layer.kernel])):
        message = message_of(session, saver, path)
        assert "%s: missing" % layer.kernel.op.name in message
        assert message.splitlines()[-1] == (
            "It has the variables of cells instead, such as %s. Restore these with "
            "tf.train.Saver([layer.saveable])." % key
        )
    initialize(session)
    assert (session.run(outputs) != expected).any()
    tf.train.Saver([layer.saveable]).restore(session, path)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


def test_no_advice_if_both_forms_or_none_are_there(session, tmp_path):
    with tf.variable_scope("other"):
        other = built_layer("lstm")
    step = tf.train.create_global_step()
    initialize(session)
    both = tf.train.Saver([other.kernel, other.saveable]).save(session, str(tmp_path / "both"))
    none = tf.train.Saver([step]).save(session, str(tmp_path / "none"))
    layer = built_layer("lstm")
    for path in (both, none):
        message = message_of(session, tf.train.Saver([layer.kernel, layer.saveable]), path)
        assert "Restore" not in message


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_a_saver_of_cells_in_another_scope(session, tmp_path, rnn_mode):
    """The error is as short as that of a Saver of layers, and names every key."""
    inputs = np.zeros([3, 2, 5], np.float32)
    with tf.variable_scope("trained"):
        run_cells(rnn_mode, 2, 4, False, tf.constant(inputs))
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as other:
        with tf.variable_scope("decoder"):
            run_cells(rnn_mode, 2, 4, False, tf.constant(inputs))
        names = [variable.op.name for variable in tf.global_variables()]
        message = message_of(other, tf.train.Saver(), path)
        assert len(message.splitlines()) <= 10
        for name in sorted(names)[:8]:
            found = "(similar key: %s)" % name.replace("decoder", "trained")
            assert "%s: missing %s; expected shape [" % (name, found) in message


def test_a_saver_of_cells_of_another_size(session, tmp_path):
    inputs = np.zeros([3, 2, 5], np.float32)
    run_cells("lstm", 1, 4, False, tf.constant(inputs))
    initialize(session)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
    with tf.Graph().as_default(), tf.Session() as other:
        run_cells("lstm", 1, 6, False, tf.constant(inputs))
        with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be restored") as caught:
            tf.train.Saver().restore(other, path)
    message = caught.value.message
    assert "kernel: has shape [9, 16], dtype float32; expected shape [11, 24]" in message
