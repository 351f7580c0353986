"""A store while others work on it: for the terminal (`assay watch`) and as a page on this machine (`assay serve`)."""
