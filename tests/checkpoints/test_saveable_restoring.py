"""`RNNParamsSaveable` restores into other variables and cells, and reports what does not fit."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnLSTM, RNNParamsSaveable
from cudnn_rnn.checkpoints.cell_saveables import CudnnLSTMSaveable
from helpers.checkpoints import assert_all_equal
from helpers.layer_models import run_cells
from helpers.rnn_models import (
    CLASSES,
    GENERATIONS,
    initialize,
    make_params,
    opaque_values,
    restore,
    save,
    saveable_b,
)

INPUT_MODES = ("linear_input", "skip_input", "auto_select")


pytestmark = pytest.mark.usefixtures("session")  # every test has a graph of its own


# Restoring into other variables


def merge_lstm(weights, biases):
    """A `canonical_to_params` for kernel `[width + units, 4 * units]` and bias `[4 * units]`."""
    kernel = tf.concat([tf.concat(weights[:4], 0), tf.concat(weights[4:], 0)], 1)
    return tf.transpose(kernel), tf.concat(biases[:4], 0) + tf.concat(biases[4:], 0)


def expected_merged(opaque):
    """Returns `merge_lstm` of the buffer of an LSTM with 4 units and 3 inputs, by NumPy."""
    input_weights, recurrent_weights = opaque[:48].reshape(16, 3), opaque[48:112].reshape(16, 4)
    return np.concatenate([input_weights, recurrent_weights], 1).T, opaque[112:128] + opaque[128:]


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_restoring_into_unmerged_weights(session, tmp_path, generation, use_resource):
    model = CudnnLSTM(1, 4, 3)
    with tf.Graph().as_default():
        path = save([GENERATIONS[generation](model, make_params(model))], tmp_path)
    kernel = tf.Variable(tf.zeros([7, 16]), name="my/kernel", use_resource=use_resource)
    bias = tf.Variable(tf.zeros([16]), name="my/bias", use_resource=use_resource)
    arguments = [model.params_to_canonical, merge_lstm, [kernel, bias]]
    saveable = RNNParamsSaveable(*([model] if generation == "b" else []) + arguments)
    saver = tf.train.Saver([saveable])
    initialize(session)
    saver.restore(session, path)
    assert_all_equal(session.run([kernel, bias]), expected_merged(opaque_values(144)))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"This saveable can only restore, not save: its first variable my/kernel has "
        r"shape \[7, 16\]; expected an opaque buffer of 144 parameters",
    ):
        saver.save(session, str(tmp_path / "never"))
    assert all(spec.tensor.shape.is_fully_defined() for spec in saveable.specs)


def test_custom_params_to_canonical_is_used_unchanged(session, tmp_path):
    model = CudnnLSTM(1, 4, 3)
    doubled = make_params(model, 2 * opaque_values(144))

    def params_to_canonical(params):
        return model.params_to_canonical(params / 2)

    def canonical_to_params(weights, biases):
        return 2 * model.canonical_to_params(weights, biases)

    saveable = RNNParamsSaveable(model, params_to_canonical, canonical_to_params, [doubled], "rnn")
    path = save([saveable], tmp_path)
    params = make_params(model, np.zeros(144, np.float32))
    restore(session, [saveable_b(model, params, "rnn")], path)
    np.testing.assert_array_equal(session.run(params), opaque_values(144))
    restore(session, [saveable], path)
    np.testing.assert_array_equal(session.run(doubled), 2 * opaque_values(144))


def test_custom_params_to_canonical_with_too_few_results_is_refused():
    model = CudnnLSTM(1, 4, 3)

    def params_to_canonical(params):
        weights, biases = model.params_to_canonical(params)
        return weights, biases[:4]

    arguments = [params_to_canonical, model.canonical_to_params, [make_params(model)]]
    with pytest.raises(ValueError, match="params_to_canonical must return 8 biases, .* returned 4"):
        RNNParamsSaveable(model, *arguments)
    # Without a model, any number of tensors is accepted and saved.
    assert len(RNNParamsSaveable(*arguments).specs) == 12


def test_canonical_to_params_that_does_not_match_the_variables_is_refused():
    model = CudnnLSTM(1, 4, 3)
    kernel, bias = tf.Variable(tf.zeros([7, 16]), name="kernel"), tf.Variable(tf.zeros([16]))
    for variables, function, message in [
        ([kernel], merge_lstm, "each of the 1 param_variables of the saveable .*, but returned 2"),
        ([kernel, bias], lambda *canonical: merge_lstm(*canonical)[0], "the 2 param_.*returned 1"),
        (
            [kernel, bias],
            lambda *canonical: merge_lstm(*canonical)[::-1],
            r"must return a tensor of shape \[7, 16\] for the variable kernel, but returned one of "
            r"shape \[16\]",
        ),
    ]:
        saveable = RNNParamsSaveable(model.params_to_canonical, function, variables)
        with pytest.raises(ValueError, match=message):
            tf.train.Saver([saveable])


def test_a_buffer_is_saved_whatever_function_restores_it(session, tmp_path):
    model = CudnnLSTM(1, 4, 3)
    params = make_params(model)

    def canonical_to_params(weights, biases):
        return model.canonical_to_params(weights, biases) * 2.0

    arguments = [model.params_to_canonical, canonical_to_params, [params]]
    saver = tf.train.Saver([RNNParamsSaveable(*arguments)])
    initialize(session)
    path = saver.save(session, str(tmp_path / "model"))
    session.run(params.assign(tf.zeros_like(params)))
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(params), 2 * opaque_values(144))


@pytest.mark.parametrize("input_mode", INPUT_MODES)
@pytest.mark.parametrize("rnn_mode", ["gru", "lstm"])
def test_restoring_into_platform_independent_cells(session, tmp_path, rnn_mode, input_mode):
    inputs = np.random.RandomState(1).randn(6, 3, 4).astype(np.float32)
    with tf.Graph().as_default():
        model = CLASSES[rnn_mode](2, 4, 4, input_mode)
        params = make_params(model)
        states = [tf.zeros([2, 3, 4])] * (2 if rnn_mode == "lstm" else 1)
        results = model(inputs, *(states + [params, False]))
        path = save([saveable_b(model, params, "model/rnn")], tmp_path)
        with tf.Session() as other:
            initialize(other)
            expected = other.run(results[0])
    with tf.variable_scope("model"):
        outputs, _ = run_cells(rnn_mode, 2, 4, False, tf.constant(inputs))
    restore(session, tf.global_variables(), path)
    np.testing.assert_allclose(session.run(outputs), expected, rtol=1e-5, atol=1e-6)


# Partitioned variables


def partitioned(size, use_resource):
    parts = tf.fixed_size_partitioner(2)
    return tf.get_variable("parted", [size], partitioner=parts, use_resource=use_resource)


PARTS = {"whole": lambda parted: parted, "list": list, "first": lambda parted: list(parted)[0]}
MESSAGE = "%s must be .*whole opaque buffer.* partitioned variable parted.*set_partitioner.None"


@pytest.mark.parametrize("parts", sorted(PARTS))
def test_a_partitioned_variable_is_refused(parts, use_resource):
    model, parted = CudnnLSTM(1, 4, 3), PARTS[parts](partitioned(144, use_resource))
    arguments = [model.params_to_canonical, model.canonical_to_params, parted]
    for generation_arguments in (arguments, [model] + arguments):
        with pytest.raises(TypeError, match=MESSAGE % "param_variables"):
            RNNParamsSaveable(*generation_arguments)
    with pytest.raises(TypeError, match=MESSAGE % "opaque_params"):
        CudnnLSTMSaveable(parted, 1, 4, 3)


def test_a_list_with_a_partitioned_variable_is_refused():
    model, parted = CudnnLSTM(1, 4, 3), partitioned(144, False)
    with pytest.raises(TypeError, match=MESSAGE % "param_variables"):
        RNNParamsSaveable(model.params_to_canonical, merge_lstm, [parted, make_params(model)])


def test_the_advice_for_partitioned_variables():
    model = CudnnLSTM(1, 4, 3)
    with tf.variable_scope("outer", partitioner=tf.fixed_size_partitioner(2)):
        with tf.variable_scope("inner") as scope:
            scope.set_partitioner(None)
            whole = tf.get_variable("whole", [144])
    tf.train.Saver([saveable_b(model, whole), whole])


def test_restoring_into_the_parts_of_another_variable(session, tmp_path):
    """A user's `canonical_to_params` can return one tensor per part."""
    model, parted = CudnnLSTM(1, 4, 3), partitioned(144, False)
    path = save([saveable_b(model, make_params(model), "rnn")], tmp_path)

    def split(weights, biases):
        return tf.split(model.canonical_to_params(weights, biases), 2)

    saveable = RNNParamsSaveable(model, model.params_to_canonical, split, list(parted), "rnn")
    restore(session, [saveable], path)
    np.testing.assert_array_equal(session.run(parted.as_tensor()), opaque_values(144))


# Checkpoints that do not fit


@pytest.mark.parametrize("rnn_mode", ["gru", "lstm"])
def test_weights_that_skip_input_would_lose_are_refused(session, tmp_path, rnn_mode):
    """A checkpoint of a linear_input RNN has the same keys and, at equal sizes, the same shapes."""
    linear, skipping = (CLASSES[rnn_mode](1, 4, 4, mode) for mode in INPUT_MODES[:2])
    path = save([saveable_b(linear, make_params(linear))], tmp_path)
    saveable = saveable_b(skipping, make_params(skipping))
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_mode skip_input cannot take"):
        restore(session, [saveable], path)
