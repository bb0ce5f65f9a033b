"""Two saveables with the same name and keys, which TensorFlow 1's Savers treated as one."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from helpers.checkpoints import assert_all_equal, assert_round_trip, zeroed_and_restored
from helpers.golden import read_checkpoint
from helpers.layer_models import SAVEABLES, UNITS, WIDTH
from helpers.rnn_models import CLASSES, initialize, keys, opaque_values, params_size


def make_saveables(rnn_mode="lstm", collect=True, count=2, **named):
    saveables = []
    for number in range(count):
        values = opaque_values(params_size(rnn_mode, 1, UNITS, WIDTH)) + number
        variable = tf.Variable(values, name="opaque", **named)
        saveables.append(SAVEABLES[rnn_mode](variable, 1, UNITS, WIDTH))
        if collect:
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveables[-1])
    return saveables


def make_two_of_one_variable(**named):
    """Collects two saveables of one variable, which is returned."""
    (first,) = make_saveables(count=1, **named)
    second = SAVEABLES["lstm"](first._variables, 1, UNITS, WIDTH)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, second)
    return first._variables


@pytest.mark.parametrize("count, sharded", [(2, False), (3, False), (2, True)])
@pytest.mark.parametrize("rnn_mode", sorted(CLASSES))
def test_a_default_saver_saves_all_variables_and_the_last_ones_cells(
    session, tmp_path, rnn_mode, count, sharded
):
    """This holds for a sharded Saver, too, which the SavedModel builder uses."""
    saveables = make_saveables(rnn_mode, count=count)
    variables = [saveable._variables for saveable in saveables]
    saver = tf.train.Saver(sharded=sharded)
    initialize(session)
    expected = session.run({spec.name: spec.tensor for spec in saveables[-1].specs})
    expected.update(session.run({variable.op.name: variable for variable in variables}))
    path = assert_round_trip(session, saver, variables, tmp_path)
    assert_all_equal(read_checkpoint(path), expected)


def test_saved_as_cells_keeps_the_variable_of_a_displaced_one(session, tmp_path):
    saveables = make_saveables()
    variables = [saveable._variables for saveable in saveables]
    optimizer = tf.train.AdamOptimizer()
    optimizer.minimize(sum(tf.reduce_sum(variable**2) for variable in variables))
    saver = tf.train.Saver(cudnn_rnn.saved_as_cells(optimizer))
    initialize(session)
    expected = session.run(variables)
    path = saver.save(session, str(tmp_path / "model"))

    found = set(read_checkpoint(path))
    assert {"opaque", "opaque/Adam"} <= found
    assert not {"opaque_1", "opaque_1/Adam"} & found
    assert {key + slot for key in keys(saveables[-1]) for slot in ("", "/Adam")} <= found
    restored = zeroed_and_restored(session, saver, path, variables)
    np.testing.assert_array_equal(restored[0], expected[0])
    assert np.any(session.run(saveables[-1].specs[0].tensor))


def test_both_saveables_keep_their_keys_in_separate_savers(session):
    first, second = make_saveables(collect=False)
    assert keys(first) == keys(second) != []
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, first)
    assert keys(first) == keys(second) != []
    tf.train.Saver([first]), tf.train.Saver([second])


def test_a_second_one_for_the_same_variable_displaces_the_first(session, tmp_path):
    variable = make_two_of_one_variable()
    saver = tf.train.Saver()
    initialize(session)
    assert_round_trip(session, saver, [variable], tmp_path)


def test_a_variable_saved_by_the_later_one_needs_no_other_saver(session):
    """A Saver without the variable is accepted, because the later saveable saves it."""
    make_two_of_one_variable(collections=[tf.GraphKeys.LOCAL_VARIABLES])
    tf.train.Saver()


def test_a_list_without_the_variable_is_refused(session):
    saveables = make_saveables()
    with pytest.raises(ValueError, match="'cudnn_rnn_saveable' .* variable opaque: .* to var_list"):
        tf.train.Saver(saveables)
    tf.train.Saver(saveables + tf.global_variables())


@pytest.mark.parametrize("sharded", [False, True])
def test_a_displaced_one_with_a_local_variable_is_refused(session, sharded):
    make_saveables(collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with pytest.raises(ValueError, match="'cudnn_rnn_saveable' nor its variable opaque: .* not in"):
        tf.train.Saver(sharded=sharded)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("num_tensors", [1, 2])
def test_a_displaced_one_for_a_tensor_is_refused_without_a_warning(session, num_tensors):
    for number in range(2):
        values = tf.Variable(opaque_values(params_size("lstm", 1, UNITS, WIDTH)))
        values = 2 * values if number < num_tensors else values
        saveable = SAVEABLES["lstm"](values, 1, UNITS, WIDTH)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    with pytest.raises(TypeError, match="'cudnn_rnn_saveable' must be a variable to be restored"):
        tf.train.Saver()


def test_one_created_in_eager_execution_is_not_displaced():
    """It has no graph whose Savers could hold a later one."""
    with context.eager_mode():
        (saveable,) = make_saveables(collect=False, count=1, use_resource=True)
        assert saveable.is_displaced is False
