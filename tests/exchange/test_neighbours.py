"""PyTorch, Keras and ONNX Runtime compute the same with converted weights, in both directions."""

import numpy as np
import pytest
import tensorflow

from cudnn_rnn import exchange
from cudnn_rnn.exchange import Contents, keras_format, onnx_format, torch_format
from helpers.exchange_models import (
    BATCH,
    STEPS,
    assert_same,
    assert_same_results,
    make_module,
    random_inputs,
    random_rnn,
    run_onnx,
    run_op,
)
from helpers.versions import needs_tensorflow_2

pytestmark = pytest.mark.ci

LENGTHS = [STEPS, 1, 3]
MODELS = [
    dict(rnn_mode=mode, num_layers=layers, bidirectional=bidirectional)
    for mode in ("lstm", "gru", "rnn_relu", "rnn_tanh")
    for layers, bidirectional in ((1, True), (2, False), (3, True))
]
PROJECTIONS = [
    dict(rnn_mode="lstm", num_layers=layers, bidirectional=bidirectional, num_proj=3)
    for layers, bidirectional in ((1, False), (2, True))
]


def every(models):
    return pytest.mark.parametrize(
        "model", models, ids=lambda model: "-".join(str(value) for value in model.values())
    )


def write_and_read(tmp_path, rnn, name, to, **facts):
    path = str(tmp_path / name)
    assert exchange.write(path, [rnn], to) == []
    (found,) = exchange.read(path, **facts).rnns
    return path, found


# PyTorch


def run_module(module, inputs):
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    state = (tensors["input_h"], tensors["input_c"]) if "input_c" in inputs else tensors["input_h"]
    with torch.no_grad():
        output, state = module(tensors["input"], state)
    states = state if isinstance(state, tuple) else [state]
    names = ("output", "output_h", "output_c")
    return dict(zip(names, [tensor.numpy() for tensor in (output, *states)]))


@needs_tensorflow_2
@every(MODELS + PROJECTIONS)
def test_to_torch(tmp_path, model):
    import safetensors.torch
    import torch

    rnn = random_rnn(**model)
    suffix = "safetensors" if rnn.num_layers == 2 else "pt"
    path, found = write_and_read(tmp_path, rnn, "rnn." + suffix, "torch", rnn_mode=rnn.rnn_mode)
    assert_same(found, rnn)
    load = safetensors.torch.load_file if suffix == "safetensors" else torch.load
    module = make_module(rnn)
    module.load_state_dict(load(path))
    inputs = random_inputs(rnn)
    assert_same_results(run_module(module, inputs), run_op(rnn, inputs))


@needs_tensorflow_2
@every(MODELS + PROJECTIONS)
def test_from_torch(tmp_path, model):
    import torch

    torch.manual_seed(0)
    module = make_module(random_rnn(**model))
    torch.save({"epoch": 3, "model": module.state_dict()}, str(tmp_path / "checkpoint.pt"))
    contents = exchange.read(tmp_path / "checkpoint.pt", rnn_mode=model["rnn_mode"])
    (rnn,) = contents.rnns
    inputs = random_inputs(rnn)
    assert_same_results(run_op(rnn, inputs), run_module(module, inputs))


@needs_tensorflow_2
def test_modules_of_a_torch_model():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.GRU(4, 5, bias=False)
            self.decoder = torch.nn.ModuleDict({"rnn": torch.nn.RNN(4, 5)})
            self.head = torch.nn.Linear(5, 2)

    contents = torch_format.from_state_dict(Model().state_dict())
    assert [(rnn.scope, rnn.rnn_mode) for rnn in contents.rnns] == [
        ("encoder", "gru"),
        ("decoder/rnn", "rnn_tanh or rnn_relu"),
    ]
    assert contents.others == ["head.weight", "head.bias"]
    (without_biases,) = contents.notes
    assert without_biases.startswith("The RNN 'encoder' has no biases, as with bias=False")
    assert not contents.rnns[0].layers[0][0].input_bias.any()
    module = Model()
    state = torch_format.to_state_dict(contents.rnns)
    given = {name: torch.from_numpy(array) for name, array in state.items()}
    result = module.load_state_dict(given, strict=False)
    assert result.missing_keys == ["head.weight", "head.bias"]
    assert sorted(result.unexpected_keys) == ["encoder.bias_hh_l0", "encoder.bias_ih_l0"]


@needs_tensorflow_2
def test_what_is_no_torch_rnn():
    state = torch_format.to_state_dict([random_rnn("lstm", num_layers=2)])
    broken = dict(state)
    del broken["weight_hh_l0"]
    with pytest.raises(exchange.ExchangeError, match="weight_hh_l0 is missing"):
        torch_format.from_state_dict(broken)
    broken = dict(state, weight_hh_l0=np.zeros([10, 5], np.float32))
    with pytest.raises(exchange.ExchangeError, match="has 2 gates; expected 4"):
        torch_format.from_state_dict(broken)
    broken = dict(state, bias_ih_l1=np.zeros([10], np.float32))
    with pytest.raises(exchange.ExchangeError, match=r"no RNN: layers\[1\]\[0\].input_bias"):
        torch_format.from_state_dict(broken)


@needs_tensorflow_2
def test_bfloat16_of_torch_is_refused():
    import torch

    state = torch.nn.GRU(4, 5).bfloat16().state_dict()
    expected = r"weight_ih_l0 is torch.bfloat16, which NumPy does not have. .* with \.float\(\)"
    with pytest.raises(exchange.ExchangeError, match=expected):
        torch_format.from_state_dict(state)


@needs_tensorflow_2
def test_torch_files_without_an_rnn(tmp_path):
    import torch

    path, ones = str(tmp_path / "model.pt"), torch.ones(2)
    for saved, others in ((ones, []), ({"a.weight": ones, "b": {"bias": ones}}, ["a.weight", "b"])):
        torch.save(saved, path)
        assert exchange.read(path) == Contents(path, "PyTorch file", [], others=others)


# Keras


def keras_results(model, rnn, inputs):
    """Returns the sequences of a Keras model, time-major."""
    return np.swapaxes(np.asarray(model(np.swapaxes(inputs["input"], 0, 1))), 0, 1)


@pytest.mark.sampled(4)
@needs_tensorflow_2
@every(MODELS)
def test_to_keras(tmp_path, model):
    suffix = "h5" if model["num_layers"] == 2 else "keras"
    rnn = random_rnn(**dict(model, equal_biases=True))
    path, found = write_and_read(tmp_path, rnn, "rnn." + suffix, "keras")
    assert_same(found, rnn)
    assert found.scope == ""
    inputs = random_inputs(rnn, with_states=False)
    loaded = tensorflow.keras.models.load_model(path, compile=False)
    found = keras_results(loaded, rnn, inputs)
    np.testing.assert_allclose(found, run_op(rnn, inputs)["output"], rtol=0, atol=1e-5)


def test_keras_files_in_a_program_with_a_graph(session, tmp_path):
    """Keras files are read and written eagerly, and add no ops to the graph."""
    rnn = random_rnn("gru", bidirectional=True)
    write_and_read(tmp_path, rnn, "rnn.h5", "keras")
    assert session.graph.get_operations() == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
def test_h5_models(tmp_path, rnn_mode):
    """Keras 2 of TensorFlow 1.15 writes and reads them too."""
    rnn = random_rnn(rnn_mode, bidirectional=True, equal_biases=True)
    _, found = write_and_read(tmp_path, rnn, "rnn.h5", "keras")
    assert_same(found, rnn)


@pytest.mark.sampled(3)
@needs_tensorflow_2
@pytest.mark.parametrize(
    "package, bidirectional", [("keras", False), ("keras", True), ("cudnn_rnn", True)]
)
@pytest.mark.parametrize("kind, arguments", [("LSTM", {}), ("GRU", {}), ("SimpleRNN", {}),
                                             ("SimpleRNN", {"activation": "relu"})])  # fmt: skip
def test_from_keras(tmp_path, kind, arguments, package, bidirectional):
    import cudnn_rnn.keras

    keras = tensorflow.keras
    layers = keras.layers if package == "keras" else cudnn_rnn.keras
    keras.utils.set_random_seed(0)

    def make_layer():
        layer = getattr(layers, kind)(5, return_sequences=True, **arguments)
        return keras.layers.Bidirectional(layer) if bidirectional else layer

    model = keras.Sequential([keras.Input((None, 4)), make_layer(), make_layer()])
    random = np.random.RandomState(0)
    model.set_weights([random.uniform(-0.6, 0.6, one.shape) for one in model.get_weights()])
    model.save(str(tmp_path / "model.keras"))
    (rnn,) = exchange.read(tmp_path / "model.keras").rnns
    assert (rnn.num_layers, rnn.bidirectional) == (2, bidirectional)
    inputs = random_inputs(rnn, with_states=False)
    expected = keras_results(model, rnn, inputs)
    np.testing.assert_allclose(run_op(rnn, inputs)["output"], expected, rtol=0, atol=1e-5)


@needs_tensorflow_2
def test_a_model_with_other_layers_and_a_stack(tmp_path):
    import cudnn_rnn.keras

    keras = tensorflow.keras
    inputs = keras.Input((None, 4))
    values = keras.layers.GRU(5, return_sequences=True, use_bias=False, name="first")(inputs)
    values = keras.layers.Dense(5, name="between")(values)
    values = keras.layers.GRU(5, return_sequences=True, name="second")(values)
    values = cudnn_rnn.keras.RNNStack("lstm", 2, 3, bidirectional=True, name="stack")(values)
    model = keras.Model(inputs, values)
    model.save(str(tmp_path / "model.keras"))
    contents = exchange.read(tmp_path / "model.keras")
    assert [(rnn.scope, rnn.num_layers, rnn.rnn_mode) for rnn in contents.rnns] == [
        ("first", 1, "gru"),
        ("second", 1, "gru"),
        ("stack", 2, "lstm"),
    ]
    assert len(contents.others) == 2
    expected = [np.asarray(one) for one in model.get_layer("stack").weights]
    found = [
        array
        for _, _, weights in contents.rnns[2].places()
        for array in keras_format.to_layer_weights(weights, "lstm")
    ]
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


@needs_tensorflow_2
@pytest.mark.parametrize(
    "kind, arguments, message",
    [
        ("LSTM", {"activation": "relu"}, "'rnn' has activation=.*relu"),
        ("LSTM", {"recurrent_activation": "hard_sigmoid"}, "recurrent_activation="),
        ("GRU", {"reset_after": False}, "reset_after=False"),
        ("SimpleRNN", {"activation": "sigmoid"}, "activation="),
        ("LSTM", {"go_backwards": True}, "go_backwards=True"),
    ],
)
def test_keras_layers_that_cudnn_does_not_compute(kind, arguments, message):
    keras = tensorflow.keras
    layer = getattr(keras.layers, kind)(5, name="rnn", **arguments)
    model = keras.Sequential([keras.Input((None, 4)), layer])
    with pytest.raises(exchange.ExchangeError, match=message):
        keras_format.from_model(model)


@needs_tensorflow_2
def test_keras_directions_with_other_activations():
    layers = tensorflow.keras.layers
    forward, backward = [
        layers.SimpleRNN(5, activation=activation, go_backwards=activation == "relu")
        for activation in ("tanh", "relu")
    ]
    both = layers.Bidirectional(forward, backward_layer=backward, name="rnn")
    model = tensorflow.keras.Sequential([tensorflow.keras.Input((None, 4)), both])
    message = "'rnn' computes rnn_tanh forward and rnn_relu backward; .* same in both directions"
    with pytest.raises(exchange.ExchangeError, match=message):
        keras_format.from_model(model)


@needs_tensorflow_2
def test_keras_weights_alone(tmp_path):
    rnn = random_rnn("gru")
    path = str(tmp_path / "rnn.weights.h5")
    exchange.write(path, [rnn], "keras")
    model = keras_format.to_model([random_rnn("gru", seed=5)])
    model.load_weights(path)
    (found,) = keras_format.from_model(model).rnns
    assert_same(found, rnn)
    assert_same(exchange.read(path).rnns[0], rnn)
    with pytest.raises(exchange.ExchangeError, match=r"ends with .keras, .h5"):
        exchange.write(str(tmp_path / "rnn"), [rnn], "keras")


# ONNX


def onnx_inputs(inputs, lengths=None):
    names = {"input": "input", "input_h": "initial_h", "input_c": "initial_c"}
    arrays = {names[name]: array for name, array in inputs.items()}
    if lengths is not None:
        arrays["sequence_lens"] = np.array(lengths, np.int32)
    return arrays


@needs_tensorflow_2
@every(MODELS)
def test_to_onnx_and_back(tmp_path, model):
    rnn = random_rnn(**model)
    path, found = write_and_read(tmp_path, rnn, "rnn.onnx", "onnx")
    assert_same(found, rnn)
    assert found.scope == ""
    inputs = random_inputs(rnn)
    assert_same_results(run_onnx(path, onnx_inputs(inputs)), run_op(rnn, inputs))
    found = run_onnx(path, onnx_inputs(inputs, LENGTHS))
    assert_same_results(found, run_op(rnn, inputs, LENGTHS))
    for batch in (1, 4):
        inputs = random_inputs(rnn, with_states=False, batch=batch)
        found = run_onnx(path, {"input": inputs["input"]})
        assert_same_results(found, run_op(rnn, inputs))


@needs_tensorflow_2
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
def test_onnx_with_sequences_of_length_0(tmp_path, rnn_mode):
    rnn = random_rnn(rnn_mode, bidirectional=True)
    path, _ = write_and_read(tmp_path, rnn, "rnn.onnx", "onnx")
    inputs, lengths = random_inputs(rnn), [0, 2, STEPS]
    found = run_onnx(path, onnx_inputs(inputs, lengths))
    assert_same_results(found, run_op(rnn, inputs, lengths))


def torch_exports(path, module, inputs):
    import torch

    torch.onnx.export(module, (torch.from_numpy(inputs),), path, dynamo=False)


@needs_tensorflow_2
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("rnn_mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
@pytest.mark.filterwarnings("ignore")
def test_from_onnx_models_of_torch(tmp_path, rnn_mode, bidirectional):
    rnn = random_rnn(rnn_mode, bidirectional=bidirectional)
    inputs = random_inputs(rnn, with_states=False)
    path = str(tmp_path / "exported.onnx")
    torch_exports(path, make_module(rnn), inputs["input"])
    (found,) = exchange.read(path).rnns
    assert (found.num_layers, found.bidirectional) == (2, bidirectional)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    output = session.run(None, {session.get_inputs()[0].name: inputs["input"]})[0]
    np.testing.assert_allclose(run_op(found, inputs)["output"], output, rtol=0, atol=1e-5)


@needs_tensorflow_2
@pytest.mark.parametrize(
    "attribute, value, message",
    [
        ("linear_before_reset", 0, "linear_before_reset=0"),
        ("linear_before_reset", None, "linear_before_reset=0"),  # ONNX's default
        ("clip", 3.0, "clip=3.0"),
        ("activations", ["Sigmoid", "Relu"], "activations="),
        ("layout", 1, "layout=1"),
    ],
)
def test_onnx_nodes_that_cudnn_does_not_compute(attribute, value, message):
    import onnx

    model = onnx_format.to_model([random_rnn("gru", num_layers=1)])
    (node,) = [node for node in model.graph.node if node.op_type == "GRU"]
    kept = [one for one in node.attribute if one.name != attribute]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(onnx.helper.make_attribute(attribute, value))
    with pytest.raises(exchange.ExchangeError, match="The GRU node 'layer_0' has " + message):
        onnx_format.from_model(model)


@needs_tensorflow_2
@pytest.mark.parametrize("place, letter", [(1, "W"), (2, "R"), (3, "B")])
def test_onnx_weights_that_are_no_constants(place, letter):
    model = onnx_format.to_model([random_rnn("gru", num_layers=1)])
    (node,) = [node for node in model.graph.node if node.op_type == "GRU"]
    node.input[place] = "computed"
    with pytest.raises(exchange.ExchangeError, match=letter + ", 'computed', is no constant"):
        onnx_format.from_model(model)


@needs_tensorflow_2
def test_onnx_peepholes_are_refused():
    model = onnx_format.to_model([random_rnn("lstm", num_layers=1)])
    (node,) = [node for node in model.graph.node if node.op_type == "LSTM"]
    assert len(node.input) == 7
    node.input.append("peepholes")
    with pytest.raises(exchange.ExchangeError, match="The LSTM node 'layer_0' has peepholes"):
        onnx_format.from_model(model)


# Several RNNs, and what a format does not have


@needs_tensorflow_2
@pytest.mark.parametrize("to, name", [("torch", "m.pt"), ("onnx", "m.onnx"), ("npz", "m.npz"),
                                      ("keras", "m.keras")])  # fmt: skip
def test_several_rnns(tmp_path, to, name):
    rnns = [
        random_rnn("lstm", scope="model/encoder", seed=1, equal_biases=True),
        random_rnn("gru", scope="model/decoder", seed=2, bidirectional=True),
    ]
    path = str(tmp_path / name)
    exchange.write(path, rnns, to)
    found = {rnn.scope: rnn for rnn in exchange.read(path).rnns}
    assert set(found) == {rnn.scope for rnn in rnns}
    for rnn in rnns:
        assert_same(found[rnn.scope], rnn)
    if to == "onnx":
        inputs = [random_inputs(rnn, with_states=False) for rnn in rnns]
        feeds = {rnn.scope + "/input": one["input"] for rnn, one in zip(rnns, inputs)}
        results = run_onnx(path, feeds)
        for rnn, one in zip(rnns, inputs):
            expected = {rnn.scope + "/" + key: value for key, value in run_op(rnn, one).items()}
            for key, value in expected.items():
                np.testing.assert_allclose(results[key], value, rtol=0, atol=1e-5)
    with pytest.raises(exchange.ExchangeError, match="2 RNNs have the scope 'x'"):
        exchange.write(path, [rnn.with_scope("x") for rnn in rnns], to, force=True)


@needs_tensorflow_2
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(
    "to, name", [("torch", "m.pt"), ("torch", "m.safetensors"), ("onnx", "m.onnx"),
                 ("keras", "m.keras")]
)  # fmt: skip
def test_other_dtypes(tmp_path, to, name, dtype):
    rnn = random_rnn("gru", bidirectional=True, dtype=dtype)
    notes = exchange.write(tmp_path / name, [rnn], to)
    assert len(notes) == (to == "onnx" and dtype == "float64")
    assert all("is of float64, which ONNX has, but ONNX Runtime" in note for note in notes)
    assert_same(exchange.read(tmp_path / name).rnns[0], rnn)
    converted = exchange.convert(tmp_path / name, tmp_path / "x.onnx", "onnx", dry_run=True)
    assert len(converted.notes) == (dtype == "float64")


@needs_tensorflow_2
@pytest.mark.parametrize("to, name", [("onnx", "m.onnx"), ("keras", "m.keras")])
def test_a_projection_is_refused(tmp_path, to, name):
    rnn = random_rnn("lstm", num_proj=3)
    with pytest.raises(exchange.ExchangeError, match="The RNN has a projection.*--to torch"):
        exchange.write(tmp_path / name, [rnn], to)
    assert list(tmp_path.iterdir()) == []


assert BATCH == len(LENGTHS)
