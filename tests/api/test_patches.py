"""What the package patches in TensorFlow: every patch is listed, reversible and transparent."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import _patches
from cudnn_rnn._patches import hooks, meta_graphs, restores
from cudnn_rnn.checkpoints import restore_ops
from helpers.layer_models import SAVEABLES
from helpers.rnn_models import initialize, opaque_values, params_size

UNITS, WIDTH = 4, 3

# Every function and class attribute of these modules is compared before and after the import.
WATCHED = """
def snapshot():
    from tensorflow.python.framework import importer, meta_graph, ops
    from tensorflow.python.training import saver
    try:
        from tensorflow.python.checkpoint import checkpoint, restore
    except ImportError:
        from tensorflow.python.training.tracking import base as restore, util as checkpoint
    found = {}
    for module in importer, meta_graph, ops, saver, checkpoint, restore:
        for name, value in vars(module).items():
            if isinstance(value, type):
                for attribute, member in vars(value).items():
                    found[module.__name__, name, attribute] = id(member)
            elif callable(value):
                found[module.__name__, name] = id(value)
    return found
"""


def run(program, **environment):
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=dict(os.environ, **{_patches.VARIABLE: "on", **environment}),
    )
    return process.returncode, process.stdout, process.stderr


COMPARE = """
    import tensorflow.compat.v1 as tf
    before = snapshot()
    import cudnn_rnn
    from cudnn_rnn import _patches
    after = snapshot()
    print(sum(before[key] != after.get(key) for key in before))
    {then}
    print(sum(before[key] != now for key, now in snapshot().items() if key in before))
"""


def test_the_list_is_complete_and_uninstall_restores_everything():
    status, printed, errors = run(COMPARE.format(then="_patches.uninstall()"))
    assert status == 0, errors
    changed, left = map(int, printed.split())
    assert changed == len(_patches.PATCHES)
    assert left == 0


@pytest.mark.parametrize("value, changed", [("off", 0), ("on", len(_patches.PATCHES))])
def test_the_environment_variable(value, changed):
    status, printed, errors = run(COMPARE.format(then=""), **{_patches.VARIABLE: value})
    assert status == 0, errors
    assert printed.split() == [str(changed)] * 2


def test_an_unknown_value_of_the_variable():
    status, _, errors = run("import cudnn_rnn", **{_patches.VARIABLE: "no"})
    assert status == 1
    assert "CUDNN_RNN_PATCHES is 'no'; expected on or off" in errors


def test_purposes():
    for patch in _patches.PATCHES:
        assert patch.name in str(patch) and len(patch.purpose) > 10


@pytest.fixture
def owner():
    """Returns a class with a method to wrap."""

    class Owner:
        def double(self, value):
            return 2 * value

    return Owner


def plus_one(original, self, value):
    return original(self, value) + 1


def test_wrapped_once_and_restored(owner):
    patch = hooks.Patch(owner, "double", plus_one, "adds one")
    original = owner.double
    for _ in range(2):
        patch.install()
        assert owner().double(3) == 7
    for _ in range(2):
        patch.uninstall()
        assert owner.double is original
    patch.install()
    assert owner().double(3) == 7


def test_wrappers_of_other_libraries_are_kept(owner):
    patch = hooks.Patch(owner, "double", plus_one, "adds one")
    patch.install()
    ours = owner.double

    def foreign(self, value):
        return 10 * ours(self, value)

    foreign.__dict__.update(ours.__dict__)  # as functools.wraps does
    owner.double = foreign
    patch.uninstall()
    assert owner.double is foreign
    assert owner().double(3) == 60
    patch.install()
    assert owner.double is foreign
    assert owner().double(3) == 70


def broken(*arguments):
    raise AttributeError("something that TensorFlow no longer has")


STEPS = [
    (restores, "_leave_out_displaced"),
    (restores, "_order_assignments"),
    (restores, "_read_by_saver"),
    (restores, "_check_tensors"),
    (meta_graphs, "_without_our_saveables"),
]


@pytest.mark.parametrize("module, step", STEPS, ids=[step for _, step in STEPS])
def test_a_defect_does_not_break_the_call(monkeypatch, tmp_path, module, step):
    monkeypatch.setattr(module, step, broken)
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as session:
        values = opaque_values(params_size("lstm", 1, UNITS, WIDTH))
        variable = tf.Variable(values, name="opaque")
        saveable = SAVEABLES["lstm"](variable, 1, UNITS, WIDTH)
        with pytest.warns(RuntimeWarning, match="broken, .* AttributeError: something that"):
            saver = tf.train.Saver([saveable])
            initialize(session)
            saver.save(session, path)
            session.run(variable.assign(tf.zeros_like(variable)))
            saver.restore(session, path)
            assert np.any(session.run(variable))
            tf.train.import_meta_graph(path + ".meta", import_scope="again")


OBJECT_STEPS = ["_check_names", "_expected_by_parts", "_check_parts"]


@pytest.mark.parametrize("step", OBJECT_STEPS)
def test_a_defect_does_not_break_object_based_restoring(tmp_path, step):
    status, printed, errors = run(
        """
        import sys, warnings
        import numpy as np
        import tensorflow.compat.v1 as tf
        tf.enable_eager_execution()
        import cudnn_rnn
        from cudnn_rnn._patches import restores
        first, second = cudnn_rnn.layers.CudnnLSTM(1, 4), cudnn_rnn.layers.CudnnLSTM(1, 4)
        for layer in first, second:
            layer.build([None, None, 3])
        path = tf.train.Checkpoint(rnn=first).write({path!r})

        def broken(*arguments):
            raise KeyError("of ours")

        restores.{step} = broken
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tf.train.Checkpoint(rnn=second).restore(path)
        assert any("cudnn_rnn skipped its internal step" in str(w.message) for w in caught), caught
        kernels = [np.split(layer.kernel.numpy(), [4 * 4 * 7])[0] for layer in (first, second)]
        print(np.array_equal(*kernels))
        """.format(path=str(tmp_path / "model"), step=step)
    )
    assert status == 0, errors
    assert printed.split() == ["True"], errors


def test_intended_errors_propagate():
    def refuse():
        raise restore_ops.SaverRefusal("this would lose a value")

    def not_found():
        raise tf.errors.NotFoundError(None, None, "no such key")

    with pytest.raises(ValueError, match="lose a value"):
        hooks.guarded(refuse)
    with pytest.raises(tf.errors.NotFoundError, match="no such key"):
        hooks.guarded(not_found)
