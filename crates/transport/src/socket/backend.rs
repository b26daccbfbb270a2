//! Which ZeroMQ implementation runs, and where it may.
//!
//! Owns the choice by name, and the refusal of an implementation at an address for which it is not fit. Knows nothing of
//! how the implementations work.

use super::{Endpoint, SocketError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A ZeroMQ implementation. Both speak the same wire, so the two ends of a link need not have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// The crate `omq-tokio`: it keeps every limit of the boundary.
    #[default]
    Omq,
    /// The crate `zeromq`: the older one, for addresses that only this machine can reach.
    Zeromq,
}

/// A name that no implementation has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is no socket backend: write omq or zeromq")]
pub struct UnknownBackend {
    /// What was given, its control characters escaped.
    name: String,
}

impl BackendKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Omq, Self::Zeromq];

    /// The name, as it is written in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Omq => "omq",
            Self::Zeromq => "zeromq",
        }
    }

    /// Refuses an address at which strangers could do to this backend what it has no guard against.
    pub(super) fn may_use(self, endpoint: &Endpoint) -> Result<(), SocketError> {
        if self == Self::Omq || endpoint.is_local() {
            return Ok(());
        }
        let why = format!(
            "{endpoint} is open to other machines, and nine bytes from any of them would end this process, for it holds \
             what a frame claims: use the backend omq there, or ipc://PATH or tcp://127.0.0.1:PORT"
        );
        Err(SocketError::Refused { what: "cannot use the backend zeromq", why })
    }
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownBackend { name: text.escape_debug().collect() })
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_chosen_by_its_name_and_omq_is_what_runs_without_one() {
        for kind in BackendKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.name());
        }
        assert_eq!(BackendKind::default().name(), "omq");
        let unknown = "zmq\n".parse::<BackendKind>().expect_err("no such backend").to_string();
        assert_eq!(unknown, "`zmq\\n` is no socket backend: write omq or zeromq");
    }

    #[test]
    fn zeromq_is_refused_with_the_reason_wherever_other_machines_could_reach_it() {
        for wide in ["0.0.0.0:1", "10.1.2.3:1", "[::]:1", "[::ffff:10.0.0.1]:1"] {
            let endpoint = Endpoint::unchecked(wide.parse().expect("an address"));
            assert!(BackendKind::Omq.may_use(&endpoint).is_ok());
            let refused = BackendKind::Zeromq.may_use(&endpoint).expect_err("it is refused").to_string();
            assert!(refused.contains("end this process") && refused.contains("omq"), "{refused}");
        }
        for near in ["ipc:///tmp/d/s.sock", "tcp://127.0.0.1:1", "tcp://[::1]:1"] {
            assert!(BackendKind::Zeromq.may_use(&near.parse().expect("an address")).is_ok());
        }
    }
}
