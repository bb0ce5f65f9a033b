"""`tf.estimator` in TensorFlow 2.16 and newer, from the package tensorflow-estimator.

TensorFlow removed `tf.estimator` after 2.15. Version 2.15.0 of the package, the last one, runs in
newer releases, but imports three things that these lack: a module for distribution strategies, a
decorator, and the part for TPUs. Here are modules in their place.
"""

import importlib
import importlib.util
import sys
import types
from typing import Any, Dict

from cudnn_rnn._compat import tf

NAME = "tensorflow.estimator"
PACKAGE = "tensorflow_estimator"
HOW_TO_GET_IT = (
    "TensorFlow removed tf.estimator after 2.15. The package tensorflow-estimator still has it: "
    "pip install tensorflow-estimator==2.15.0"
)
_API = PACKAGE + "._api.v1.estimator"
_TPU = _API + ".tpu"
_DECORATOR = PACKAGE + ".python.estimator.estimator_export"
_STRATEGIES = "tensorflow.python.distribute.estimator_training"


class Estimators(types.ModuleType):
    """The module `tf.estimator`; imports the package on first use."""

    def __init__(self):
        super().__init__(NAME, "tf.estimator of TensorFlow 1, from %s." % PACKAGE)

    def __getattr__(self, name):
        if name.startswith("__"):  # Python itself asks modules for these
            raise AttributeError(name)
        return getattr(_api(), name)

    def __dir__(self):
        return dir(_api())


def is_to_be_added():
    """Tells whether this TensorFlow lacks `tf.estimator` and the package is installed."""
    return not hasattr(tf, "estimator") and importlib.util.find_spec(PACKAGE) is not None


def _api():
    """Returns the package's module with the names of `tf.estimator`."""
    if _API in sys.modules:
        return sys.modules[_API]
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module(_API)
    finally:
        # The package's modules keep their reference.
        for name in stand_ins:
            if not name.startswith(PACKAGE):
                del sys.modules[name]


def _stand_ins():
    """Returns modules in the place of those that this TensorFlow does not have, by name."""
    found: Dict[str, Any] = {}
    if importlib.util.find_spec(_STRATEGIES) is None:
        found[_STRATEGIES] = types.ModuleType(_STRATEGIES)
        found[_STRATEGIES].init_run_config = _init_run_config
        found[_STRATEGIES].should_run_distribute_coordinator = lambda config: False
    exports = importlib.import_module("tensorflow.python.util.tf_export")
    if not hasattr(exports, "ESTIMATOR_API_NAME"):
        found[_DECORATOR] = types.ModuleType(_DECORATOR)
        found[_DECORATOR].estimator_export = lambda *names, v1=None: lambda exported: exported
    if importlib.util.find_spec("tensorflow.python.tpu.tpu_embedding") is None:
        found[_TPU] = types.ModuleType(_TPU, "Empty: this TensorFlow has no Estimators for TPUs.")
    return found


def _init_run_config(config, tf_config):
    """Completes a `RunConfig` with distribution strategies, which may use one process.

    Args:
      config: `RunConfig`.
      tf_config: dict, the contents of the environment variable TF_CONFIG.

    Raises:
      ValueError: the strategies are for several processes.
    """
    given = "TF_CONFIG with a cluster" if tf_config.get("cluster") else ""
    if config._experimental_distribute:
        given = "experimental_distribute"
    if given:
        raise ValueError(
            "RunConfig has distribution strategies and %s: Estimators in several processes with "
            "strategies need TensorFlow 2.15 or older. In TensorFlow %s, use train_distribute and "
            "eval_distribute in one process, or parameter servers without strategies."
            % (given, tf.version.VERSION)
        )
    config._init_distributed_setting_from_environment_var(tf_config)
    config._maybe_overwrite_session_config_for_distributed_training()
