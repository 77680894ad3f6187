"""`python -m workloads.repository_mutation`: fill the cache before a run, e.g. while there is a network."""

from workloads.repository_mutation.prepare import prepare

if __name__ == "__main__":
    prepare()
