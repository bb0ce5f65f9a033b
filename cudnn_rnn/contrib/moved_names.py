"""Names that tf_slim takes from TensorFlow's internal modules, which newer releases have moved.

tf_slim 1.1.0, its last version, is from 2020. In TensorFlow 2.21, for example, its `optimize_loss`
and `batch_norm` would raise `AttributeError: module 'tensorflow.python.framework.ops' has no
attribute 'Tensor'`. Only tf_slim sees the names; TensorFlow's modules stay as they are.
"""

import operator
import sys
import types

from cudnn_rnn._compat import tf

# The names of each module, with those of `tensorflow.compat.v1`.
_MOVED = {
    # TensorFlow 2.21 looks for it in a module that tf_keras does not have.
    "tensorflow.python.layers.normalization": {"BatchNormalization": "layers.BatchNormalization"},
    "tensorflow.python.framework.ops": {"IndexedSlices": "IndexedSlices", "Tensor": "Tensor"},
    "tensorflow.python.ops.array_ops": {"stack": "stack", "unstack": "unstack"},
    "tensorflow.python.ops.control_flow_ops": {
        "Assert": "Assert",
        "case": "case",
        "cond": "cond",
        "while_loop": "while_loop",
    },
    "tensorflow.python.ops.variable_scope": {"variable": "Variable"},
}


class _WithMovedNames(types.ModuleType):
    """A module of TensorFlow with the names that it had before."""

    def __init__(self, module):
        super().__init__(module.__name__, module.__doc__)
        self._module = module

    def __getattr__(self, name):
        try:
            return getattr(self._module, name)
        except (AttributeError, ImportError):
            if name not in _MOVED[self.__name__]:
                raise
            return operator.attrgetter(_MOVED[self.__name__][name])(tf)


def give_to(package):
    """Lets the modules of a package that are imported find moved names at their old places."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == package:
            for attribute, value in list(vars(module).items()):
                if type(value) is types.ModuleType and value.__name__ in _MOVED:
                    setattr(module, attribute, _WithMovedNames(value))
