//! The boundary over real sockets: in good order (`sockets`), and against broken and hostile peers (`hostile`).

mod common;
mod hostile;
mod raw;
mod sockets;
