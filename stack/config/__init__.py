"""What an operator writes, one module a block; `root.py` joins them and turns everything that is wrong into letters."""
