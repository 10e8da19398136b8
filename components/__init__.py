"""ComponentResources that transcribe the plan. They decide nothing."""
