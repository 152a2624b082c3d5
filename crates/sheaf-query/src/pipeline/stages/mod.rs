//! Stages with a file of their own. See [`stage`](super::stage) for how one is written.
