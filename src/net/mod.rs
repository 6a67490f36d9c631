//! Connections and what is sent over them: limits, buffers, pools, names and certificates. It knows nothing of credit or models.

pub(crate) mod bounded_stream;
pub(crate) mod certificates;
pub(crate) mod chunk_check;
pub(crate) mod client_ip;
pub(crate) mod connection_pool;
pub mod dns;
pub(crate) mod error_text;
pub(crate) mod final_head;
pub(crate) mod hash_map;
pub(crate) mod head_limit;
mod read_turn;
pub(crate) mod request_body;
pub(crate) mod upstream_io;
pub(crate) mod write_buffer;
