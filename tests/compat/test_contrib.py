"""`cudnn_rnn.contrib.install`: the namespaces of each release, and `uninstall`."""

import importlib
import inspect
import os
import sys
import types

import numpy as np
import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import contrib, layers, op_level
from cudnn_rnn.cells import compatible
from cudnn_rnn.contrib import releases
from helpers.arrays import assert_equal
from helpers.checkpoints import zeroed_and_restored
from helpers.rnn_models import initialize
from helpers.versions import IS_TENSORFLOW_1, needs_tensorflow_1, needs_tensorflow_2

CONTRIB = "tensorflow.contrib"
PACKAGE = "tensorflow.contrib.cudnn_rnn"
OPS = PACKAGE + ".python.ops.cudnn_rnn_ops"
LAYERS = PACKAGE + ".python.layers.cudnn_rnn"

RNNS = {"CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh"}
CELLS = {"CudnnCompatibleGRUCell", "CudnnCompatibleLSTMCell"}
SAVEABLES = {name + "Saveable" for name in RNNS}
CONVERTERS = {"CudnnParamsFormatConverter" + name for name in ("GRU", "LSTM", "Relu", "Tanh")}


@pytest.fixture(autouse=True)
def uninstalled(session):
    yield
    contrib.uninstall()


@pytest.fixture(params=range(16))
def minor(request):
    """Installs release 1.<minor>."""
    contrib.install("1.%d" % request.param)
    return request.param


def installed(name):
    """Returns a class or function of the installed functional API."""
    return getattr(sys.modules[OPS], name)


def public_names(module):
    return {name for name in vars(module) if not name.startswith("_")}


def expected_names(minor):
    """Returns the names in `tf.contrib.cudnn_rnn` of the release's wheel."""
    if minor <= 3:
        return RNNS | {"RNNParamsSaveable"}
    return RNNS | CELLS | SAVEABLES | (CONVERTERS if minor >= 13 else set())


def test_names_and_generation_of_the_classes(minor):
    generation = layers if minor >= 5 else op_level
    namespace = tensorflow.contrib.cudnn_rnn
    assert namespace is importlib.import_module(PACKAGE) is sys.modules[PACKAGE]
    assert public_names(namespace) == expected_names(minor)
    for name in RNNS:
        assert issubclass(getattr(namespace, name), getattr(generation, name))
        assert issubclass(getattr(importlib.import_module(OPS), name), getattr(op_level, name))
        assert name in str(getattr(namespace, name))
        assert getattr(namespace, name).__name__ == name
    classes = dict(inspect.getmembers(namespace, inspect.isclass))
    assert set(classes) == expected_names(minor)
    assert len(set(classes.values())) == len(classes)
    for name in CELLS & expected_names(minor):
        assert getattr(namespace, name) is getattr(compatible, name)


FORMS_OF_IMPORT = """
import tensorflow.contrib.cudnn_rnn
from tensorflow.contrib import cudnn_rnn as first
import tensorflow.contrib.cudnn_rnn as second
from tensorflow.contrib.cudnn_rnn import CudnnLSTM
from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
from tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops import CudnnGRU
import tensorflow.contrib.cudnn_rnn.python.ops.cudnn_rnn_ops as third
"""


def test_forms_of_import(minor):
    names = {}
    exec(FORMS_OF_IMPORT, names)
    assert names["tensorflow"].contrib.cudnn_rnn is sys.modules[PACKAGE]
    assert names["first"] is names["second"] is sys.modules[PACKAGE]
    assert names["cudnn_rnn_ops"] is names["third"] is sys.modules[OPS]
    assert names["CudnnLSTM"] is names["first"].CudnnLSTM
    assert names["CudnnGRU"] is names["third"].CudnnGRU
    for statement in (
        "import tensorflow.contrib.cudnn_rnn.python.no_such_module",
        "from tensorflow.contrib.cudnn_rnn import NoSuchClass",
    ):
        with pytest.raises(ImportError):
            exec(statement, names)
    import_layers = "from tensorflow.contrib.cudnn_rnn.python.layers import cudnn_rnn"
    if minor < 4:
        with pytest.raises(ImportError):
            exec(import_layers, names)
        return
    exec(import_layers, names)
    assert names["cudnn_rnn"] is sys.modules[LAYERS]
    assert all(getattr(names["cudnn_rnn"], name) is getattr(layers, name) for name in RNNS)
    assert names["cudnn_rnn"].CUDNN_LSTM_PARAMS_PER_LAYER == 8
    without_c = names["cudnn_rnn"]._CudnnRNNNoInputC
    for name in RNNS:
        assert issubclass(getattr(layers, name), without_c) == (name != "CudnnLSTM")


def test_input_mode_by_default(minor):
    """Up to 1.2 the default is auto_select, with room for the omitted weights in the buffer."""
    expected = "auto_select" if minor <= 2 else "linear_input"
    for name in RNNS:
        op_level = installed(name)
        assert op_level(1, 4, 4).input_mode == expected
        assert op_level(1, 4, 4, direction="bidirectional").input_mode == expected
        assert op_level(1, 4, 4, "skip_input").input_mode == "skip_input"
        assert op_level(1, 4, 4, input_mode="linear_input").input_mode == "linear_input"
        assert op_level(num_layers=1, num_units=4, input_size=4).input_mode == expected
    size = installed("CudnnGRU")(1, 4, 4).params_size()
    assert tf.get_static_value(size) == 2 * 3 * 4 * 4 + 2 * 3 * 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("minor", [0, 2], indirect=True)
@pytest.mark.parametrize("name", sorted(RNNS))
def test_buffers_with_room_for_input_weights(session, minor, name, tmp_path):
    """Up to 1.2, buffers of layers without input weights are longer; their end is unused."""
    old = getattr(tensorflow.contrib.cudnn_rnn, name)(2, 4, 4)
    new = getattr(op_level, name)(2, 4, 4, "skip_input")
    size, used = (tf.get_static_value(model.params_size()) for model in (old, new))
    assert size == tf.get_static_value(getattr(op_level, name)(2, 4, 4).params_size()) > used
    params = tf.get_variable("params", initializer=np.arange(size, dtype=np.float32) / 100)
    functions = (old.params_to_canonical, old.canonical_to_params)
    saver = tf.train.Saver([tensorflow.contrib.cudnn_rnn.RNNParamsSaveable(*functions, params)])
    states = [tf.ones([2, 3, 4])] * (2 if name == "CudnnLSTM" else 1)
    results = [
        (model(tf.ones([5, 3, 4]), *states, part), model.params_to_canonical(part))
        for model, part in ((old, params), (new, params[:used]))
    ]
    gradient = tf.gradients(results[0][0], params)[0]
    restored = old.canonical_to_params(*results[0][1])
    assert restored.shape.as_list() == [size]
    initialize(session)
    assert_equal(*session.run(results))
    assert not session.run(gradient)[used:].any()
    before, after = session.run([params, restored])
    np.testing.assert_array_equal(after[:used], before[:used])
    path = saver.save(session, str(tmp_path / "model"))
    (after,) = zeroed_and_restored(session, saver, path, [params])
    np.testing.assert_array_equal(after[:used], before[:used])
    with pytest.raises(ValueError, match="params must have at least %d elements" % size):
        old(tf.ones([5, 3, 4]), *states, tf.zeros([used]))
    with pytest.warns(UserWarning, match="params has %d elements" % (size + 1)):
        others = old(tf.ones([5, 3, 4]), *states, tf.concat([params, [np.nan]], 0))
    matrix = old(tf.ones([5, 3, 4]), *states, tf.reshape(params, [2, -1]))
    assert_equal(session.run([others, matrix]), session.run([results[0][0]] * 2))


@pytest.mark.parametrize("minor", [0, 1, 2, 3, 4, 14, 15], indirect=True)
@pytest.mark.parametrize("name", sorted(RNNS))
def test_signatures_of_the_op_level_classes(minor, name):
    """The arguments are those of the classes in the wheels."""
    expected = ["num_layers", "num_units", "input_size", "input_mode", "direction"]
    expected += ["dtype"] * (minor >= 4) + ["dropout", "seed"] + ["seed2"] * (minor <= 1)
    expected += ["num_proj"] * (minor == 15 and name == "CudnnLSTM")
    parameters = inspect.signature(installed(name)).parameters
    assert list(parameters) == expected
    assert (parameters["dropout"].default, parameters["seed"].default) == (0.0, 0)
    expected = ["self", "input_data", "input_h"] + ["input_c"] * (name == "CudnnLSTM") + ["params"]
    expected += ["sequence_lengths", "time_major"] * (minor >= 14) + ["is_training"]
    assert list(inspect.signature(installed(name).__call__).parameters) == expected


@pytest.mark.parametrize("minor", [4, 13, 14, 15], indirect=True)
def test_signatures_of_functions(minor):
    lengths = "sequence_lengths time_major " if minor >= 14 else ""
    sizes = "rnn_mode num_layers num_units input_size "
    last = "input_mode direction dropout seed "
    projection = "num_proj " if minor == 15 else ""
    expected = {
        "cudnn_lstm": "inputs input_h input_c params is_training " + lengths + last + projection,
        "cudnn_gru": "inputs input_h params is_training " + lengths + last,
        "cudnn_rnn_relu": "inputs input_h params is_training " + last + lengths,
        "cudnn_rnn_opaque_params_size": sizes + last.replace("dr", "dtype dr") + projection,
        "cudnn_rnn_opaque_params_to_canonical": sizes + "params " + last + projection,
        "cudnn_rnn_canonical_to_opaque_params": sizes + "weights biases " + last + projection,
    }
    for name, parameters in expected.items():
        assert " ".join(inspect.signature(installed(name)).parameters) == parameters + "name"


def test_functions_of_1_4_by_position(session):
    contrib.install("1.4")
    ops = sys.modules[OPS]
    x, h = np.ones([2, 3, 4], np.float32), np.zeros([2, 3, 5], np.float32)
    size = ops.cudnn_rnn_opaque_params_size("gru", 1, 5, 4, "linear_input", "bidirectional")
    params = tf.fill([size], 0.1)
    arguments = (x, h, params, False, "linear_input", "bidirectional", 0.0, 0, "mine")
    output, _ = ops.cudnn_gru(*arguments)
    expected = cudnn_rnn.CudnnGRU(1, 5, 4, direction="bidirectional")(x, h, params, False)[0]
    assert output.op.name == "mine"
    np.testing.assert_array_equal(*session.run([output, expected]))
    with pytest.raises(TypeError, match="sequence_lengths"):
        ops.cudnn_gru(x, h, params, False, sequence_lengths=[1, 1, 1])


@pytest.mark.parametrize("minor", [13, 14, 15], indirect=True)
def test_converters(minor):
    """In 1.15, `num_proj` precedes the input mode."""
    ops = sys.modules[OPS]
    for name in CONVERTERS:
        position = (None,) if minor == 15 else ()
        converter = getattr(ops, name)(1, 2, 3, *position, "linear_input", "bidirectional")
        assert converter._direction == "bidirectional"
        assert isinstance(converter, ops.CudnnParamsFormatConverter)
    assert not issubclass(ops.CudnnParamsFormatConverterGRU, ops.CudnnParamsFormatConverterBasic)


def test_names_of_the_ops_module(minor):
    names = set(vars(sys.modules[OPS]))
    since = {
        3: {"CUDNN_LSTM", "CUDNN_RNN_BIDIRECTION"} | CELLS,
        4: SAVEABLES.union(
            ["CUDNN_GRU_PARAMS_PER_LAYER", "CUDNN_INPUT_AUTO_MODE", "CudnnOpaqueParamsSaveable"],
            ["_cudnn_rnn", "_get_num_params", "check_direction", "check_input_mode"],
            ["cudnn_lstm", "cudnn_rnn_opaque_params_size"],
        ),
        5: {"_BIAS_VARIABLE_NAME", "_WEIGHTS_VARIABLE_NAME"},
        13: {"CudnnParamsFormatConverter"} | CONVERTERS,
    }
    for first, wanted in since.items():
        assert wanted & names == (wanted if minor >= first else set())
    if minor >= 4:
        assert callable(installed("cudnn_lstm"))
        assert callable(installed("cudnn_rnn_opaque_params_size"))
    assert ("RNNParamsSaveable" in names) == (minor <= 3)
    assert ("CudnnCompatibleLSTMBlockCell" in names) == (minor == 3)
    assert ("CudnnRNNSimpleSaveable" in names) == (4 <= minor <= 12)
    if 4 <= minor <= 12:
        simple = installed("CudnnRNNSimpleSaveable")
        for name in SAVEABLES:
            saveable, is_simple = installed(name), "Tanh" in name or "Relu" in name
            assert issubclass(saveable, simple) == is_simple
            assert isinstance(saveable.__new__(saveable), simple) == is_simple


@pytest.mark.sampled(2)
def test_one_program_of_each_generation(session, minor, tmp_path):
    """Training a step, saving and restoring work in the way that the release prescribed."""
    namespace = tensorflow.contrib.cudnn_rnn
    inputs = tf.ones([3, 2, 4])
    states = tf.zeros([1, 2, 5])
    if minor >= 5:
        outputs, (h, c) = namespace.CudnnLSTM(1, 5)(inputs, (states, states), training=True)
        params = tf.trainable_variables()[0]
    else:
        rnn = namespace.CudnnLSTM(1, 5, 4)
        params = tf.get_variable("params", initializer=tf.random_uniform([rnn.params_size()]))
        outputs, h, c = rnn(inputs, states, states, params, True)
        functions = (rnn.params_to_canonical, rnn.canonical_to_params)
        if minor == 4:
            saveable = namespace.CudnnLSTMSaveable(params, 1, 5, 4)
        else:
            arguments = [(params,), ("saveable", params), ([params],), ([params],)][minor]
            first = (rnn,) if minor == 3 else ()
            saveable = namespace.RNNParamsSaveable(*first, *functions, *arguments)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(outputs))
    saver = tf.train.Saver()
    initialize(session)
    before = session.run(params)
    session.run(train)
    trained, expected = session.run([params, outputs])
    assert (before != trained).any()
    path = saver.save(session, str(tmp_path / "model"))
    session.run(train)
    saver.restore(session, path)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


@pytest.mark.parametrize("version", ["1.4.1", "1.15.0", "1.15.5", "1.4.0-rc1", "1.4.0rc0"])
def test_versions_with_a_third_number(version):
    contrib.install(version)
    assert public_names(sys.modules[PACKAGE]) == expected_names(int(version.split(".")[1]))


@needs_tensorflow_2
@pytest.mark.parametrize(
    "statement, error",
    [
        ("tensorflow.contrib.lookup", AttributeError),
        ("import tensorflow.contrib.lookup", ModuleNotFoundError),
        ("import tensorflow.contrib.lookup.python.ops", ModuleNotFoundError),
        ("from tensorflow.contrib import lookup", ModuleNotFoundError),
        ("from tensorflow.contrib.lookup import HashTable", ModuleNotFoundError),
    ],
)
def test_other_parts_of_contrib(statement, error):
    contrib.install()
    names = {"tensorflow": tensorflow}
    message = "lookup.*has no tf.contrib. .* names of its parts cudnn_rnn, .*rnn, seq2seq, training"
    with pytest.raises(error, match=message):
        exec(statement, names)
    contrib.uninstall()
    if error is ModuleNotFoundError:
        with pytest.raises(error, match="No module named 'tensorflow.contrib'"):
            exec(statement, names)


@pytest.mark.parametrize("version", ["1.16", "2.0", "0.12", "1", "1.x", "", 1.15, None])
def test_wrong_versions(version):
    contrib.install("1.2")
    error = ValueError if isinstance(version, str) else TypeError
    with pytest.raises(error, match="version must be"):
        contrib.install(version)
    assert "RNNParamsSaveable" in public_names(sys.modules[PACKAGE])  # still installed


def test_another_version_replaces_the_first_and_uninstall_restores():
    contrib.uninstall()  # nothing to do
    contrib.install()
    assert tensorflow.contrib.cudnn_rnn.CudnnLSTM is layers.CudnnLSTM
    if not IS_TENSORFLOW_1:
        assert tensorflow.contrib is tf.contrib is sys.modules[CONTRIB]
        assert tf.contrib.rnn is importlib.import_module("tensorflow.contrib.rnn")
    contrib.uninstall()
    assert_as_before()
    contrib.install("1.2")
    first = tensorflow.contrib.cudnn_rnn
    contrib.install("1.15")
    assert tensorflow.contrib.cudnn_rnn is not first
    assert "CudnnParamsFormatConverterGRU" in public_names(tensorflow.contrib.cudnn_rnn)
    contrib.install("1.3")
    assert LAYERS not in sys.modules
    contrib.uninstall()
    contrib.uninstall()
    assert_as_before()


def assert_as_before():
    if IS_TENSORFLOW_1:
        original = importlib.import_module(PACKAGE)
        assert tensorflow.contrib.cudnn_rnn is original is sys.modules[PACKAGE]
        assert "cudnn_rnn library" not in (original.__doc__ or "")
        assert original.__file__.endswith(os.path.join("contrib", "cudnn_rnn", "__init__.py"))
        ops = importlib.import_module(OPS)
        assert ops.CudnnLSTM.__module__ == OPS and not issubclass(ops.CudnnLSTM, op_level.CudnnLSTM)
    else:
        assert not hasattr(tensorflow, "contrib") and not hasattr(tf, "contrib")
        assert not [name for name in sys.modules if name.startswith(CONTRIB)]


@needs_tensorflow_2
def test_a_contrib_of_another_library_is_kept():
    other = types.ModuleType(CONTRIB)
    other.training = "theirs"
    sys.modules[CONTRIB] = tensorflow.contrib = other
    try:
        contrib.install("1.3")
        assert tensorflow.contrib is other and other.training == "theirs"
        assert other.cudnn_rnn is sys.modules[PACKAGE]
        contrib.uninstall()
        assert tensorflow.contrib is other and not hasattr(other, "cudnn_rnn")
        assert sys.modules[CONTRIB] is other
    finally:
        del tensorflow.contrib, sys.modules[CONTRIB]


@needs_tensorflow_2
def test_a_contrib_that_is_only_in_sys_modules(monkeypatch):
    """Another library's modules of the package make room, and return with uninstall."""
    others = {
        name: types.ModuleType(name) for name in (CONTRIB, PACKAGE, PACKAGE + ".python.other")
    }
    for name, module in others.items():
        monkeypatch.setitem(sys.modules, name, module)
    contrib.install("1.3")
    assert sys.modules[CONTRIB] is others[CONTRIB] and not hasattr(tensorflow, "contrib")
    assert others[CONTRIB].cudnn_rnn is sys.modules[PACKAGE] is not others[PACKAGE]
    assert PACKAGE + ".python.other" not in sys.modules
    contrib.uninstall()
    assert {name: sys.modules[name] for name in others} == others
    assert not hasattr(others[CONTRIB], "cudnn_rnn")


def test_a_name_that_no_module_has():
    with pytest.raises(AttributeError, match="^cudnn_rnn has no NoSuchCell"):
        releases._own_class("NoSuchCell")


def defined_names(module):
    """Returns the names that a TensorFlow module defines itself, constants included."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("__")
        and not inspect.ismodule(value)
        and type(value).__name__ != "_Feature"
        and getattr(value, "__module__", module.__name__) == module.__name__
    }


@needs_tensorflow_1
def test_all_names_of_the_original_of_1_15_exist():
    originals = {name: importlib.import_module(name) for name in (PACKAGE, OPS, LAYERS)}
    contrib.install("1.15")
    private = {"_cudnn_rnn_common_doc_string", "_CudnnRNNNoInputC", "_allowed_symbols"}
    for name, original in originals.items():
        missing = defined_names(original) - set(vars(sys.modules[name])) - private
        assert missing == set(), name
        for attribute, value in vars(sys.modules[name]).items():
            if isinstance(value, (str, int)) and attribute.isupper():
                assert value == getattr(original, attribute)


@needs_tensorflow_1
def test_other_packages_of_contrib_are_kept():
    rnn = importlib.import_module("tensorflow.contrib.rnn")
    contrib.install()
    assert tensorflow.contrib.rnn is rnn
    assert tensorflow.contrib.rnn.stack_bidirectional_dynamic_rnn
