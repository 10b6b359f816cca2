"""Model tests: random calls, time steps, faults and crashes against a plain model of a queue."""
