//! What only Redis has: numbers, lost answers, several nodes, servers that stop and come back.

pub(in crate::store) mod book;
