"""Known failures as regressions: each is played on an arm that fails of it and on the mesh, and each guard is proven by
a mutation that brings the failure back."""
