"""Layers of this package are copied, saved and loaded again, in every way that Keras has."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

import cudnn_rnn.keras as ours
from helpers.keras_layers import IS_KERAS_3, keras, needs_keras_3
from helpers.versions import IS_TENSORFLOW_1

layers = keras.layers


def sequential(*inside, **shape):
    if tf.__version__.startswith("1.14."):  # it does not write the shape of an InputLayer
        inputs = outputs = keras.Input(batch_shape=shape["of"])
        for layer in inside:
            outputs = layer(outputs)
        return keras.Model(inputs, outputs)
    first = layers.InputLayer(**{"batch_shape" if IS_KERAS_3 else "batch_input_shape": shape["of"]})
    return keras.Sequential([first, *inside])


def seq2seq():
    inputs = [keras.Input((None, 5)), keras.Input((None, 5))]
    _, h, c = ours.LSTM(4, return_state=True)(inputs[0])
    outputs = ours.LSTM(4, return_sequences=True)(inputs[1], initial_state=[h, c])
    return keras.Model(inputs, outputs)


MODELS = {
    "lstm": lambda: sequential(ours.LSTM(4), of=(None, None, 5)),
    "gru and simple": lambda: sequential(
        ours.GRU(4, return_sequences=True), ours.SimpleRNN(3), of=(None, None, 5)
    ),
    "cudnn": lambda: sequential(
        ours.CuDNNLSTM(4, return_sequences=True), ours.CuDNNGRU(3), of=(None, None, 5)
    ),
    "bidirectional": lambda: sequential(layers.Bidirectional(ours.LSTM(4)), of=(None, 6, 5)),
    "stack": lambda: sequential(ours.RNNStack("gru", 2, 4, bidirectional=True), of=(None, 6, 5)),
    "stateful": lambda: sequential(ours.LSTM(4, stateful=True), of=(2, 6, 5)),
    "time-distributed": lambda: sequential(layers.TimeDistributed(ours.GRU(4)), of=(None, 2, 6, 5)),
    "seq2seq": seq2seq,
}
HAS_ARCHIVES = IS_KERAS_3 or hasattr(getattr(keras, "saving", None), "load_model")


def saved(suffix, load):
    def run(model, folder):
        path = str(folder / ("model" + suffix))
        model.save(path)
        return load(path)

    return run


def from_json(model, _):
    scope = {"CuDNNLSTM": ours.CuDNNLSTM} if IS_TENSORFLOW_1 else {}
    made = keras.models.model_from_json(model.to_json(), custom_objects=scope)
    made.set_weights(model.get_weights())
    return made


WAYS = {
    ".h5, ours": saved(".h5", ours.load_model),
    ".h5, Keras": saved(".h5", keras.models.load_model),
    "json": from_json,
}
if HAS_ARCHIVES:
    WAYS.update(
        {
            ".keras, ours": saved(".keras", ours.load_model),
            ".keras, Keras": saved(".keras", keras.models.load_model),
            "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
            "deepcopy": lambda model, _: copy.deepcopy(model),
        }
    )
if IS_TENSORFLOW_1:  # no registry of classes
    WAYS = {".h5, ours": WAYS[".h5, ours"]}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("name", sorted(MODELS))
def test_copies_have_the_same_outputs(tmp_path, name, way):
    keras.backend.clear_session()
    model = MODELS[name]()
    random = np.random.RandomState(0)
    model.set_weights([random.uniform(-0.6, 0.6, each.shape) for each in model.get_weights()])
    shape = (2, 2, 6, 5) if name == "time-distributed" else (2, 6, 5)
    inputs = [random.standard_normal(shape).astype(np.float32) for _ in model.inputs]
    inputs = inputs if len(inputs) > 1 else inputs[0]
    made = WAYS[way](model, tmp_path)
    found, expected = (one.predict(inputs, batch_size=2, verbose=0) for one in (made, model))
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if way != ".h5, ours":  # there, the layers of cuDNN are LSTM and GRU
        assert [type(layer) for layer in made.layers] == [type(layer) for layer in model.layers]


# Policies of dtypes, and initializers, which today's Keras reads as they are


def policy_map():
    policies = keras.dtype_policies.DTypePolicyMap("mixed_bfloat16")
    policies["elsewhere"] = keras.dtype_policies.DTypePolicy("float16")
    return policies


def own_policy():
    @keras.utils.register_keras_serializable("test_keras_reload")
    class OwnPolicy(keras.dtype_policies.DTypePolicy):
        pass

    return OwnPolicy("mixed_bfloat16")


POLICY_WAYS = {
    "config": lambda layer, _: type(layer).from_config(layer.get_config()),
    "clone": lambda layer, _: keras.models.clone_model(keras.Sequential([layer])).layers[0],
    "bidirectional": lambda layer, _: layers.Bidirectional(layer).backward_layer,
    **{
        way: lambda layer, folder, way=way: WAYS[way](
            sequential(layer, of=(2, 6, 5)), folder
        ).layers[-1]
        for way in (".keras, ours", ".keras, Keras")
        if way in WAYS
    },
}


@needs_keras_3
@pytest.mark.parametrize("way", sorted(POLICY_WAYS))
@pytest.mark.parametrize("policy", [policy_map, own_policy])
def test_policies_of_dtypes_are_kept(tmp_path, policy, way):
    layer = ours.LSTM(4, dtype=policy())
    made = POLICY_WAYS[way](layer, tmp_path).dtype_policy
    assert type(made) is type(layer.dtype_policy)
    assert made.compute_dtype == "bfloat16" and made.variable_dtype == "float32"
    if policy is policy_map:
        assert made["elsewhere"].compute_dtype == "float16"


@needs_keras_3
def test_policies_of_layers_of_keras(tmp_path):
    """Maps are read as they are, but only with policies that the program or Keras has."""
    policies, path = policy_map(), str(tmp_path / "model.keras")
    policies["own"] = own_policy()
    sequential(layers.LSTM(4, dtype=policies), of=(2, 6, 5)).save(path)
    made = ours.load_model(path).layers[-1]
    assert isinstance(made, ours.LSTM) and made.compute_dtype == "bfloat16"
    assert made.dtype_policy["elsewhere"].compute_dtype == "float16"
    assert type(made.dtype_policy["own"]) is type(policies["own"])
    keras.utils.get_custom_objects().pop("test_keras_reload>OwnPolicy")
    with pytest.raises((TypeError, ValueError), match="OwnPolicy"):
        ours.load_model(path)


@pytest.mark.parametrize("class_name", ["Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy"])
def test_a_policy_of_another_keras_becomes_its_name(class_name):
    policy = {"class_name": class_name, "config": {"name": "float64"}}
    layer = ours.LSTM.from_config({"units": 4, "dtype": policy})
    assert layer.dtype == "float64"


@needs_keras_3
def test_an_initializer_of_the_program_keeps_its_dtype():
    @keras.utils.register_keras_serializable("test_keras_reload")
    class OwnInitializer(keras.initializers.Zeros):
        def __init__(self, dtype=None):
            self.dtype = dtype

        def get_config(self):
            return {"dtype": self.dtype}

    layer = ours.LSTM(4, kernel_initializer=OwnInitializer("float16"))
    made = type(layer).from_config(layer.get_config())
    assert made.cell.kernel_initializer.dtype == "float16"
