//! Redis that dies, comes back without its last moments, or is away; a disk that is full.
