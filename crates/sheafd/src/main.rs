//! The server's entry point.
fn main() {}
