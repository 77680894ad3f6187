"""Parts to start from: each is a working one, which `agentmesh new` copies under the name that a person gives it."""
