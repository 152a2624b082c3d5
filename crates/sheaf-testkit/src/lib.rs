//! What tests share: script runner, naive model, generators.
