"""The pure middle: config in, plan out. No Pulumi, no network, no clock, no environment, no randomness."""
