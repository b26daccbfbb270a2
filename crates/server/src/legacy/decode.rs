//! What the log inside a result says (rules W4, R1, R4).
//!
//! Owns the reading of `cortex.log` out of a result's archive. Knows nothing of tasks.
//!
//! Invariants: what an archive claims is not believed: it may have so many files, its log so many bytes; nothing in it makes
//! the process panic.

use super::{LegacyReply, LegacySaid};
use crate::receiver::hex;
use crate::report::{Delivery, Reporting};
use crate::stage::StageFailure;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use dispatcher_core::id::{ServiceId, TaskId};
use dispatcher_core::in_flight::Receipt;
use dispatcher_core::report::{Log, LogReader, Message, Severity, Status};
use dispatcher_core::time::TimeMs;
use dispatcher_core::wire::{PART_RESULT, PartSpec};
use dispatcher_transport::socket::Held;
use sha2::{Digest, Sha256};
use std::io::{Cursor, Read};
use std::panic::catch_unwind;
use std::time::Instant;
use zip::ZipArchive;
use zip::result::ZipError;

/// The name of the log in a result's archive.
const LOG_NAME: &str = "cortex.log";
/// Of a log at most so many bytes are read, however well it is packed. Its worst severities come last in practice, but what
/// lies beyond is no log any more.
const LOG_MAX: u64 = 64 * 1024 * 1024;
/// The most files that an archive has. Each costs the reader some hundred bytes, ten times what it costs its sender.
const FILES_MAX: usize = 65_535;
/// What begins the entry of each file in an archive's directory, and the least length of one.
const ENTRY_MARK: &[u8] = b"PK\x01\x02";
const ENTRY_LEAST: usize = 46;
/// How much of a log is unpacked at once.
const PIECE: usize = 16 * 1024;

/// A result whose log is to be read.
#[derive(Debug)]
pub(crate) struct Undecoded {
    pub(crate) task: TaskId,
    pub(crate) service: ServiceId,
    pub(crate) worker: String,
    pub(crate) file: Bytes,
    pub(crate) at: TimeMs,
    pub(crate) arrived: Instant,
    pub(crate) receipt: Option<Receipt>,
    pub(crate) held: Held,
}

/// A decoder's life: ends when the sink is gone.
pub(crate) fn run(results: &Receiver<Undecoded>, finaliser: &Sender<Delivery>) -> Result<(), StageFailure> {
    for result in results {
        let Undecoded { task, service, worker, file, at, arrived, receipt, held } = result;
        crate::hooks::pass("decoding");
        let said = read(file);
        let reply = LegacyReply { task, service, worker, said, at, arrived, receipt, held };
        if finaliser.send(Delivery::Legacy(Box::new(reply))).is_err() {
            return Err(StageFailure::NeighbourGone("finaliser"));
        }
    }
    Ok(())
}

/// What a result file says.
fn read(file: Bytes) -> Result<LegacySaid, Message> {
    if file.is_empty() {
        return Err(unusable("empty", "the worker has nothing usable"));
    }
    // The library is not ours, and the bytes are anybody's.
    let log = catch_unwind(|| read_log(&file)).unwrap_or_else(|_| Err(unreadable("it cannot be read")))?;
    let part = PartSpec { name: PART_RESULT.to_owned(), size: file.len() as u64, sha256: hex(&Sha256::digest(&file)) };
    let verdict = match log.retryable {
        Some(cause) => Reporting::Retryable(cause),
        None => Reporting::Result(log.status),
    };
    Ok(LegacySaid { verdict, messages: log.messages, part: Some(part), bytes: file })
}

fn read_log(file: &[u8]) -> Result<Log, Message> {
    if file.len() / ENTRY_LEAST > FILES_MAX && has_too_many_files(file) {
        return Err(unreadable("it has too many files"));
    }
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(|e| unreadable(&e.to_string()))?;
    let log = archive.by_name(LOG_NAME).map_err(|e| match e {
        ZipError::FileNotFound => unusable("no_log", &format!("the result has no {LOG_NAME}")),
        other => unreadable(&format!("its {LOG_NAME}: {other}")),
    })?;
    let mut log = log.take(LOG_MAX);
    let mut reader = LogReader::default();
    let mut piece = [0; PIECE];
    loop {
        match log.read(&mut piece) {
            Ok(0) if log.limit() == 0 => return Ok(cut(reader.finish())),
            Ok(0) => return Ok(reader.finish()),
            Ok(n) => reader.push(piece.get(..n).unwrap_or_default()),
            Err(e) => return Err(unreadable(&format!("its {LOG_NAME}: {e}"))),
        }
    }
}

/// A log whose end nobody has read: what it says there may be worse, so it is no good end.
fn cut(mut log: Log) -> Log {
    log.messages.push(Message {
        severity: Severity::Error,
        category: "dispatcher".to_owned(),
        what: "log_cut".to_owned(),
        details: format!("of the log {} MB were read; what lies beyond is not known", LOG_MAX / (1024 * 1024)),
    });
    log.status = log.status.max(Status::Error);
    log
}

fn has_too_many_files(file: &[u8]) -> bool {
    file.windows(ENTRY_MARK.len()).filter(|four| *four == ENTRY_MARK).nth(FILES_MAX).is_some()
}

fn unreadable(why: &str) -> Message {
    unusable("unreadable", &format!("the result is no archive that can be read: {why}"))
}

fn unusable(what: &str, details: &str) -> Message {
    Message {
        severity: Severity::Error,
        category: "unusable".to_owned(),
        what: what.to_owned(),
        details: details.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    fn archive(files: &[(&str, &[u8])]) -> Bytes {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap().into_inner().into()
    }

    fn said(log: &[u8]) -> LegacySaid {
        read(archive(&[("paper.html", b"<html>"), (LOG_NAME, log)])).unwrap()
    }

    fn why(file: Bytes) -> String {
        read(file).unwrap_err().what
    }

    // Rule W4.
    #[test]
    fn the_worst_line_of_the_log_is_the_status_and_its_lines_are_the_messages() {
        let ended = |log: &[u8]| said(log).verdict;
        assert_eq!(ended(b""), Reporting::Result(Status::NoProblem));
        assert_eq!(ended(b"Info:a:b c\n"), Reporting::Result(Status::NoProblem));
        assert_eq!(ended(b"Warning:a:b c\nError:d:e\nWarning:f:g"), Reporting::Result(Status::Error));
        assert_eq!(ended(b"Fatal:a:b c\n"), Reporting::Result(Status::Fatal));
        assert_eq!(ended(b"Fatal:invalid:tex no document\n"), Reporting::Result(Status::Invalid));
        let said = said(b"Warning:math:parse odd \xff\x00 formula\nnoise\n");
        assert_eq!((said.messages[0].category.as_str(), said.messages[0].what.as_str()), ("math", "parse"));
    }

    // Rules W4, R4.
    #[test]
    fn a_log_that_is_marked_so_is_a_retryable_cause() {
        let said = said(b"Fatal:oom:shed at 3 GB\nInfo:cortex:retryable\n");
        let Reporting::Retryable(cause) = said.verdict else { panic!("{:?}", said.verdict) };
        assert_eq!((cause.category.as_str(), cause.what.as_str()), ("oom", "shed"));
    }

    // Rules W2, W4, R1. Case F04.
    #[test]
    fn an_empty_a_torn_and_a_silent_reply_are_no_results_and_a_real_failure_is_one() {
        let whole = archive(&[("a", &[7; 5000]), (LOG_NAME, b"Fatal:a:b c\n")]);
        assert_eq!(why(Bytes::new()), "empty");
        assert_eq!(why(whole.slice(..whole.len() / 2)), "unreadable");
        assert_eq!(why(Bytes::from_static(b"not an archive")), "unreadable");
        assert_eq!(why(archive(&[("other.log", b"Info:a:b")])), "no_log");
        assert_eq!(read(whole).unwrap().verdict, Reporting::Result(Status::Fatal));
    }

    // Rule R1.
    #[test]
    fn a_log_whose_bytes_are_damaged_is_no_log() {
        let file = archive(&[(LOG_NAME, &[b'x'; 10_000])]);
        let mut bytes = file.to_vec();
        let at = bytes.len() / 3;
        bytes[at] ^= 0xff;
        assert_eq!(why(bytes.into()), "unreadable");
    }

    // Rule W4.
    #[test]
    fn what_is_told_of_the_file_is_what_came() {
        let file = archive(&[(LOG_NAME, b"Info:a:b")]);
        let said = read(file.clone()).unwrap();
        let part = said.part.unwrap();
        assert_eq!((part.size, &said.bytes), (file.len() as u64, &file));
        assert_eq!(part.sha256, hex(&Sha256::digest(&file)));
    }

    #[test]
    fn an_archive_that_is_all_directory_is_refused_before_it_is_read() {
        let entries = ENTRY_MARK.repeat(FILES_MAX + 1);
        let mut file = vec![0; ENTRY_LEAST * (FILES_MAX + 1)];
        file.extend_from_slice(&entries);
        assert!(read(file.into()).unwrap_err().details.contains("too many files"));
    }

    #[test]
    fn a_log_that_unpacks_to_more_than_a_log_is_read_up_to_a_limit() {
        let mut log = b"Info:a:b\n".to_vec();
        log.resize(usize::try_from(LOG_MAX).unwrap() + 1000, b'\n');
        log.extend_from_slice(b"Fatal:c:d\n");
        let said = said(&log);
        assert_eq!(said.verdict, Reporting::Result(Status::Error), "what lies beyond may be worse");
        assert_eq!(said.messages.last().unwrap().what, "log_cut");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0..400_usize, n in any::<u8>()) {
            let _ = read_log(&bytes);
            let mut whole = archive(&[("a", b"b"), (LOG_NAME, b"Info:a:b")]).to_vec();
            let at = at % whole.len();
            whole[at] = n;
            let _ = read_log(&whole);
        }
    }
}
