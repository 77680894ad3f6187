"""What runs inside the processes of checks and hooks; imports nothing else of ours."""
