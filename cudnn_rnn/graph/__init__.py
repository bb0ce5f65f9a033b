"""What builds the nodes of the ops: configurations, checks of arguments, calls, gradients.

May import `_compat`, `_native` and `model`.
"""
