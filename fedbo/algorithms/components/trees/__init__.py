"""What the methods on trees of boxes share: trees, partitions, their search, and the elimination of boxes in phases."""
