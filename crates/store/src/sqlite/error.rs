//! What SQLite's errors mean for whoever asked.

use crate::model::{ErrorClass, StoreError};

/// An error of sqlx while `doing` something, with its class.
pub(super) fn fault(doing: &'static str, error: &sqlx::Error) -> StoreError {
    StoreError { class: class_of(error), doing, why: error.to_string() }
}

/// The lane's thread has ended: the connection is lost.
pub(super) fn lane_gone(doing: &'static str) -> StoreError {
    StoreError { class: ErrorClass::Transient, doing, why: "the connection to the database has ended".to_owned() }
}

fn class_of(error: &sqlx::Error) -> ErrorClass {
    match error {
        sqlx::Error::Database(db) => db.code().and_then(|c| c.parse::<i32>().ok()).map_or(ErrorClass::Corrupt, of_code),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => ErrorClass::Corrupt,
        sqlx::Error::Encode(_) => ErrorClass::BadRow,
        sqlx::Error::Configuration(_) => ErrorClass::Misconfigured,
        _ => ErrorClass::Transient,
    }
}

/// SQLite's primary codes are the low byte of the extended ones.
fn of_code(code: i32) -> ErrorClass {
    const IOERR_CORRUPTFS: i32 = 10 | (33 << 8);
    if code == IOERR_CORRUPTFS {
        return ErrorClass::Corrupt;
    }
    match code & 0xff {
        // BUSY, LOCKED, NOMEM, INTERRUPT, IOERR, PROTOCOL.
        5 | 6 | 7 | 9 | 10 | 15 => ErrorClass::Transient,
        // FULL.
        13 => ErrorClass::Full,
        // CORRUPT, NOTADB.
        11 | 26 => ErrorClass::Corrupt,
        // TOOBIG, CONSTRAINT, MISMATCH.
        18..=20 => ErrorClass::BadRow,
        // PERM, READONLY, CANTOPEN, AUTH, and SQL that does not fit the schema.
        _ => ErrorClass::Misconfigured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule D3.
    #[test]
    fn each_code_of_sqlite_has_the_class_that_says_what_to_do() {
        assert_eq!(of_code(5), ErrorClass::Transient, "busy");
        assert_eq!(of_code(5 | (2 << 8)), ErrorClass::Transient, "busy snapshot");
        assert_eq!(of_code(10 | (3 << 8)), ErrorClass::Transient, "io error while writing");
        assert_eq!(of_code(13), ErrorClass::Full, "disk full");
        assert_eq!(of_code(11), ErrorClass::Corrupt, "malformed");
        assert_eq!(of_code(26), ErrorClass::Corrupt, "not a database");
        assert_eq!(of_code(19 | (7 << 8)), ErrorClass::BadRow, "a trigger refused it");
        assert_eq!(of_code(18), ErrorClass::BadRow, "too big");
        assert_eq!(of_code(8), ErrorClass::Misconfigured, "read-only");
        assert_eq!(of_code(14), ErrorClass::Misconfigured, "cannot open");
    }
}
