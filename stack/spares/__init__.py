"""Whether Pods that are about to be made will find free devices and nodes, judged from live objects as plain JSON.

`cel` evaluates device selectors, `pods` reads what any Pod asks of a node, `supply` what the cluster has left, `demand`
what one planned Pod needs, and `fit` judges. Nothing here asks the cluster: live objects are handed in.

The measure is kube-scheduler with Dynamic Resource Allocation (`resource.k8s.io/v1`; Kubernetes 1.34 to 1.36). Volumes
are not looked at, nor are LimitRanges, quotas and Pods that others may create in the meantime.
"""
