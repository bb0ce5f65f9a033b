"""`export_onnx` in TensorFlow 1, whose graphs TensorFlow 2 exports."""

import pytest

import cudnn_rnn
from helpers.versions import needs_tensorflow_1

pytestmark = pytest.mark.ci


@needs_tensorflow_1
def test_tensorflow_1_says_where_to_go(tmp_path):
    with pytest.raises(ValueError, match="needs TensorFlow 2, this is 1.*TensorFlow 2 exports it"):
        cudnn_rnn.export_onnx(tmp_path, tmp_path / "model.onnx")
