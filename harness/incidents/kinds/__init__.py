"""The kinds of stories that an incident file can tell, by the name that stands in the file."""
