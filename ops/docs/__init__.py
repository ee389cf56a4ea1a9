"""The site of documents, and the drawings in it: `make docs`; the bill of materials."""
