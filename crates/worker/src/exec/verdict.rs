//! What the end of a program means.
//!
//! Owns the table from exit codes to statuses. Worst wins: of the exit code and of what its log lines say.

use dispatcher_core::report::Status;
use std::collections::BTreeMap;
use std::str::FromStr;

/// What an exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitMeaning {
    /// A result with at least this status.
    Status(Status),
    /// No result; another attempt is worth while (rule R4).
    Retryable,
}

/// From exit codes to what they mean. By default 0 is NoProblem, 65 (`EX_DATAERR`) Invalid, 75 (`EX_TEMPFAIL`) retryable
/// and everything else Fatal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitMap {
    by_code: BTreeMap<u8, ExitMeaning>,
}

/// Why a table of exit codes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no meaning of an exit code: write CODE=MEANING, with a code from 0 to 255 and one of no_problem, warning, \
     error, fatal, invalid, retryable, and commas between several"
)]
pub struct ExitMapError {
    text: String,
}

impl Default for ExitMap {
    fn default() -> Self {
        let by_code = [
            (0, ExitMeaning::Status(Status::NoProblem)),
            (65, ExitMeaning::Status(Status::Invalid)),
            (75, ExitMeaning::Retryable),
        ];
        Self { by_code: by_code.into() }
    }
}

impl ExitMap {
    /// What `code` means.
    #[must_use]
    pub fn meaning(&self, code: i32) -> ExitMeaning {
        let known = u8::try_from(code).ok().and_then(|code| self.by_code.get(&code).copied());
        known.unwrap_or(ExitMeaning::Status(Status::Fatal))
    }

    /// Gives `code` another meaning.
    pub fn set(&mut self, code: u8, meaning: ExitMeaning) {
        self.by_code.insert(code, meaning);
    }
}

impl FromStr for ExitMap {
    type Err = ExitMapError;

    /// The defaults with the meanings of `3=warning,137=retryable` in their place.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut map = Self::default();
        for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let wrong = || ExitMapError { text: one.to_owned() };
            let (code, word) = one.split_once('=').ok_or_else(wrong)?;
            let status = Status::ALL.into_iter().find(|status| status.as_str() == word.trim());
            let meaning = match status {
                Some(status) => ExitMeaning::Status(status),
                None if word.trim() == "retryable" => ExitMeaning::Retryable,
                None => return Err(wrong()),
            };
            map.set(code.trim().parse().map_err(|_| wrong())?, meaning);
        }
        Ok(map)
    }
}

/// The name of a signal, such as `SIGKILL`.
pub(super) fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 32] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal).ok().and_then(|n| NAMES.get(n)) {
        Some(name) if !name.is_empty() => format!("SIG{name}"),
        _ => format!("SIG{signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_mean_what_sysexits_say_unless_configured() {
        let map = ExitMap::default();
        assert_eq!(map.meaning(0), ExitMeaning::Status(Status::NoProblem));
        assert_eq!(map.meaning(1), ExitMeaning::Status(Status::Fatal));
        assert_eq!(map.meaning(65), ExitMeaning::Status(Status::Invalid));
        assert_eq!(map.meaning(75), ExitMeaning::Retryable);
        let map: ExitMap = "1=warning, 137 = retryable,75=fatal".parse().unwrap();
        assert_eq!(map.meaning(1), ExitMeaning::Status(Status::Warning));
        assert_eq!(map.meaning(137), ExitMeaning::Retryable);
        assert_eq!(map.meaning(75), ExitMeaning::Status(Status::Fatal));
        for wrong in ["1", "256=fatal", "x=fatal", "1=good"] {
            assert!(wrong.parse::<ExitMap>().unwrap_err().to_string().contains("write CODE=MEANING"), "{wrong}");
        }
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(35), "SIG35");
    }
}
