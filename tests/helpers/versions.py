"""Which TensorFlow the tests run in."""

import importlib.util

import pytest
import tensorflow as tf

from cudnn_rnn._compat import IS_TENSORFLOW_1, has_projection

needs_tensorflow_1 = pytest.mark.skipif(not IS_TENSORFLOW_1, reason="requires TensorFlow 1")
needs_tensorflow_2 = pytest.mark.skipif(IS_TENSORFLOW_1, reason="requires TensorFlow 2")
needs_the_original = pytest.mark.skipif(
    not tf.__version__.startswith("1.15"), reason="only TensorFlow 1.15 has the original"
)
needs_estimators = pytest.mark.skipif(
    not hasattr(tf.compat.v1, "estimator")
    and importlib.util.find_spec("tensorflow_estimator") is None,
    reason="requires the package tensorflow-estimator",
)
needs_projection = pytest.mark.skipif(
    not has_projection(), reason="TensorFlow 1.14 has no projection"
)
