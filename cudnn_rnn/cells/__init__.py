"""The platform-independent cells: TensorFlow's own ops only, and cuDNN's formulas.

Importing a module of this package may import Keras, if TensorFlow's `RNNCell` is Keras's.
"""
