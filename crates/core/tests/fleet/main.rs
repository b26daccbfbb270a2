//! The fleet as its driver and its workers see it.

#![cfg(test)]

mod conversations;
mod hostile;
mod properties;
mod support;
