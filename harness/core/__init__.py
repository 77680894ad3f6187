"""The shared vocabulary; imports nothing else of ours."""
