"""What the package patches in TensorFlow: every patch is listed, reversible and transparent."""

import json
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import _patches
from cudnn_rnn._patches import async_checkpoints, hooks, meta_graphs, restores
from cudnn_rnn.checkpoints import object_based, restore_ops
from helpers.checkpoints import zeroed_and_restored
from helpers.layer_models import SAVEABLES, UNITS, WIDTH, built_layer
from helpers.processes import output_of
from helpers.rnn_models import initialize, opaque_values, params_size

# Imports the package with each value of the variable. Compares every function and class attribute
# of the modules with those before the import; prints JSON: an error, or the numbers of those
# changed after the import and still changed after uninstall().
PROGRAM = """
import json, os, sys
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import importer, meta_graph, ops
from tensorflow.python.training import saver
try:
    from tensorflow.python.checkpoint import checkpoint, restore
except ImportError:
    from tensorflow.python.training.tracking import base as restore, util as checkpoint
try:
    from tensorflow.python.checkpoint import async_checkpoint_helper as later
except ImportError:  # TensorFlow before 2.12
    later = saver

def snapshot():
    found = {}
    for module in importer, meta_graph, ops, saver, checkpoint, restore, later:
        for name, value in vars(module).items():
            if isinstance(value, type):
                for attribute, member in vars(value).items():
                    found[module.__name__, name, attribute] = id(member)
            elif callable(value):
                found[module.__name__, name] = id(value)
    return found

def changed():
    after = snapshot()
    return sum(before[key] != after.get(key) for key in before)

before, results = snapshot(), {}
for value in "no", "off", "on":
    os.environ[sys.argv[1]] = value
    for name in [name for name in sys.modules if name.split(".")[0] == "cudnn_rnn"]:
        del sys.modules[name]
    try:
        from cudnn_rnn import _patches
        results[value] = [changed()]
        _patches.uninstall()
        results[value].append(changed())
    except ImportError as error:
        results[value] = str(error)
print(json.dumps(results))
"""


@pytest.mark.sampled(4)
def test_the_variable_and_the_list_and_that_uninstall_restores_everything():
    for patch in _patches.PATCHES:
        assert patch.name in str(patch) and len(patch.purpose) > 10
    results = json.loads(output_of("-W", "ignore", "-c", PROGRAM, _patches.VARIABLE))
    assert "CUDNN_RNN_PATCHES is 'no'; expected on or off" in results.pop("no")
    assert results == {"off": [0, 0], "on": [len(_patches.PATCHES), 0]}


def test_wrapped_once_and_restored_except_wrappers_of_other_libraries():
    class Owner:
        def double(self, value):
            return 2 * value

    def plus_one(original, self, value):
        return original(self, value) + 1

    patch = hooks.Patch(Owner, "double", plus_one, "adds one")
    original = Owner.double
    for _ in range(2):
        patch.install()
        assert Owner().double(3) == 7
    for _ in range(2):
        patch.uninstall()
        assert Owner.double is original
    patch.install()
    assert Owner().double(3) == 7
    ours = Owner.double

    def foreign(self, value):
        return 10 * ours(self, value)

    foreign.__dict__.update(ours.__dict__)  # as functools.wraps does
    Owner.double = foreign
    patch.uninstall()
    assert Owner.double is foreign and Owner().double(3) == 60
    patch.install()
    assert Owner.double is foreign and Owner().double(3) == 70


def broken(*arguments):
    raise AttributeError("something that TensorFlow no longer has")


@pytest.mark.parametrize(
    "module, step",
    [
        (restores, "_leave_out_displaced"),
        (restores, "_order_assignments"),
        (restores, "_read_by_saver"),
        (restores, "_check_tensors"),
        (meta_graphs, "_our_saveables"),
        (meta_graphs, "_without"),
        (meta_graphs, "_recreate"),
    ],
)
def test_a_defect_does_not_break_the_call(session, monkeypatch, tmp_path, module, step):
    monkeypatch.setattr(module, step, broken)
    path = str(tmp_path / "model")
    values = opaque_values(params_size("lstm", 1, UNITS, WIDTH))
    variable = tf.Variable(values, name="opaque")
    saveable = SAVEABLES["lstm"](variable, 1, UNITS, WIDTH)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    with pytest.warns(RuntimeWarning, match="broken, .* AttributeError: something that"):
        saver = tf.train.Saver([saveable])
        initialize(session)
        saver.save(session, path)
        assert np.any(zeroed_and_restored(session, saver, path, [variable]))
        tf.train.import_meta_graph(path + ".meta", import_scope="again")


@pytest.mark.parametrize("step", ["_check_names", "_expected_by_parts", "_check_parts"])
def test_a_defect_does_not_break_object_based_restoring(eager, monkeypatch, tmp_path, step):
    first, second = built_layer("lstm"), built_layer("lstm")
    path = tf.train.Checkpoint(rnn=first).write(str(tmp_path / "model"))
    monkeypatch.setattr(restores, step, broken)
    with pytest.warns(RuntimeWarning, match="cudnn_rnn skipped its internal step"):
        tf.train.Checkpoint(rnn=second).restore(path)
    matrices = UNITS * 4 * (UNITS + WIDTH)
    kernels = [layer.kernel.numpy()[:matrices] for layer in (first, second)]
    np.testing.assert_array_equal(*kernels)


def test_intended_errors_propagate():
    def refuse():
        raise restore_ops.SaverRefusal("this would lose a value")

    def not_found():
        raise tf.errors.NotFoundError(None, None, "no such key")

    with pytest.raises(ValueError, match="lose a value"):
        hooks.guarded(refuse)
    with pytest.raises(tf.errors.NotFoundError, match="no such key"):
        hooks.guarded(not_found)


def test_asynchronous_checkpoints_with_layers_are_refused_after_all_objects_are_found():
    """As a unit, because TensorFlow 2.12 to 2.14 alone have what is wrapped."""

    def find(writer, new):
        writer._original_nodes += new

    writer = types.SimpleNamespace(_original_nodes=[])
    parts = object_based.BufferParts(None, ["kernel"], tf.float32, "")
    async_checkpoints.find_variables(find, writer, [object()])
    with pytest.raises(ValueError, match="include layers of cudnn_rnn"):
        async_checkpoints.find_variables(find, writer, [parts.trackables["kernel"]])
