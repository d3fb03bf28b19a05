//! What the conformance suite and the driver of the Rust library share. `main.rs` says what the suite is.

pub mod vectors;
