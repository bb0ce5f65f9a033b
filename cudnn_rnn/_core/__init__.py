"""Code shared by all APIs: configurations, arguments, the nodes of the ops and their gradients.

May import `_compat`, `_native` and `model`.
"""
