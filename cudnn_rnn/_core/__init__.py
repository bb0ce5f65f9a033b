"""What all APIs share: configurations, arguments, the nodes of the ops and their gradients."""
