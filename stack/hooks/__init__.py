"""Programs that run in the Pods; their text goes into the manifests as it stands, comments included.

Only the standard library of a Python that any engine's image has; no setting is formatted into the text.
"""
