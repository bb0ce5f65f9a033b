"""`tf.contrib.rnn` and other parts after `cudnn_rnn.contrib.install`, in TensorFlow 2."""

import importlib
import re
import sys
import types
from pathlib import Path

import pytest
import tensorflow
import tensorflow.compat.v1 as tf

import cudnn_rnn
from cudnn_rnn import _compat, contrib
from cudnn_rnn.contrib import other_packages, small_parts
from helpers.paths import ROOT
from helpers.versions import needs_tensorflow_2

pytestmark = needs_tensorflow_2  # TensorFlow 1 has tf.contrib

HERE = set(
    "BasicRNNCell GRUBlockCell GRUBlockCellV2 LSTMBlockCell LSTMBlockFusedCell LSTMStateTuple "
    "MultiRNNCell RNNCell TimeReversedFusedRNN stack_bidirectional_dynamic_rnn "
    "static_bidirectional_rnn static_rnn static_state_saving_rnn".split()
)
# The names of the other parts, and which module each object must be of.
OTHERS = {
    "framework": {"get_or_create_global_step": "tensorflow"},
    "layers": dict.fromkeys(
        ["l1_l2_regularizer", "l1_regularizer", "l2_regularizer", "xavier_initializer"],
        "cudnn_rnn.contrib.small_parts",
    ),
    "learn": {"ModeKeys": "cudnn_rnn.contrib.small_parts"},
    "seq2seq": {"sequence_loss": "cudnn_rnn.contrib.losses"},
    "training": {"HParams": "cudnn_rnn.contrib.hparams"},
}
CELLS = set("BasicLSTMCell DeviceWrapper DropoutWrapper GRUCell LSTMCell ResidualWrapper".split())

PACKAGES = ("tf_keras", "tf_slim")


@pytest.fixture(autouse=True)
def installed(session):
    contrib.install()
    yield
    contrib.uninstall()


@pytest.fixture
def no_native_cells(monkeypatch):
    """Makes TensorFlow appear to have no cells, as with Keras 3."""
    monkeypatch.setattr(other_packages, "native_rnn_cell_module", lambda: None)


@pytest.fixture
def no_tf_slim(packages):
    """Makes imports of tf_slim fail as if it were not installed."""
    packages({"tf_slim": "raise ModuleNotFoundError('no tf_slim', name='tf_slim')"})


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Yields a function that writes packages with the given source texts; unloads them later."""

    def make(texts):
        for name, text in texts.items():
            folder = tmp_path.joinpath(*name.split("."))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").write_text(text)

    # Unload what TensorFlow imported of the real packages; monkeypatch restores it after the test.
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield make
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def names_after(statements):
    names = {}
    exec(statements, names)
    return names


IMPORTS_OF_RNN = """
import tensorflow.contrib.rnn
import tensorflow.contrib.rnn as first
from tensorflow.contrib import rnn as second
from tensorflow.contrib.rnn import MultiRNNCell, static_rnn
"""


def test_forms_of_import_of_rnn():
    names = names_after(IMPORTS_OF_RNN)
    rnn = tensorflow.contrib.rnn
    assert names["first"] is names["second"] is rnn is tf.contrib.rnn
    assert names["tensorflow"].contrib.rnn is rnn
    assert names["MultiRNNCell"] is cudnn_rnn.MultiRNNCell is rnn.MultiRNNCell
    assert names["static_rnn"] is tf.nn.static_rnn


def test_names_of_rnn():
    names = set(names_after("from tensorflow.contrib.rnn import *")) - {"__builtins__"}
    native = _compat.native_rnn_cell_module()
    assert names == HERE | (set() if native is None else CELLS)
    assert set(dir(tensorflow.contrib.rnn)) == names
    for name in names & CELLS:
        assert getattr(tensorflow.contrib.rnn, name) is getattr(native, name)


def test_cells_and_states_work_with_static_rnn():
    rnn = tensorflow.contrib.rnn
    cell = rnn.MultiRNNCell([cudnn_rnn.CudnnCompatibleLSTMCell(3) for _ in range(2)])
    zeros = tuple(rnn.LSTMStateTuple(tf.zeros([2, 3]), tf.zeros([2, 3])) for _ in range(2))
    outputs, state = rnn.static_rnn(cell, tf.unstack(tf.ones([4, 2, 3])), initial_state=zeros)
    assert len(outputs) == 4 and isinstance(state[1], rnn.LSTMStateTuple)


@pytest.mark.parametrize("part", sorted(OTHERS))
def test_other_parts(no_tf_slim, part):
    module = names_after("import tensorflow.contrib.%s as found" % part)["found"]
    assert module is getattr(tensorflow.contrib, part) is getattr(tf.contrib, part)
    assert module is names_after("from tensorflow.contrib import %s as found" % part)["found"]
    names = names_after("from tensorflow.contrib.%s import *" % part)
    assert set(names) - {"__builtins__"} == set(dir(module)) == set(OTHERS[part])
    for name, place in OTHERS[part].items():
        assert names[name].__module__.split(".")[: place.count(".") + 1] == place.split(".")
        assert names[name] is getattr(module, name)


def test_the_global_step_is_tensorflows(session):
    function = tensorflow.contrib.framework.get_or_create_global_step
    assert function() is tf.train.get_global_step()
    assert function(tf.get_default_graph()) is function()


@pytest.mark.parametrize("part", sorted(set(OTHERS) - {"layers"}))
def test_names_of_other_parts_without_an_equivalent(part):
    reason = "no_such_name.*neither TensorFlow %s nor cudnn_rnn has.*1.15" % tf.version.VERSION
    with pytest.raises(AttributeError, match=reason):
        getattr(tensorflow.contrib, part).no_such_name  # noqa: B018
    with pytest.raises(ImportError, match=reason):
        exec("from tensorflow.contrib.%s import no_such_name" % part)


@pytest.mark.parametrize(
    "name", ["LayerNormBasicLSTMCell", "Conv2DLSTMCell", "NoSuchCell", "python"]
)
def test_names_of_rnn_without_an_equivalent(name):
    reason = "neither TensorFlow %s nor cudnn_rnn has.*TensorFlow 1.15" % tf.version.VERSION
    with pytest.raises(AttributeError, match="%s.*%s" % (name, reason)):
        getattr(tensorflow.contrib.rnn, name)
    for statement in ("from tensorflow.contrib.rnn import %s", "import tensorflow.contrib.rnn.%s"):
        with pytest.raises(ImportError, match="%s.*%s" % (name, reason)):
            exec(statement % name)
    assert not hasattr(tensorflow.contrib.rnn, name)


@pytest.mark.parametrize(
    "text, cause",
    [
        ("raise ModuleNotFoundError('no tf_keras', name='tf_keras')", None),
        ("raise AttributeError('it wants another TensorFlow')", "it wants another TensorFlow"),
    ],
)
def test_cells_that_need_tf_keras(no_native_cells, packages, text, cause):
    packages({"tf_keras": text})
    for name in CELLS:
        reason = "%s only with Keras 2.*pip install tf_keras~=%s" % (name, tf.version.VERSION[:2])
        with pytest.raises(AttributeError, match=reason) as caught:
            getattr(tensorflow.contrib.rnn, name)
        cause_named = "Importing it failed" + (": " + cause if cause else "")
        assert (cause_named in str(caught.value)) == bool(cause)
        with pytest.raises(ImportError, match=reason):
            exec("from tensorflow.contrib.rnn import " + name)
        assert name not in dir(tensorflow.contrib.rnn)


def test_cells_of_tensorflow(monkeypatch):
    """With Keras 2, TensorFlow has the cells itself."""
    native = types.SimpleNamespace(**{name: type(name, (), {}) for name in CELLS})
    monkeypatch.setattr(other_packages, "native_rnn_cell_module", lambda: native)
    for name in CELLS:
        assert getattr(tensorflow.contrib.rnn, name) is getattr(native, name)
    assert HERE | CELLS == set(dir(tensorflow.contrib.rnn))


def test_cells_of_tf_keras(no_native_cells, packages):
    parts = other_packages._CELLS_OF_TF_KERAS.split(".")
    texts = {".".join(parts[: depth + 1]): "" for depth in range(len(parts))}
    texts[".".join(parts)] = "".join("class %s: pass\n" % name for name in sorted(CELLS))
    packages(texts)
    assert "tf_keras" not in sys.modules
    assert tensorflow.contrib.rnn.GRUCell.__name__ == "GRUCell"
    assert HERE | CELLS == set(dir(tensorflow.contrib.rnn))


SLIM = {
    "tf_slim": "WHERE = 'slim'\n",
    "tf_slim.layers": "WHERE = 'layers'\ndef fully_connected(): pass\n",
    "tf_slim.nets": "",
    "tf_slim.nets.resnet": "WHERE = 'resnet'\n",
}
IMPORTS_OF_SLIM = """
import tensorflow.contrib.layers as layers
import tensorflow.contrib.slim as slim
from tensorflow.contrib import layers as second, slim as third
from tensorflow.contrib.layers import fully_connected
from tensorflow.contrib.slim import nets
from tensorflow.contrib.slim.nets import resnet
import tensorflow.contrib.slim.nets.resnet as fourth
import tf_slim, tf_slim.nets.resnet
"""


def test_layers_and_slim_are_tf_slim(packages):
    packages(SLIM)
    assert "tf_slim" not in sys.modules
    names = names_after(IMPORTS_OF_SLIM)
    assert names["layers"] is names["second"] is tf.contrib.layers is names["tf_slim"].layers
    assert names["slim"] is names["third"] is tf.contrib.slim is names["tf_slim"]
    assert names["nets"] is names["tf_slim"].nets
    assert names["resnet"] is names["fourth"] is names["tf_slim"].nets.resnet
    assert names["slim"].__spec__.name == "tf_slim"
    with pytest.raises(ImportError):
        exec("import tensorflow.contrib.slim.no_such_module")


def test_layers_and_slim_as_attributes(packages):
    packages(SLIM)
    assert tensorflow.contrib.slim.WHERE == "slim" and tf.contrib.layers.WHERE == "layers"


BROKEN_SLIM = pytest.mark.parametrize(
    "text, reason",
    [
        ("raise ModuleNotFoundError('none', name='tf_slim')", "Install it: pip install tf_slim"),
        ("raise AttributeError('it wants TensorFlow 2.3')", "Importing it failed: it wants"),
    ],
)


@BROKEN_SLIM
def test_slim_without_tf_slim(packages, text, reason):
    packages({"tf_slim": text})
    for statement in ("import tensorflow.contrib.slim", "from tensorflow.contrib import slim"):
        with pytest.raises(ImportError, match="slim.* in the package tf_slim. %s" % reason):
            exec(statement)
    with pytest.raises(AttributeError, match="slim.* in the package tf_slim. %s" % reason):
        tensorflow.contrib.slim  # noqa: B018


@BROKEN_SLIM
def test_layers_without_tf_slim(packages, text, reason):
    packages({"tf_slim": text})
    from tensorflow.contrib.layers import l2_regularizer

    assert l2_regularizer is small_parts.l2_regularizer
    with pytest.raises(ImportError, match="fully_connected.* in the package tf_slim. %s" % reason):
        exec("from tensorflow.contrib.layers import fully_connected")
    with pytest.raises(
        AttributeError, match="fully_connected.*in the package tf_slim. %s" % reason
    ):
        tensorflow.contrib.layers.fully_connected  # noqa: B018


def test_uninstall_removes_all_parts(packages):
    packages(SLIM)
    path = list(sys.meta_path)
    names_after("from tensorflow.contrib.slim.nets import resnet; import tensorflow.contrib.rnn")
    contrib.uninstall()
    assert len(sys.meta_path) == len(path) - 1
    assert not [name for name in sys.modules if name.startswith("tensorflow.contrib")]
    assert not hasattr(tensorflow, "contrib") and not hasattr(tf, "contrib")
    assert importlib.import_module("tf_slim.nets.resnet").WHERE == "resnet"
    with pytest.raises(ImportError, match="No module named 'tensorflow.contrib'"):
        importlib.import_module("tensorflow.contrib.rnn")


def test_the_document_lists_all_names():
    """The table of docs/migrating.md has the names of every part, and which need a package."""
    text = Path(ROOT, "docs", "migrating.md").read_text(encoding="utf-8")
    table = text.partition("| module | names | package |\n| --- | --- | --- |\n")[2].partition(
        "\n\n"
    )[0]
    free, of_packages, part = {}, {}, None
    for row in table.splitlines():
        module, names, package = (cell.strip() for cell in row.strip("|").split("|"))
        part = module.strip("`").rpartition(".")[2] or part
        known = free if package == "-" else of_packages
        found = re.findall("`([A-Za-z0-9_]+)`", names)
        known.setdefault(part, set()).update(set(found) - {"cudnn_rnn"})
    expected = {name: set(names) for name, names in OTHERS.items()}
    assert free == dict(expected, rnn=HERE)
    assert of_packages == {"rnn": CELLS, "layers": {"fully_connected"}, "slim": set()}
