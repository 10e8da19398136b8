"""The embedded control plane: real Kubernetes servers on this machine, with nodes and devices that only exist on paper.

It is for trying the stack out and for testing it. It knows nothing of the serving stack, of Pulumi or of a user's own
cluster, and imports nothing of ours outside this package.
"""
