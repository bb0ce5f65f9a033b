"""`sequence_loss`, `HParams`, `ModeKeys`, `xavier_initializer` and regularizers of `tf.contrib`."""

import copy
import importlib
import inspect
import itertools
import pickle

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cudnn_rnn.contrib import block_cells, fused_cells, small_parts
from cudnn_rnn.contrib.hparams import HParams
from cudnn_rnn.contrib.losses import sequence_loss
from helpers.versions import needs_the_original

BATCH, STEPS, CLASSES = 3, 4, 5
ARGUMENTS = [
    part + axis for axis in ("timesteps", "batch") for part in ("average_across_", "sum_over_")
]


def original(part):
    return importlib.import_module("tensorflow.contrib." + part)


def arrays():
    random = np.random.RandomState(0)
    logits = random.normal(size=[BATCH, STEPS, CLASSES]).astype(np.float32)
    targets = random.randint(CLASSES, size=[BATCH, STEPS])
    weights = np.array([[1, 2, 0, 0.5], [0, 0, 0, 0], [1, 1, 1, 0]], np.float32)
    return logits, targets, weights


REDUCTIONS = [
    values
    for values in itertools.product([True, False], repeat=4)
    if not (values[0] and values[1]) and not (values[2] and values[3])
]


@pytest.mark.parametrize("values", REDUCTIONS)
def test_sequence_loss(session, values):
    logits, targets, weights = arrays()
    named = dict(zip(ARGUMENTS, values))
    found = session.run(sequence_loss(logits, targets, weights, **named))
    exponentials = np.exp(logits)
    chosen = np.take_along_axis(exponentials, targets[..., np.newaxis], 2)[..., 0]
    expected = -np.log(chosen / exponentials.sum(2)) * weights
    axes, divisors = (), np.ones_like(weights)
    if values[0] or values[2]:
        axes, divisors = (
            [axis for axis, wanted in enumerate((values[2], values[0])) if wanted],
            weights,
        )
    elif values[1] or values[3]:
        axes = [axis for axis, wanted in enumerate((values[3], values[1])) if wanted]
        divisors = (weights != 0).astype(np.float32)
    if axes:
        total, count = expected.sum(tuple(axes)), divisors.sum(tuple(axes))
        expected = np.where(count == 0, 0, total / np.where(count == 0, 1, count))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@needs_the_original
@pytest.mark.parametrize("values", REDUCTIONS)
def test_sequence_loss_like_the_original(session, values):
    logits, targets, weights = (tf.constant(array) for array in arrays())
    named = dict(zip(ARGUMENTS, values))
    results = []
    for function in (original("seq2seq").sequence_loss, sequence_loss):
        loss = function(logits, targets, weights, **named)
        results.append([loss, tf.gradients(loss, [logits, weights])])
    expected, found = session.run(results)
    for left, right in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-7)


def test_a_loss_function_of_ones_own(session):
    logits, targets, weights = arrays()
    given = {}

    def function(labels, logits):
        given.update(labels=labels.shape.as_list(), logits=logits.shape.as_list())
        return tf.reduce_sum(logits, 1)

    loss = sequence_loss(logits, targets, weights, False, False, softmax_loss_function=function)
    assert given == {"labels": [BATCH * STEPS], "logits": [BATCH * STEPS, CLASSES]}
    np.testing.assert_allclose(session.run(loss), logits.sum(2) * weights, atol=1e-5)


def test_wrong_arguments_of_sequence_loss():
    logits, targets, weights = arrays()
    with pytest.raises(ValueError, match=r"logits has shape .*3, 4.*\[batch, time, num_classes\]"):
        sequence_loss(targets, targets, weights)
    with pytest.raises(ValueError, match=r"targets has shape .*3, 4, 5.*\[batch, time\]"):
        sequence_loss(logits, logits, weights)
    with pytest.raises(ValueError, match=r"weights has shape \(4,\).*\[batch, time\]"):
        sequence_loss(logits, targets, weights[0])
    for axis in ("timesteps", "batch"):
        with pytest.raises(ValueError, match="average_across_%s and sum_over_%s" % (axis, axis)):
            sequence_loss(logits, targets, weights, **{"sum_over_" + axis: True})


def values_of(make, *shape):
    """Returns what an initializer makes of a graph's first operations."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(3)
        return session.run(make()(shape))


@pytest.mark.parametrize("shape, limit", [([30, 40], 70), ([50], 100), ([3, 3, 4, 8], 108)])
def test_xavier_initializer(shape, limit):
    found = values_of(small_parts.xavier_initializer, *shape)
    bound = np.sqrt(6.0 / limit)
    assert 0.9 * bound < np.abs(found).max() <= bound
    normal = values_of(lambda: small_parts.xavier_initializer(uniform=False, seed=1), *shape)
    deviation = np.sqrt(2.6 / limit)
    assert np.abs(normal).max() <= 2 * deviation
    # A normal distribution that ends at two deviations has 0.88 of its deviation.
    assert abs(normal.std() / (0.88 * deviation) - 1) < 0.25


@needs_the_original
@pytest.mark.parametrize("shape", [[], [4], [3, 4], [2, 3, 4, 5]])
@pytest.mark.parametrize("named", [{}, {"uniform": False}, {"seed": 7, "dtype": tf.float64}])
def test_xavier_initializer_like_the_original(shape, named):
    expected, found = (
        values_of(lambda: module.xavier_initializer(**named), *shape)  # noqa: B023
        for module in (original("layers"), small_parts)
    )
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_xavier_initializer_of_a_variable(session):
    variable = tf.get_variable("v", [3, 4], initializer=small_parts.xavier_initializer())
    session.run(variable.initializer)
    assert 0 < np.abs(session.run(variable)).max() <= np.sqrt(6.0 / 7)
    with pytest.raises(TypeError, match="floating-point dtype, but is .*int32"):
        small_parts.xavier_initializer(dtype=tf.int32)


REGULARIZERS = {
    "l1_regularizer": [(0.5,), (0.0,), (0.5, "scope")],
    "l2_regularizer": [(0.5,), (0.0,), (0.5, "scope")],
    "l1_l2_regularizer": [(), (0.5, 0.25), (0.0, 0.5), (0.5, 0.0), (0.5, 0.25, "scope")],
}
REGULARIZER_CALLS = [(name, given) for name, calls in REGULARIZERS.items() for given in calls]


@pytest.mark.parametrize("name, given", REGULARIZER_CALLS)
def test_regularizers(session, name, given):
    scales = [value for value in given if not isinstance(value, str)] or [1.0, 1.0]
    l1, l2 = {"l1_regularizer": scales + [0.0], "l2_regularizer": [0.0] + scales}.get(name, scales)
    weights = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)
    found = getattr(small_parts, name)(*given)(tf.constant(weights))
    if not (l1 or l2):
        assert found is None
        return
    expected = l1 * np.abs(weights).sum() + l2 * (weights**2).sum() / 2
    assert session.run(found) == pytest.approx(expected)


@needs_the_original
@pytest.mark.parametrize("name, given", REGULARIZER_CALLS)
def test_regularizers_like_the_original(name, given):
    """Values and names of the operations are equal."""
    results = []
    for module in (original("layers"), small_parts):
        with tf.Graph().as_default(), tf.Session() as session:
            weights = tf.constant([[1.0, -2.0], [0.5, 0.0]])
            penalty = getattr(module, name)(*given)(weights)
            results.append(penalty if penalty is None else (penalty.name, session.run(penalty)))
    assert results[0] == results[1]


def test_a_regularizer_of_a_scope(session):
    regularizer = small_parts.l2_regularizer(0.5)
    with tf.variable_scope("model", regularizer=regularizer):
        cell = block_cells.LSTMBlockCell(3)
        cell(tf.ones([2, 4]), cell.zero_state(2, tf.float32))
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert len(losses) == 2  # of kernel and bias
    session.run(tf.global_variables_initializer())
    kernel, loss = session.run([cell.variables[0], losses[0]])
    assert loss == pytest.approx(0.25 * (kernel**2).sum(), rel=1e-5)


@pytest.mark.parametrize("name", sorted(REGULARIZERS))
def test_wrong_scales(name):
    scale = "scale_l1" if "l1_l2" in name else "scale"
    with pytest.raises(
        ValueError, match="%s must be a float, but is the integer 1. Write 1.0" % scale
    ):
        getattr(small_parts, name)(1)
    with pytest.raises(ValueError, match="%s must be at least 0, but is -0.5" % scale):
        getattr(small_parts, name)(-0.5)


def test_mode_keys():
    keys = small_parts.ModeKeys
    assert (keys.TRAIN, keys.EVAL, keys.INFER) == ("train", "eval", "infer")
    keys.validate("eval")
    with pytest.raises(ValueError, match="train, eval, infer, but is 'predict'"):
        keys.validate("predict")


def make_hparams(cls=HParams):
    return cls(rate=0.5, layers=2, tied=True, name="lstm", sizes=[3, 4], rates=[0.5], nothing=None)


TEXTS = [
    "",
    "rate=1",
    "rate=1e-3, layers=7",
    "tied=false,name=a b",
    "tied=0",
    "tied=2,name=",
    "sizes=[5]",
    "sizes=[5, 6 7],rates=[1,2.5]",
    "rate = 2 , name = x",
    "sizes=[]",
    "name=[a,b]",
    "rate=[1]",
    "sizes=3",
    "sizes[0]=3",
    "layers=1.5",
    "tied=yes",
    "unknown=3",
    "layers=3,layers=4",
    "layers",
    "layers=2;rate=3",
    "=3",
    "rate=",
]
DICTS = [
    {"rate": 1, "layers": 3},
    {"layers": 1.0},
    {"tied": 1},
    {"name": 3},
    {"layers": True},
    {"sizes": (1, 2)},
    {"sizes": [1, 2.5]},
    {"rates": [1, 2]},
    {"nothing": "text"},
    {"unknown": 1},
]


def outcome(call):
    """Returns the result of a call, or the type of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def all_outcomes(cls):
    """Returns what the class does with every text and dict, and the values afterwards."""
    found = []
    for text in TEXTS:
        params = make_hparams(cls)
        found.append((outcome(lambda: params.parse(text).values()), params.values()))  # noqa: B023
    for values in DICTS:
        params = make_hparams(cls)
        found.append((outcome(lambda: params.override_from_dict(values).values()),))  # noqa: B023
    params = make_hparams(cls)
    for call in (
        lambda: params.get("rate"),
        lambda: params.get("none", 3),
        lambda: params.get("rate", "text"),
        lambda: params.get("sizes", 3),
        lambda: params.get("sizes", [1]),
        lambda: params.add_hparam("rate", 3),
        lambda: params.add_hparam("parse", 3),
        lambda: params.add_hparam("empty", []),
        lambda: params.add_hparam("new", (1, 2)),
        lambda: params.set_hparam("new", [3]),
        lambda: "new" in params,
        lambda: params.del_hparam("new"),
        lambda: params.del_hparam("new"),
        lambda: "new" in params,
        lambda: params.new,
        lambda: params.parse_json('{"rate": 3}').rate,
        lambda: params.set_from_map({"rate": 4}).rate,
        lambda: params.to_json(sort_keys=True),
        lambda: params.to_json(indent=1, separators=(";", "=")),
        lambda: str(params),
        lambda: repr(params),
        lambda: params.set_model_structure("structure"),
        lambda: params.get_model_structure(),
    ):
        found.append(outcome(call))
    return found


@needs_the_original
def test_hparams_like_the_original():
    for found, expected in zip(all_outcomes(HParams), all_outcomes(original("training").HParams)):
        assert found == expected


def test_hparams():
    params = make_hparams()
    assert params.rate == 0.5 and params.sizes == [3, 4] and params.nothing is None
    assert params.parse("rate=1,sizes=[5, 6 7],tied=false,name=gru") is params
    assert params.values() == dict(
        rate=1.0, layers=2, tied=False, name="gru", sizes=[5, 6, 7], rates=[0.5], nothing=None
    )
    assert type(params.rate) is float
    assert HParams(**params.values()).parse_json(params.to_json()).values() == params.values()
    assert copy.deepcopy(params).values() == params.values()
    assert pickle.loads(pickle.dumps(params)).sizes == [5, 6, 7]


WRONG_TEXTS = [
    ("unknown=3", "no hyperparameter 'unknown'; known are: layers, name"),
    ("layers=2,layers=3", "'layers=2,layers=3': layers is assigned twice"),
    ("layers=1.5", "layers must be of type int, but is '1.5'"),
    ("tied=yes", "tied must be of type bool, but is 'yes'"),
    ("sizes=3", "sizes must be a list of int, but is 3"),
    ("rate=[1]", r"rate must be one float, but is \[1.0\]"),
    ("sizes[0]=3", "one element of sizes is assigned; assign the whole list"),
    ("layers=2;rate=3", "layers must be of type int, but is '2;rate=3'"),
    ("rate", "'rate' is not name=value"),
]


@pytest.mark.parametrize("text, message", WRONG_TEXTS)
def test_errors_of_hparams_parse(text, message):
    with pytest.raises(ValueError, match=message):
        make_hparams().parse(text)


def test_errors_of_hparams():
    params = make_hparams()
    with pytest.raises(KeyError, match="no hyperparameter 'unknown'. Known are: layers, name"):
        params.set_hparam("unknown", 1)
    with pytest.raises(ValueError, match="layers must be of type int, but is 1.5 of type float"):
        params.set_hparam("layers", 1.5)
    with pytest.raises(ValueError, match="The name 'parse' is in use"):
        HParams(parse=1)
    with pytest.raises(ValueError, match=r"empty must have at least one element.*is \[\]"):
        HParams(empty=[])
    with pytest.raises(ValueError, match="hparam_def must be None.*to_json"):
        HParams(hparam_def=object())
    with pytest.raises(ValueError, match="default of rate must be of type float, but is 'x'"):
        params.get("rate", "x")


SIGNATURES = [
    ("rnn", block_cells, "LSTMBlockCell"),
    ("rnn", block_cells, "GRUBlockCell"),
    ("rnn", block_cells, "GRUBlockCellV2"),
    ("rnn", fused_cells, "LSTMBlockFusedCell"),
    ("rnn", fused_cells, "TimeReversedFusedRNN"),
    ("layers", small_parts, "xavier_initializer"),
    ("layers", small_parts, "l1_regularizer"),
    ("layers", small_parts, "l2_regularizer"),
    ("layers", small_parts, "l1_l2_regularizer"),
]


@needs_the_original
@pytest.mark.parametrize("part, module, name", SIGNATURES)
def test_signatures(part, module, name):
    found, expected = (
        [(p.name, p.default) for p in inspect.signature(getattr(place, name)).parameters.values()]
        for place in (module, original(part))
    )
    assert found == expected


@needs_the_original
def test_other_signatures():
    pairs = [
        (sequence_loss, original("seq2seq").sequence_loss),
        (fused_cells.LSTMBlockFusedCell.call, original("rnn").LSTMBlockFusedCell.call),
        (fused_cells.TimeReversedFusedRNN.__call__, original("rnn").TimeReversedFusedRNN.__call__),
    ]
    ours, theirs = HParams, original("training").HParams
    public = [name for name in dir(theirs) if not name.startswith("_")]
    pairs += [
        (getattr(ours, name), getattr(theirs, name))
        for name in [*public, "__init__"]
        if name not in ("to_proto", "from_proto")  # of the protocol buffer
    ]
    for own, other in pairs:
        found, expected = (
            [(p.name, p.default) for p in inspect.signature(one).parameters.values()]
            for one in (own, other)
        )
        assert found == expected, own
