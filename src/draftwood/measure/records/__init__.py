"""The one record of every instrument: rows files and traces, and what can be read off them."""
