"""`RNNParamsSaveable`: both signatures, keys, round trips, several in one checkpoint."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn import CudnnGRU, CudnnLSTM, RNNParamsSaveable
from cudnn_rnn._native import gpu_kernels
from cudnn_rnn.model import layout
from helpers.checkpoints import assert_round_trip
from helpers.rnn_models import (
    CLASSES,
    DIRECTIONS,
    GENERATIONS,
    initialize,
    keys,
    make_params,
    opaque_values,
    restore,
    save,
    saveable_a,
    saveable_b,
)
from helpers.versions import needs_projection, needs_tensorflow_2

INPUT_MODES = ("linear_input", "skip_input", "auto_select")
DTYPES = (tf.float16, tf.float32, tf.float64)


pytestmark = pytest.mark.usefixtures("session")  # every test has a graph of its own


def lstm_and_params(value=None):
    """Returns a model of 144 parameters and its variable."""
    model = CudnnLSTM(1, 4, 3)
    return model, make_params(model, value)


# Round trips


@pytest.mark.sampled(48)
@pytest.mark.parametrize("rnn_mode", sorted(CLASSES))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("input_mode", INPUT_MODES)
@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_round_trip(tmp_path, rnn_mode, direction, input_mode, generation):
    for number, dtype in enumerate(DTYPES):
        with tf.Graph().as_default():
            model = CLASSES[rnn_mode](2, 5, 5, input_mode, direction, dtype=dtype)
            saveable = GENERATIONS[generation](model, make_params(model))
            path = save([saveable], tmp_path, dtype.name)
        with tf.Graph().as_default(), tf.Session() as session:
            model = CLASSES[rnn_mode](2, 5, 5, input_mode, direction, dtype=dtype)
            zeros = tf.zeros([model.params_size()], dtype)
            params = make_params(model, zeros, "elsewhere", use_resource=bool(number % 2))
            restore(session, [GENERATIONS[generation](model, params)], path)
            restored = session.run(params)
            assert restored.tobytes() == opaque_values(restored.size, restored.dtype).tobytes()


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_variable_without_a_static_shape(session, tmp_path, generation):
    model = CudnnLSTM(1, 4, 3)
    params = tf.Variable(
        tf.random_uniform([model.params_size()]), validate_shape=False, use_resource=False
    )
    saveable = GENERATIONS[generation](model, params)
    saver = tf.train.Saver([saveable])
    initialize(session)
    before = session.run(params)
    path = saver.save(session, str(tmp_path / "model"))
    session.run(tf.assign(params, tf.zeros([7]), validate_shape=False))
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(params), before)


def test_default_saver_writes_variable_and_canonical_tensors(session, tmp_path):
    model = CudnnGRU(1, 4, 3)
    params = make_params(model)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable_b(model, params, "rnn"))
    initialize(session)
    path = assert_round_trip(session, tf.train.Saver(), [params], tmp_path)
    written = {key for key, _ in tf.train.list_variables(path)}
    assert "params" in written and len(written) == 9


# Keys

LSTM_NAMES = ("kernel", "bias", "bias_cudnn_0", "bias_cudnn_1")
GRU_NAMES = (
    "gates/kernel",
    "candidate/input_projection/kernel",
    "candidate/hidden_projection/kernel",
    "gates/bias",
    "candidate/input_projection/bias",
    "candidate/hidden_projection/bias",
    "bias_cudnn 0",
    "bias_cudnn 1",
)


@pytest.mark.parametrize(
    "scope, prefix",
    [
        (None, ""),
        ("", ""),
        ("model/rnn", "model/rnn/"),
        (tf.VariableScope(None, "outer/inner"), "outer/inner/"),
    ],
)
@pytest.mark.parametrize("rnn_mode, names", [("lstm", LSTM_NAMES), ("gru", GRU_NAMES)])
def test_keys_of_cells(scope, prefix, rnn_mode, names):
    model = CLASSES[rnn_mode](2, 5, 3)
    found = keys(saveable_b(model, make_params(model), scope))
    cell = "cudnn_compatible_%s_cell" % rnn_mode
    assert sorted(found) == sorted(
        "%smulti_rnn_cell/cell_%d/%s/%s" % (prefix, layer, cell, name)
        for layer in range(2)
        for name in names
    )
    kinds = ["bias" in key.rsplit("/", 1)[1] for key in found]
    assert kinds == sorted(kinds), "all weights come before all biases"


@pytest.mark.parametrize(
    "rnn_mode, direction",
    [("rnn_tanh", "unidirectional"), ("rnn_relu", "bidirectional"), ("lstm", "bidirectional")],
)
def test_raw_keys_with_a_scope(rnn_mode, direction):
    model = CLASSES[rnn_mode](1, 4, 3, direction=direction)
    found = keys(saveable_b(model, make_params(model), "model/rnn"))
    assert found == ["model/rnn/CudnnRNNParamsToCanonical:%d" % i for i in range(len(found))]
    num_directions = DIRECTIONS.index(direction) + 1
    assert len(found) == 2 * num_directions * type(model)._NUM_PARAMS_PER_LAYER


@needs_projection
def test_a_projection_has_raw_keys(session, tmp_path):
    """The cells of 1.3, as which other unidirectional LSTMs are written, have none."""
    model = CudnnLSTM(2, 4, 3, num_proj=2)
    params = make_params(model)
    saveable = saveable_b(model, params, "model/rnn")
    names = ["model/rnn/CudnnRNNParamsToCanonicalV2:%d" % i for i in range(len(keys(saveable)))]
    assert keys(saveable) == names and len(names) == 2 * (8 + 8 + 1)
    saver = tf.train.Saver([saveable])
    initialize(session)
    expected = session.run(params)
    path = saver.save(session, str(tmp_path / "model.ckpt"))
    session.run(params.assign(0.0 * params))
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run(params), expected)


def test_raw_keys_are_the_names_of_the_tensors():
    model, params = lstm_and_params()
    first, second = saveable_a(model, params), saveable_a(model, params)
    with tf.name_scope("scope"):
        third = saveable_a(model, params)
    assert keys(first) == ["CudnnRNNParamsToCanonical:%d" % i for i in range(16)]
    assert keys(second)[1] == "CudnnRNNParamsToCanonical_1:1"
    assert keys(third)[15] == "scope/CudnnRNNParamsToCanonical:15"


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_specs_can_be_read_and_run(session, generation):
    saveable = GENERATIONS[generation](*lstm_and_params())
    initialize(session)
    by_name = session.run({spec.name: spec.tensor for spec in saveable.specs})
    opaque = opaque_values(144)
    if generation == "a":
        found = np.concatenate([by_name[key].ravel() for key in keys(saveable)])
        np.testing.assert_array_equal(found, opaque)
    else:
        cell = "multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/"
        halves = by_name[cell + "bias_cudnn_0"], by_name[cell + "bias_cudnn_1"]
        np.testing.assert_array_equal(by_name[cell + "bias"], halves[0] + halves[1])
        np.testing.assert_array_equal(np.sort(halves[0]), opaque[112:128])
        assert by_name[cell + "kernel"].shape == (7, 16)


# Signatures


def test_both_signatures_by_position_and_by_keyword():
    model, params = lstm_and_params()
    conversions = {
        "params_to_canonical": model.params_to_canonical,
        "canonical_to_params": model.canonical_to_params,
    }
    p2c, c2p = conversions.values()
    generation_a = [
        RNNParamsSaveable(p2c, c2p, [params]),
        RNNParamsSaveable(p2c, c2p, params, "name"),
        RNNParamsSaveable(p2c, c2p, param_variables=(params,), name="name"),
        RNNParamsSaveable(param_variables=[params], **conversions),
        RNNParamsSaveable(p2c, canonical_to_params=c2p, param_variables=[params]),
    ]
    assert all(keys(saveable)[0].startswith("CudnnRNNParams") for saveable in generation_a)
    scope = {"base_variable_scope": "scope"}
    generation_b = [
        RNNParamsSaveable(model, p2c, c2p, [params], "scope"),
        RNNParamsSaveable(model, p2c, c2p, [params], "scope", "name"),
        RNNParamsSaveable(model, p2c, c2p, [params], name="name", **scope),
        RNNParamsSaveable(cudnn_rnn=model, param_variables=[params], **scope, **conversions),
        RNNParamsSaveable(model, param_variables=params, **scope, **conversions),
    ]
    assert all(keys(saveable)[0].startswith("scope/multi_rnn") for saveable in generation_b)


def test_arguments_of_1_0_and_1_1():
    """1.0 took the variables as separate arguments; 1.1 took the name and then the variables."""
    model, params = lstm_and_params()
    p2c, c2p = model.params_to_canonical, model.canonical_to_params
    other = tf.Variable(tf.zeros([5]), name="other")
    for arguments, named, name, variables in [
        ((p2c, c2p, params), {}, "params_canonical", [params]),
        ((p2c, c2p, params, other), {}, "params_canonical_1", [params, other]),
        ((p2c, c2p, "decoder", params), {}, "decoder", [params]),
        ((p2c, c2p, "pair", params, other), {}, "pair", [params, other]),
        ((p2c, c2p, [params, other], "list"), {}, "list", [params, other]),
        ((p2c, c2p, [params]), {"name": "by_keyword"}, "by_keyword", [params]),
        ((p2c, c2p), {"param_variables": [params], "name": "all"}, "all", [params]),
    ]:
        saveable = RNNParamsSaveable(*arguments, **named)
        assert saveable.name == name
        assert saveable._variables == variables


def test_bad_signatures():
    model, params = lstm_and_params()
    p2c, c2p = model.params_to_canonical, model.canonical_to_params
    for arguments, named, message in [
        ((), {}, "RNNParamsSaveable takes .*missing"),
        ((p2c, c2p), {}, "RNNParamsSaveable takes .*missing .* 'param_variables'"),
        ((p2c, c2p, [params], "name", 1), {}, "param_variables must be a list of variables, .* 1"),
        ((p2c, c2p, "name", "other", params), {}, "RNNParamsSaveable takes .*several names"),
        ((p2c, c2p, "name", params), {"name": "x"}, "RNNParamsSaveable takes .*multiple .*'name'"),
        ((p2c, c2p, params), {"param_variables": [params]}, "RNNParamsSaveable .*multiple values"),
        ((p2c, c2p, [params]), {"scope": "x"}, "RNNParamsSaveable takes .*'scope'"),
        ((p2c, c2p, [params]), {"cudnn_rnn": model}, "RNNParamsSaveable takes .*multiple values"),
        ((), {"cudnn_rnn": 1}, "RNNParamsSaveable takes .*missing"),
        ((p2c, [params], c2p), {}, "canonical_to_params must be a function, but is "),
        ((p2c, model, [params]), {}, "canonical_to_params must be a function, but is "),
        ((p2c, c2p, [tf.zeros([144])]), {}, "must be a list of variables, but contains"),
        ((p2c, c2p, ["params"]), {}, "must be a list of variables, but contains 'params"),
        ((p2c, c2p, "params"), {}, "RNNParamsSaveable takes .*missing .* 'param_variables'"),
    ]:
        with pytest.raises(TypeError, match=message):
            RNNParamsSaveable(*arguments, **named)
    named = dict(params_to_canonical=p2c, canonical_to_params=c2p, param_variables=[params])
    with pytest.raises(TypeError, match="cudnn_rnn must be a CudnnLSTM, .*, but is 'lstm'"):
        RNNParamsSaveable(cudnn_rnn="lstm", **named)
    with pytest.raises(ValueError, match="param_variables must have at least one variable"):
        RNNParamsSaveable(p2c, c2p, [])
    with pytest.raises(ValueError, match=r"params must have at least 144 elements .* has 143"):
        RNNParamsSaveable(p2c, c2p, [tf.Variable(tf.zeros([143]))])


# Several in one checkpoint


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [("encoder", "decoder"), None])
@pytest.mark.parametrize("generation", sorted(GENERATIONS))
def test_encoder_and_decoder_in_one_checkpoint(session, tmp_path, generation, names):
    """tensorflow#22723: the second RNN overwrote the first or could not be saved.

    Without names, the second saveable gets a unique one; a Saver drops one of two equal names.
    """

    def build(factor):
        variables, saveables = [], []
        for number, model in enumerate([CudnnLSTM(2, 5, 3), CudnnGRU(1, 4, 5)]):
            values = factor * opaque_values(layout.params_size(model.config))
            variables.append(make_params(model, values, "params_%d" % number))
            named = {"name": names[number]} if names else {}
            if generation == "b":
                named["scope"] = "rnn_%d" % number
            saveables.append(GENERATIONS[generation](model, variables[-1], **named))
        return variables, saveables

    with tf.Graph().as_default():
        path = save(build(1)[1], tmp_path)
    variables, saveables = build(0)
    expected = names or ("params_canonical", "params_canonical_1")
    assert tuple(saveable.name for saveable in saveables) == expected
    written = {key for key, _ in tf.train.list_variables(path)}
    assert written == set(keys(saveables[0]) + keys(saveables[1]))
    restore(session, saveables, path)
    for value in session.run(variables):
        np.testing.assert_array_equal(value, opaque_values(value.size))


def test_names_start_over_in_another_graph():
    assert saveable_a(*lstm_and_params()).name == "params_canonical"
    with tf.Graph().as_default():
        assert saveable_a(*lstm_and_params()).name == "params_canonical"


def test_saveable_for_an_imported_meta_graph(session, tmp_path, use_resource):
    """Old programs do this: the model outlives its graph, and a collection names the variable."""
    model = CudnnLSTM(2, 4, 3)
    with tf.Graph().as_default():
        params = tf.get_variable(
            "params",
            initializer=tf.constant(opaque_values(304)),
            validate_shape=False,
            use_resource=use_resource,
        )
        tf.add_to_collection("my_params", params)
        saveable = saveable_b(model, params, "rnn")
        path = save([saveable], tmp_path)
        meta_graph = tf.train.export_meta_graph()
    tf.train.import_meta_graph(meta_graph)
    saveable = RNNParamsSaveable(
        model,
        model.params_to_canonical,
        model.canonical_to_params,
        tf.get_collection_ref("my_params"),
        base_variable_scope="rnn",
    )
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    (params,) = tf.global_variables()
    session.run(tf.variables_initializer([params]))
    session.run(tf.assign(params, tf.zeros([304]), validate_shape=False))
    tf.train.Saver([saveable]).restore(session, path)
    np.testing.assert_array_equal(session.run(params), opaque_values(304))
    assert tf.train.Saver().save(session, str(tmp_path / "again"))


@needs_tensorflow_2  # a SaveSpec of TensorFlow 1 has the device of its tensor
@pytest.mark.parametrize("avoids_defects", [False, True])
def test_devices_of_a_saveable(monkeypatch, avoids_defects):
    """A saveable has one device; its conversions may be on the CPU where TensorFlow's own fail."""
    choice = gpu_kernels.choice()._replace(avoids_defects=avoids_defects)
    monkeypatch.setattr(gpu_kernels, "choice", lambda: choice)
    with tf.device("/device:GPU:0"):
        specs = saveable_a(*lstm_and_params()).specs
    assert {spec.device for spec in specs} == {"/device:GPU:0"}
    assert {spec.tensor.device for spec in specs} == {
        "/device:%s:0" % ("CPU" if avoids_defects else "GPU")
    }


def test_the_same_saveable_under_two_names():
    saveable = saveable_a(*lstm_and_params())
    with pytest.raises(ValueError, match="two names"):
        tf.train.Saver({"one": saveable, "other": saveable})


def test_two_saveables_of_one_variable(session, tmp_path):
    model, params = lstm_and_params()
    saveables = [saveable_b(model, params, "rnn"), saveable_a(model, params)]
    path = save(saveables, tmp_path)
    restore(session, saveables, path)
    np.testing.assert_array_equal(session.run(params), opaque_values(144))
