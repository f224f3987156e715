"""Federated and single-agent bandits: on trees of boxes, and on a grid of arms."""
