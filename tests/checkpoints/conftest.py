"""Fixtures of the tests of checkpoints."""

import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context


@pytest.fixture(params=["eager", "graph"])
def run(request):
    """Yields a function that evaluates a structure of tensors, in eager mode or in a session."""
    if request.param == "eager":
        with context.eager_mode():
            yield lambda values: tf.nest.map_structure(
                # Some values, such as the results of initializers, are None in eager mode.
                lambda value: getattr(value, "numpy", lambda: None)(),
                values,
            )
    else:
        with tf.Graph().as_default(), tf.Session() as session:
            yield session.run


@pytest.fixture(
    params=[
        pytest.param(is_resource, marks=pytest.mark.sampled(2)) for is_resource in (False, True)
    ],
    ids=["reference", "resource"],
)
def use_resource(request):
    return request.param
