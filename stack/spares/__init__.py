"""Whether Pods that are about to be made will find free devices and nodes, judged from live objects as plain JSON.

`cel` evaluates device selectors, `pods` reads what any Pod asks of a node, `supply` what the cluster has left, `demand`
what one planned Pod needs, `reach` where its volumes tie it to, and `fit` judges; `kinds`
tells whether two who ask can get the same devices. Nothing here asks the cluster: live objects are handed in.

The measure is kube-scheduler with Dynamic Resource Allocation (`resource.k8s.io/v1`; Kubernetes 1.34 to 1.36). What a
namespace is allowed is not looked at, nor are limits on volumes and Pods that others may create in the meantime.
"""
