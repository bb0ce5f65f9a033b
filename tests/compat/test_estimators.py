"""`tf.estimator` after `cudnn_rnn.contrib.install`, in a TensorFlow that lacks it.

`test_programs.test_estimator` trains one, `test_known_issues_training` one on two devices.
"""

import importlib.util
import json
import sys

import pytest
import tensorflow
import tensorflow.compat.v1 as tf

from cudnn_rnn import contrib
from cudnn_rnn.cli import run
from cudnn_rnn.contrib import estimators
from helpers.versions import needs_estimators

HAS_ITS_OWN = hasattr(tf, "estimator")
needs_the_package = pytest.mark.skipif(
    HAS_ITS_OWN, reason="this TensorFlow has its own tf.estimator"
)


@pytest.fixture(autouse=True)
def installed():
    contrib.install()
    yield
    contrib.uninstall()


IMPORTS = """
import tensorflow.estimator
import tensorflow.estimator as first
from tensorflow.estimator import Estimator, ModeKeys, RunConfig, export
"""


@needs_the_package
@needs_estimators
def test_forms_of_import():
    names = {}
    exec(IMPORTS, names)
    assert names["first"] is tf.estimator is sys.modules["tensorflow.estimator"]
    assert names["Estimator"] is tf.estimator.Estimator and names["ModeKeys"].PREDICT == "infer"
    assert names["export"].ServingInputReceiver and tf.estimator.inputs.numpy_input_fn
    assert {"BestExporter", "EstimatorSpec", "train_and_evaluate"} < set(dir(tf.estimator))
    with pytest.raises(AttributeError, match="no_such_name"):
        tf.estimator.no_such_name  # noqa: B018
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from tensorflow.estimator import no_such_name")
    assert not hasattr(tf.estimator.tpu, "TPUEstimator")


@needs_the_package
@needs_estimators
def test_what_is_left_afterwards():
    assert tf.estimator.Estimator  # imports the package
    assert estimators._STRATEGIES not in sys.modules
    # The names of TensorFlow 2 have no Estimators, and those of the package are TensorFlow 1's.
    assert not hasattr(tensorflow, "estimator")
    contrib.install("1.12")
    assert tf.estimator.Estimator
    contrib.uninstall()
    assert not hasattr(tf, "estimator") and "tensorflow.estimator" not in sys.modules


@needs_the_package
def test_without_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    contrib.install()
    assert not hasattr(tf, "estimator") and "tensorflow.estimator" not in sys.modules


@needs_the_package
@needs_estimators
@pytest.mark.parametrize("argument", ["train_distribute", "eval_distribute"])
def test_strategies_for_several_processes_are_refused(monkeypatch, argument):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = tf.estimator.RunConfig("folder", **{argument: strategy})
    assert config.is_chief and getattr(config, argument) is strategy
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(ValueError, match="TF_CONFIG with a cluster.* TensorFlow 2.15 or older"):
        tf.estimator.RunConfig("folder", **{argument: strategy})


@needs_the_package
@needs_estimators
def test_experimental_distribute_is_refused():
    with pytest.raises(ValueError, match="experimental_distribute: .* use train_distribute and"):
        tf.estimator.RunConfig("folder", experimental_distribute=object())


@needs_estimators
def test_parameter_servers_without_strategies(monkeypatch):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    config = tf.estimator.RunConfig("folder")
    assert not config.is_chief and config.num_ps_replicas == 1 and config.num_worker_replicas == 2
    assert config.cluster_spec.as_dict() == cluster


@pytest.mark.parametrize(
    "error, is_told",
    [
        (AttributeError("module 'tensorflow.compat.v1' has no attribute 'estimator'"), True),
        (
            AttributeError(
                "module 'tensorflow._api.v2.compat.v1.compat.v1' has no attribute 'estimator'"
            ),
            True,
        ),
        (ModuleNotFoundError("No module named 'tensorflow.estimator'"), True),
        (ModuleNotFoundError("No module named 'tensorflow_estimator'"), True),
        (ImportError("cannot import name 'estimator' from 'tensorflow.compat.v1' (...)"), True),
        (AttributeError("module 'sklearn' has no attribute 'estimator'"), False),
        (ModuleNotFoundError("No module named 'tensorflow_estimators'"), False),
        (ValueError("No module named 'tensorflow.estimator'"), False),
    ],
    ids=str,
)
def test_run_says_where_estimators_are(capsys, error, is_told):
    run._hook_for_the_program(lambda *unused: None)(type(error), error, None)
    told = capsys.readouterr().err
    assert ("pip install tensorflow-estimator==2.15.0" in told) is is_told
