"""What `rollview demo` and `rollview init` use: a small project, programs that write to it, a script."""
