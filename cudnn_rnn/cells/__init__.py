"""The platform-independent cells: cuDNN's formulas in TensorFlow's own ops.

Importing a module of this package may import Keras, because some TensorFlows take `RNNCell` from
Keras. May import `_compat`, `graph` and `tf1_layers`.
"""
