"""How parameters are saved and restored.

May import `_compat`, `graph`, `model` and `op_level`.

| module | contents |
| --- | --- |
| `canonical_saveable` | `RNNParamsSaveable`, the keys of TensorFlow 1.0 to 1.3 |
| `cell_saveables` | `CudnnLSTMSaveable` and its siblings, the keys of TensorFlow 1.4 to 1.15 |
| `layer_saveables` | creates the saveable of a layer |
| `converters` | `CudnnParamsFormatConverter*`: opaque buffer to the variables of cells, and back |
| `cell_layout` | how the variables of a cell are built from canonical weights and biases |
| `optimizer_slots` | `saved_as_cells`: converts the slots of optimizers as well |
| `object_based` | the same tensors in checkpoints of `tf.train.Checkpoint` |
| `restore_ops` | ops that check the shapes of restored tensors and assign them |
| `restore_order` | which value a variable gets if a Saver has several for it |
| `graph_walk` | follows the edges of a graph |
| `imported_saveables` | recreates the saveables of an imported graph |
| `validation` | compares a checkpoint with the expected tensors, and explains errors |
| `meta_graph` | `import_meta_graph` |
"""
