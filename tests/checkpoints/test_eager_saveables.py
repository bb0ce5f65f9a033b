"""`RNNParamsSaveable` in eager execution: what graphs write is read, and the other way round."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnLSTM, RNNParamsSaveable
from helpers import damaged_checkpoints
from helpers.golden import GoldenCheckpoint, golden_cases
from helpers.restoring import assert_names
from helpers.rnn_models import (
    CLASSES,
    GENERATIONS,
    keys,
    make_params,
    opaque_values,
    params_size,
    restore,
    save,
    saveable_b,
)

pytestmark = pytest.mark.usefixtures("eager")

CELLS_OF_1_3 = [
    name for rnn_mode in ("lstm", "gru") for name in golden_cases("1.3.0", rnn_mode + "_L*")
]


def zeros_for(model):
    """Returns a variable of zeros for the parameters of a model."""
    return make_params(model, np.zeros(int(model.params_size()), np.float32), use_resource=True)


@pytest.mark.parametrize("rnn_mode", ["lstm", "gru"])
def test_graphs_and_eager_execution_read_each_other(tmp_path, rnn_mode):
    model = CLASSES[rnn_mode](2, 5, 3)
    expected = opaque_values(params_size(rnn_mode, 2, 5, 3))
    with tf.Graph().as_default():
        path = save([saveable_b(model, make_params(model), "a")], tmp_path, "graph")
    params = zeros_for(model)
    saver = tf.train.Saver([saveable_b(model, params, "a")])
    saver.restore(None, path)
    np.testing.assert_array_equal(params.numpy(), expected)
    params.assign(2 * params)  # a Saver saves the value of that time
    path = saver.save(None, str(tmp_path / "eager"))
    with tf.Graph().as_default(), tf.Session() as session:
        params = make_params(model, np.zeros_like(expected))
        restore(session, [saveable_b(model, params, "a")], path)
        np.testing.assert_array_equal(session.run(params), 2 * expected)


@pytest.mark.parametrize("name", CELLS_OF_1_3)
def test_checkpoints_of_1_3(name):
    golden = GoldenCheckpoint(name)
    model = CLASSES[golden.case["rnn_mode"]](*golden.sizes, golden.case["input_mode"])
    params = zeros_for(model)
    saveable = saveable_b(model, params, golden.case["scope"])
    tf.train.Saver([saveable]).restore(None, golden.path)
    assert params.numpy().tobytes() == golden.opaque.tobytes()


def test_two_rnns_in_one_saver(tmp_path):
    models = [CudnnLSTM(1, 4, 3), CudnnLSTM(2, 3, 3)]
    variables = [make_params(model, use_resource=True) for model in models]
    pairs = zip(models, variables, ("a", "b"))
    saveables = [saveable_b(model, params, scope) for model, params, scope in pairs]
    saver = tf.train.Saver({"a": saveables[0], "b": saveables[1]})
    path = saver.save(None, str(tmp_path / "model"))
    expected = [variable.numpy() for variable in variables]
    for variable in variables:
        variable.assign(tf.zeros_like(variable))
    saver.restore(None, path)
    for variable, values in zip(variables, expected):
        np.testing.assert_array_equal(variable.numpy(), values)


def test_restoring_into_other_variables(tmp_path):
    model = CudnnLSTM(1, 4, 3)
    params = make_params(model, use_resource=True)
    path = tf.train.Saver([saveable_b(model, params)]).save(None, str(tmp_path / "model"))
    sizes = {"weights": 112, "biases": 32}
    variables = [tf.Variable(tf.zeros([size]), name=name) for name, size in sizes.items()]

    def flat(weights, biases):
        parts = (weights, biases)
        return [tf.concat([tf.reshape(one, [-1]) for one in part], 0) for part in parts]

    saveable = RNNParamsSaveable(model, model.params_to_canonical, flat, variables)
    saver = tf.train.Saver([saveable])
    saver.restore(None, path)
    expected = np.split(params.numpy(), [112])
    for variable, values in zip(variables, expected):
        np.testing.assert_array_equal(variable.numpy(), values)
    message = r"can only restore, not save: its first variable weights has shape \[112\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        saver.save(None, str(tmp_path / "never"))


@pytest.mark.parametrize("damage", sorted(damaged_checkpoints.DAMAGES))
def test_damaged_checkpoints(tmp_path, damage):
    model = CudnnLSTM(1, 4, 3)
    params = make_params(model, use_resource=True)
    saveable = saveable_b(model, params, "a")
    saver = tf.train.Saver([saveable])
    path = saver.save(None, str(tmp_path / "model"))
    spoil, kind_of_error = damaged_checkpoints.DAMAGES[damage]
    spoil(path, keys(saveable)[0])
    params.assign(tf.zeros_like(params))
    with pytest.raises(kind_of_error) as caught:
        saver.restore(None, path)
    assert_names(caught.value, path, keys(saveable)[0])
    assert not params.numpy().any()


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
@pytest.mark.parametrize("rnn_mode", sorted(CLASSES))
def test_names_of_graph_tensors_are_refused(rnn_mode, generation):
    """Tensors have no names there, so the error says what else there is."""
    model = CLASSES[rnn_mode](1, 4, 3, direction="bidirectional")
    with pytest.raises(RuntimeError, match="names of the graph's tensors.*exchange.read"):
        GENERATIONS[generation](model, zeros_for(model))
