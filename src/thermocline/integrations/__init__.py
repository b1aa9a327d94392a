"""Where people already are. Each module imports the library it is for when it is used, and public names of ours alone."""
