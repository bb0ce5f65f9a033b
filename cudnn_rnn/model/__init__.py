"""An RNN and its weights in NumPy alone: sizes, layout of the buffer, dialects, keys.

Mirrors `cc/core`. May import nothing of this package. Every other package may import this one.

| module | what is inside |
| --- | --- |
| `spec` | `RnnConfig`: modes and sizes of an RNN, and the checks of their values |
| `layout` | every matrix and bias in the parameter buffer, in order |
| `weights` | `RnnWeights`: the arrays of one RNN |
| `dialects` | how other frameworks arrange the arrays of a layer |
| `keys` | the keys that each generation of checkpoints has |
"""
