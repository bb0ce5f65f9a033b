"""Layers and cells of TensorFlow 1 without Keras: the base classes of `layers` and `cells`.

May import `_compat` and `graph`.
"""
