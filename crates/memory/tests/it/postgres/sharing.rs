//! What concurrent processes, roles and failures do to memory in a database.
