"""How a roll-out goes, judged from live objects as plain JSON: how far it is, what is stuck, and for how long.

`pods` reads one Pod, `progress` a Deployment with its Pods, `patience` keeps the clocks, `devices` tells whose leave a
Pod waits for, `departures` which Pod should have left, `ending` what is left of an earlier change, and `words` puts it
all into lines. Nothing here asks or looks at a clock: live objects and seconds are handed in.
"""
