"""The race of `make peers-tx`: peers in processes of their own, slices in turn, one table and one report."""
