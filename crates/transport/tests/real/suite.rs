//! The suite, which every backend has to pass. The module's name says which one runs.

mod common;
mod hostile;
mod pulls;
mod raw;
mod sockets;
