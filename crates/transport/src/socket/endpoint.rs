//! Where a socket may listen and connect: `ipc://PATH`, or `tcp://` on the loopback interface.
//!
//! Owns the reading of such addresses and the refusal of wider ones, with the reason. Knows nothing of the file system
//! beyond the length of a path.

use crate::limits::SOCKET_PATH_MAX;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address that only this machine can reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint(Place);

/// The two kinds of place. Private, so that every [`Endpoint`] was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Ipc(PathBuf),
    Tcp(SocketAddr),
}

/// Why an address is refused. Each says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is not of a known form.
    #[error("`{text}` is no address: write ipc://PATH or tcp://127.0.0.1:PORT")]
    Form {
        /// What was given.
        text: String,
    },
    /// Other machines could reach it.
    #[error(
        "{address} is open to other machines, and nothing on it would be encrypted or authenticated: use \
         tcp://127.0.0.1:PORT or ipc://PATH, and bring distant workers in through a tunnel (ssh -L)"
    )]
    TooWide {
        /// What was given.
        address: String,
    },
    /// A host name, whose addresses nobody can vouch for.
    #[error("`{host}` may stand for an address that other machines reach: write 127.0.0.1 or localhost")]
    Name {
        /// The name.
        host: String,
    },
    /// A socket in Linux's abstract name space, which no folder protects from other users.
    #[error("`ipc://{name}` is open to every user of this machine: give a path in a folder of your own")]
    Abstract {
        /// The name.
        name: String,
    },
    /// The path does not fit into a socket address.
    #[error(
        "the socket path {path} has {length} bytes and may have {SOCKET_PATH_MAX}: choose a shorter folder, such as one \
         in $XDG_RUNTIME_DIR or /tmp",
        path = path.display()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
}

impl Endpoint {
    /// A Unix socket at `path`, which need not be UTF-8.
    ///
    /// # Errors
    /// [`EndpointError::PathTooLong`], [`EndpointError::Abstract`], or [`EndpointError::Form`] where `path` is empty.
    pub fn ipc(path: impl Into<PathBuf>) -> Result<Self, EndpointError> {
        let path = path.into();
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(EndpointError::Form { text: format!("ipc://{}", path.display()) });
        }
        if bytes.starts_with(b"@") {
            return Err(EndpointError::Abstract { name: path.display().to_string() });
        }
        if bytes.len() > SOCKET_PATH_MAX {
            return Err(EndpointError::PathTooLong { length: bytes.len(), path });
        }
        Ok(Self(Place::Ipc(path)))
    }

    /// A port of the loopback interface. Port 0 lets the system choose one, see [`super::RouterSocket::endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::TooWide`] for an address that is not the loopback interface's.
    pub fn tcp(address: SocketAddr) -> Result<Self, EndpointError> {
        if address.ip().to_canonical().is_loopback() {
            Ok(Self(Place::Tcp(address)))
        } else {
            Err(EndpointError::TooWide { address: format!("tcp://{address}") })
        }
    }

    /// The path, where it is a Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Place::Ipc(path) => Some(path),
            Place::Tcp(_) => None,
        }
    }

    /// Whether only this machine can reach it. All are today; the backends that need it ask, so that it stays true.
    pub(super) const fn is_local(&self) -> bool {
        match &self.0 {
            Place::Ipc(_) => true,
            Place::Tcp(address) => address.ip().to_canonical().is_loopback(),
        }
    }

    /// An address that was not checked.
    #[cfg(test)]
    pub(super) const fn unchecked(address: SocketAddr) -> Self {
        Self(Place::Tcp(address))
    }

    pub(super) const fn place(&self) -> &Place {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || EndpointError::Form { text: text.escape_debug().collect() };
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        match scheme {
            "ipc" => Self::ipc(rest),
            "tcp" => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(form)?;
                let port = port.parse::<u16>().map_err(|_| form())?;
                Self::tcp(SocketAddr::new(loopback(host)?, port))
            }
            _ => Err(form()),
        }
    }
}

/// The address that `host` stands for, without asking anybody.
fn loopback(host: &str) -> Result<IpAddr, EndpointError> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    match (bare, bare.parse::<IpAddr>()) {
        ("localhost", _) => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ("*" | "", _) => Err(EndpointError::TooWide { address: format!("tcp://{host}") }),
        (_, Ok(address)) => Ok(address),
        (_, Err(_)) => Err(EndpointError::Name { host: host.escape_debug().collect() }),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Ipc(path) => write!(f, "ipc://{}", path.display()),
            Place::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<Endpoint>().expect_err("the address is refused").to_string()
    }

    #[test]
    fn the_loopback_interface_and_unix_sockets_are_taken_and_print_as_they_are_written() {
        for text in ["ipc:///run/user/1000/d/s.sock", "ipc://s.sock", "tcp://127.0.0.1:51695", "tcp://[::1]:0"] {
            assert_eq!(text.parse::<Endpoint>().expect("a good address").to_string(), text);
        }
        let named = "tcp://localhost:7".parse::<Endpoint>().expect("a good address");
        assert_eq!(named.to_string(), "tcp://127.0.0.1:7", "localhost is not looked up");
    }

    #[test]
    fn wider_addresses_are_refused_with_the_reason_and_what_to_do_instead() {
        for wide in
            ["tcp://0.0.0.0:51695", "tcp://*:51695", "tcp://10.1.2.3:1", "tcp://[::]:1", "tcp://[::ffff:10.0.0.1]:1"]
        {
            let said = refusal(wide);
            assert!(said.contains("open to other machines") && said.contains("127.0.0.1"), "{said}");
        }
        assert!(refusal("tcp://example.org:1").contains("write 127.0.0.1"));
        assert!(refusal("ipc://@name").contains("every user"));
    }

    #[test]
    fn what_is_no_address_is_told_so_with_its_control_characters_escaped() {
        for text in
            ["", "ipc://", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "udp://127.0.0.1:1", "/run/socket", "ipc://a\0b"]
        {
            assert!(refusal(text).contains("is no address"), "{text:?}");
        }
        assert!(refusal("a\u{1b}[31m").contains("\\u{1b}"));
    }

    #[test]
    fn a_path_of_107_bytes_fits_and_one_more_does_not() {
        let fits = format!("ipc:///{}", "a".repeat(SOCKET_PATH_MAX - 1));
        assert!(fits.parse::<Endpoint>().is_ok());
        assert!(refusal(&format!("{fits}a")).contains("108 bytes"));
    }
}
