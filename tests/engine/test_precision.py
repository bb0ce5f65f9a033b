"""The precision of float32 products: of the process, of a context, of a model, of a gradient."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

import cudnn_rnn
from cudnn_rnn._native import library, precision
from cudnn_rnn.cli import doctor
from cudnn_rnn.graph.precision import ATTRIBUTE
from cudnn_rnn.model.spec import PRECISIONS
from helpers.cases import CASES
from helpers.networks import arrays_and_results, run_network
from helpers.op_harness import TOLERANCES, assert_close, assert_same_bits
from helpers.processes import importable, output_of
from helpers.versions import needs_tensorflow_1, needs_tensorflow_2

OURS, TENSORFLOWS = "CUDNN_RNN_FLOAT32_MATMUL_PRECISION", "TF_SET_ONEDNN_FPMATH_MODE"
INSTRUCTION_SET = "CUDNN_RNN_CPU_INSTRUCTION_SET"
# Factors keep 24, 16 and 8 significant bits.
TOLERANCE = {"highest": TOLERANCES["float32"], "high": 2e-4, "medium": 3e-2}
FLOAT_CASES = [case for case in CASES[::3] if case.dtype == "float32"]


@pytest.fixture(autouse=True)
def unset():
    """Leaves the process as it was."""
    yield
    precision._set(None)


UNITS = 840


def data(units=UNITS, steps=3, batch=1):
    """Returns input, state and params of a GRU that is limited by reading its weights."""
    random = np.random.RandomState(1)
    size = 6 * units * units + 6 * units
    shapes = [(steps, batch, units), (1, batch, units), (size,)]
    scales = [1.0, 1.0, units**-0.5]
    return [
        (scale * random.uniform(-1, 1, shape)).astype("float32")
        for shape, scale in zip(shapes, scales)
    ]


def model(**options):
    return cudnn_rnn.CudnnGRU(1, UNITS, UNITS, **options)


class Session:
    """A graph with a training call of the model and its gradients."""

    def __init__(self, **options):
        with tf.Graph().as_default() as graph:
            self.inputs = [tf.constant(array) for array in data()]
            results = model(**options)(*self.inputs, is_training=True)
            gradients = tf.gradients(results, self.inputs)
            self._fetches = [*results, *gradients]
            self._session = tf.Session(graph=graph)

    def run(self):
        return self._session.run(self._fetches)


def are_equal(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second))


def rounds(found, exact):
    """Returns whether products were rounded to bfloat16; fails if results are worse than that."""
    errors = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(found, exact)]
    assert max(errors) < 3e-2, errors
    return max(errors) > 1e-4


def medium_is_faster_here():
    """Returns whether "medium" differs from "highest" for the model of these tests."""
    with cudnn_rnn.float32_matmul_precision("medium"):
        report = doctor.cpu_report(library.library_path()).splitlines()[0]
    return "bf16," in report or "are read as bfloat16" in report


def set_and_report(name):
    cudnn_rnn.set_float32_matmul_precision(name)
    return doctor.cpu_report(library.library_path()).splitlines()[-1]


def test_the_setting_of_the_process():
    assert cudnn_rnn.get_float32_matmul_precision() == "highest"
    for name in PRECISIONS:
        reason = "cudnn_rnn.set_float32_matmul_precision set it"
        assert set_and_report(name) == "precision: %s, %s" % (name, reason)
        assert cudnn_rnn.get_float32_matmul_precision() == name
    for wrong in ("low", "", None, "Medium", 3):
        with pytest.raises(ValueError, match="precision must be"):
            cudnn_rnn.set_float32_matmul_precision(wrong)
    assert cudnn_rnn.get_float32_matmul_precision() == "medium"


def test_the_context_restores_what_was_before():
    with cudnn_rnn.float32_matmul_precision("high"):
        assert cudnn_rnn.get_float32_matmul_precision() == "high"
        with pytest.raises(KeyError), cudnn_rnn.float32_matmul_precision("medium"):
            assert cudnn_rnn.get_float32_matmul_precision() == "medium"
            raise KeyError
        assert cudnn_rnn.get_float32_matmul_precision() == "high"
    report = doctor.cpu_report(library.library_path()).splitlines()[-1]
    assert report == "precision: highest, the default"


@pytest.mark.parametrize("name", PRECISIONS)
def test_cases_in_each_precision(name):
    for case in FLOAT_CASES:
        arrays, expected = arrays_and_results(case)
        with cudnn_rnn.float32_matmul_precision(name):
            found = run_network(case.configuration, case.dtype, arrays)
        assert_close(found, expected, TOLERANCE[name], "%s %s" % (name, case))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes_keep_their_bits(dtype):
    case = next(case for case in CASES if case.dtype == dtype)
    arrays, _ = arrays_and_results(case)
    expected = run_network(case.configuration, dtype, arrays)
    with cudnn_rnn.float32_matmul_precision("medium"):
        assert_same_bits(run_network(case.configuration, dtype, arrays), expected)


def test_a_graph_that_exists_follows_the_process():
    session = Session()
    highest = session.run()
    with cudnn_rnn.float32_matmul_precision("medium"):
        assert rounds(session.run(), highest) == medium_is_faster_here()
    assert are_equal(session.run(), highest)


def test_a_model_has_a_precision_of_its_own():
    highest = Session().run()
    medium = Session(float32_matmul_precision="medium")
    found = medium.run()
    assert rounds(found, highest) == medium_is_faster_here()
    with cudnn_rnn.float32_matmul_precision("highest"):
        assert are_equal(medium.run(), found)
    with cudnn_rnn.float32_matmul_precision("medium"):
        assert are_equal(Session(float32_matmul_precision="highest").run(), highest)


def test_a_wrong_precision_of_a_model():
    for wrong in ("low", 3):
        with pytest.raises(ValueError, match="float32_matmul_precision must be"):
            model(float32_matmul_precision=wrong)
        with pytest.raises(ValueError, match="float32_matmul_precision must be"):
            cudnn_rnn.layers.CudnnLSTM(1, 4, float32_matmul_precision=wrong)


def test_a_wrong_precision_in_a_graph():
    with tf.Graph().as_default(), tf.Session() as session:
        results = model()(*map(tf.constant, data()), is_training=False)
        results[0].op._set_attr(ATTRIBUTE, tf.AttrValue(s=b"low"))
        match = "float32_matmul_precision must be one of highest, high, medium, but is 'low'"
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            session.run(results)


def gradients_of_layer(layer):
    """Returns the gradient of a layer's kernel, in a graph."""
    with tf.Graph().as_default(), tf.Session() as session:
        inputs, state, params = data()
        layer = layer()
        outputs, _ = layer(tf.constant(inputs), (tf.constant(state),), training=True)
        gradient = tf.gradients(outputs, layer.kernel)
        return session.run(gradient, {layer.kernel: params})


def test_a_layer_has_a_precision_of_its_own():
    def layer(precision):
        return lambda: cudnn_rnn.layers.CudnnGRU(1, UNITS, float32_matmul_precision=precision)

    highest, medium = (gradients_of_layer(layer(name)) for name in (None, "medium"))
    assert rounds(medium, highest) == medium_is_faster_here()


def eager_results(**options):
    """Returns results and gradients of a model, executed eagerly."""
    with context.eager_mode():
        inputs = [tf.constant(array) for array in data()]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = model(**options)(*inputs, is_training=True)
        return [value.numpy() for value in [*results, *tape.gradient(results, inputs)]]


@needs_tensorflow_2
def test_an_eager_model_has_a_precision_of_its_own():
    highest = eager_results()
    medium = eager_results(float32_matmul_precision="medium")
    assert rounds(medium, highest) == medium_is_faster_here()
    with cudnn_rnn.float32_matmul_precision("medium"):
        assert are_equal(eager_results(), medium)
        assert are_equal(eager_results(float32_matmul_precision="highest"), highest)


@needs_tensorflow_1
def test_an_eager_model_of_tensorflow_1_is_refused():
    with pytest.raises(NotImplementedError, match=r"set_float32_matmul_precision\('medium'\)"):
        eager_results(float32_matmul_precision="medium")


IN_FORCE = """
import cudnn_rnn
from cudnn_rnn._native import library
from cudnn_rnn.cli import doctor
print(doctor.cpu_report(library.library_path()).splitlines()[-1])
try:
    print(cudnn_rnn.get_float32_matmul_precision())
except ValueError as error:
    print(error)
"""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "variables, expected",
    [
        ({OURS: "high"}, "precision: high, the environment variable %s says so\nhigh\n" % OURS),
        (
            {TENSORFLOWS: "BF16"},
            "precision: medium, the environment variable %s is BF16\nmedium\n" % TENSORFLOWS,
        ),
        (
            {OURS: "highest", TENSORFLOWS: "BF16"},
            "precision: highest, the environment variable %s says so\nhighest\n" % OURS,
        ),
        ({TENSORFLOWS: "FP32"}, "precision: highest, the default\nhighest\n"),
        (
            {OURS: "low"},
            2 * ("The environment variable %s is invalid: float32_matmul_precision must be one of "
            "highest, high, medium, but is 'low'.\n" % OURS),
        ),
    ],
)  # fmt: skip
def test_the_environment_decides_by_default(variables, expected):
    environment = dict({OURS: None, TENSORFLOWS: None, "PYTHONPATH": importable()}, **variables)
    found = output_of("-W", "ignore", "-c", IN_FORCE, **environment)
    assert found.replace("precision: The", "The") == expected
