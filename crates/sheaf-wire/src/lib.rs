//! MongoDB's wire protocol: frames in, frames out, compression, error codes.
