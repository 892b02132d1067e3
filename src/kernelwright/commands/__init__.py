"""One typed function for each verb: what the command line, notebooks and services call."""
