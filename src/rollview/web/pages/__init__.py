"""The pages, one module for each kind: it reads a request and gives the values of a template."""
